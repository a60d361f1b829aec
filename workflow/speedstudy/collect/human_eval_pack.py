"""HumanEvalPack (hub bigcode/humanevalpack, six languages): the completion prompt as it is.

Columns read: ``task_id`` (``Python/124``) and ``prompt``; HumanEval-X, which the pack grew from,
has both too, so its files can stand in. Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.json_lines import read_json_lines


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file; ``src_id`` is the row's ``task_id``.

    Raises:
        ValueError: A line is no JSON object or lacks a column.
    """
    for path in files.values():
        for _, row in read_json_lines(source, path, {"task_id", "prompt"}):
            yield new_candidate(
                source=source,
                src_id=str(row["task_id"]),
                category="coding",
                turns=[row["prompt"]],
            )
