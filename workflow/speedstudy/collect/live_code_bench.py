"""LiveCodeBench lite (hub livecodebench/code_generation_lite, six JSONL files, gigabytes of tests).

Columns read: ``question_id``, ``question_content``, ``starter_code`` (may be empty),
``difficulty``. The prompt asks for a program in a language drawn by the row's id, then gives the
statement and the starter code (the paper draws from the same six languages). Options: none.

The files are read a line at a time rather than with ``datasets``, whose JSON reader loads a whole
file when one line is damaged and cannot say which.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.draw import draw
from speedstudy.collect.json_lines import read_json_lines

LANGUAGES = ("Python", "Java", "C++", "Go", "JavaScript", "Rust")

_COLUMNS = {"question_id", "question_content", "starter_code", "difficulty"}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file; ``src_id`` is the row's ``question_id``.

    Raises:
        ValueError: A line is no JSON object or lacks a column.
    """
    for path in files.values():
        for _, row in read_json_lines(source, path, _COLUMNS):
            src_id, statement = str(row["question_id"]), row["question_content"]
            if not isinstance(statement, str) or not statement.strip():
                yield Dropped(src_id=src_id, reason="damaged_row")
                continue
            language = draw(LANGUAGES, "language", src_id)
            prompt = f"Write a program in {language} that solves this problem.\n\n{statement}"
            if row["starter_code"]:
                prompt += f"\n\nThe solution implements this interface:\n\n{row['starter_code']}"
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="coding",
                turns=[prompt],
                difficulty=str(row["difficulty"] or ""),
            )
