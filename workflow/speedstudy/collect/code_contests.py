"""CodeContests (hub deepmind/code_contests, test split), as the paper uses it.

Parquet columns read: ``name``, ``description``, ``difficulty`` (a class label). The prompt asks
for a program in a language drawn by the row's name (the paper draws from the same three).
Difficulty as in the paper: hard, harder and hardest are hard; the contests' letters A-I are easy,
J-Q medium, R-Z hard. Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.draw import draw
from speedstudy.collect.parquet_rows import read_parquet_rows

LANGUAGES = ("Python", "Java", "C++")

_COLUMNS = ("name", "description", "difficulty")

# The data set's class labels in order: its unknown and external ones tell no difficulty.
_DIFFICULTIES = (
    *("", "easy", "medium", "hard", "hard", "hard", ""),
    *("easy",) * len("ABCDEFGHI"),
    *("medium",) * len("JKLMNOPQ"),
    *("hard",) * len("RSTUV"),
)


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every parquet file; ``src_id`` is the row's ``name``.

    Raises:
        ValueError: A file lacks a column, or a difficulty is none of the data set's labels.
    """
    for path in files.values():
        for row in read_parquet_rows(source, path, _COLUMNS):
            src_id, statement = str(row["name"]), row["description"]
            if not isinstance(statement, str) or not statement.strip():
                yield Dropped(src_id=src_id, reason="damaged_row")
                continue
            language = draw(LANGUAGES, "language", src_id)
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="coding",
                turns=[f"Write a {language} program for the contest problem below.\n\n{statement}"],
                difficulty=_difficulty(source, src_id, row["difficulty"]),
            )


def _difficulty(source: str, src_id: str, label: Any) -> str:
    if not isinstance(label, int) or not 0 <= label < len(_DIFFICULTIES):
        raise ValueError(
            f"source {source}: row {src_id!r} has difficulty {label!r}, none of the "
            f"{len(_DIFFICULTIES)} class labels; check the revision"
        )
    return _DIFFICULTIES[label]
