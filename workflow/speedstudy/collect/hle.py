"""Humanity's Last Exam (hub cais/hle, gated), as the paper uses it: the bare question.

Parquet columns read: ``id``, ``question``, ``image`` (empty if there is none), ``answer_type``,
``category``, ``raw_subject``. The pool is text-only questions with an exact-match answer (paper,
Table 4); every one counts as hard. Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.parquet_rows import read_parquet_rows

_COLUMNS = ("id", "question", "image", "answer_type", "category", "raw_subject")

_CATEGORIES = {
    "Math": "math",
    "Humanities/Social Science": "humanities",
    "Physics": "stem",
    "Computer Science/AI": "stem",
    "Biology/Medicine": "stem",
    "Chemistry": "stem",
    "Engineering": "stem",
}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every parquet file; ``src_id`` is the row's ``id``.

    Raises:
        ValueError: A file lacks a column.
    """
    for path in files.values():
        for row in read_parquet_rows(source, path, _COLUMNS):
            src_id = str(row["id"])
            if row["image"]:
                yield Dropped(src_id=src_id, reason="with_image")
            elif row["answer_type"] != "exactMatch":
                yield Dropped(src_id=src_id, reason="no_exact_match_answer")
            elif row["category"] not in _CATEGORIES:
                yield Dropped(src_id=src_id, reason="not_used_by_the_paper")
            else:
                yield new_candidate(
                    source=source,
                    src_id=src_id,
                    category=_CATEGORIES[row["category"]],
                    sub_category=row["raw_subject"] or "",
                    turns=[row["question"]],
                    difficulty="hard",
                )
