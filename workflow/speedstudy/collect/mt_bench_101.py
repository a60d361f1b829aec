"""MT-Bench-101's dialogues (GitHub mtbench101/mt-bench-101, Apache-2.0): the reasoning tasks.

Columns: ``task``, ``id`` (1 to 1,388), ``history`` (list of {user, bot}). The paper takes general
(GR) and mathematical (MR) reasoning; the turns are what the user says, and the target answers for
itself in the bot's place. ``src_id`` is the published one, ``mtbench_101_<id - 1>``. Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.table_files import read_table

_COLUMNS = {"task": str, "id": int, "history": list}
_SUB_CATEGORIES = {"GR": "general", "MR": "mathematical"}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every dialogue.

    Raises:
        ValueError: A row has other columns, or its history is no list of {user, bot}.
    """
    for path in files.values():
        for place, row in read_table(source, path, _COLUMNS):
            src_id = f"mtbench_101_{row['id'] - 1}"
            if row["task"] not in _SUB_CATEGORIES:
                yield Dropped(src_id=src_id, reason="not_used_by_the_paper")
                continue
            if not all(isinstance(entry, dict) and "user" in entry for entry in row["history"]):
                raise ValueError(f"{place}: history must be a list of {{user, bot}}")
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="reasoning",
                sub_category=_SUB_CATEGORIES[row["task"]],
                turns=[entry["user"] for entry in row["history"]],
            )
