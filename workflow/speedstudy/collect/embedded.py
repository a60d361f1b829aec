"""Prompts that ship with the project, as JSON lines written for it.

A line is ``{"src_id": str, "category": str, "sub_category": str, "turns": [str, ...]}``.
Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.json_lines import read_json_lines

_COLUMNS = {"src_id", "category", "sub_category", "turns"}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every line of every file.

    Raises:
        ValueError: A line is no JSON object with the columns above.
    """
    for path in files.values():
        for place, row in read_json_lines(source, path, _COLUMNS):
            if not isinstance(row["turns"], list):
                raise ValueError(f"{place}: turns must be a list of strings")
            yield new_candidate(source=source, **{name: row[name] for name in _COLUMNS})
