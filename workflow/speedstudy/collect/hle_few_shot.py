"""Humanity's Last Exam (hub cais/hle, gated) as long prompts: solved questions, then an open one.

Parquet columns read: ``id``, ``question``, ``image`` (empty if there is none), ``rationale``,
``category``. A hash of the id puts a question into one of two halves: the one supplies solved
questions of the same category, the other the question to answer. Which solved questions stand in
a prompt, and in what order, follows from the ids alone; none stands there twice.

Options:
    licence: Licence of the texts.
    max_chars: Solved questions are added until they reach it.
    max_texts: Of the questions to answer, those with the lowest ids, at most so many.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier, text_hash
from speedstudy.collect.draw import draw
from speedstudy.collect.parquet_rows import read_parquet_rows

_COLUMNS = ("id", "question", "image", "rationale", "category")


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every parquet file; ``title`` holds the row's ``id``.

    Raises:
        ValueError: A file lacks a column.
    """
    solved: dict[str, dict[str, str]] = defaultdict(dict)
    asked: dict[str, dict[str, Any]] = {}
    for path in files.values():
        for row in read_parquet_rows(source, path, _COLUMNS):
            src_id = str(row["id"])
            if row["image"]:
                yield Dropped(src_id=src_id, reason="with_image")
            elif draw((False, True), "half", src_id):
                asked[identifier(source, src_id)] = row
            elif not row["rationale"]:
                yield Dropped(src_id=src_id, reason="no_rationale")
            else:
                example = f"Question: {row['question']}\n\nAnswer: {row['rationale']}\n\n"
                solved[row["category"]][src_id] = example
    kept = heapq.nsmallest(int(options["max_texts"]), asked)
    for text_id in kept:
        row = asked[text_id]
        yield LongText(
            text_id=text_id,
            tier="mixed",
            title=f"{row['category']}, {row['id']}",
            opening=(
                f"Here are questions about {row['category']} with their answers. Answer the last "
                "one.\n\n"
            ),
            text=_examples(str(row["id"]), solved[row["category"]], int(options["max_chars"])),
            closing=f"Question: {row['question']}\n\nAnswer:",
            source=source,
            licence=options["licence"],
        )
    for _ in range(len(asked) - len(kept)):
        yield Dropped(src_id=source, reason="over_quota")


def _examples(src_id: str, solved: Mapping[str, str], max_chars: int) -> str:
    """Join solved questions in an order that is this question's own."""
    joined: list[str] = []
    chars = 0
    for key in sorted(solved, key=lambda key: text_hash(src_id, key)):
        if chars >= max_chars:
            break
        joined.append(solved[key])
        chars += len(solved[key])
    return "".join(joined)
