"""Long texts of the mixed tier: solved questions of one subject, then one to solve.

The paper's mixed tier joins demonstrations of one category of HLE up to the target length
(Table 5). This does the same with rows of the OpenAI Evals wheel.

Options:
    licence: Licence of the texts.
    min_chars: A text is closed by the first question that brings it to this length.
    instruction: Text before the demonstrations.
    folders: List of ``member`` (``<folder>/<file>.jsonl``), ``title``, and optionally ``remove``
        (literal texts taken out of the questions).

Rows are put in the order of their own hash, each is used once, and the rest at the end that
fills no text is left out. Which rows meet in a text depends on the set of rows, not their order.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier
from speedstudy.collect.evals_rows import EvalsRow, open_wheel, read_rows


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read the mapped files of the wheel; every text ends in a question without its answer.

    Raises:
        ValueError: As ``openai_evals.read``.
    """
    with open_wheel(files) as wheel:
        for folder in options["folders"]:
            member = folder["member"]
            solved: dict[str, tuple[str, str]] = {}
            for row in read_rows(wheel, member):
                if row is None or not row.answers:
                    yield Dropped(src_id=member, reason="damaged_row")
                    continue
                question = _question(row, folder)
                solved[identifier(member, question)] = (question, row.answers[0])
            ordered = [solved[key] for key in sorted(solved)]
            texts = _fill(ordered, options["instruction"], int(options["min_chars"]))
            for number, text in enumerate(texts):
                yield LongText(
                    text_id=identifier(source, hashlib.sha256(text.encode()).hexdigest()),
                    tier="mixed",
                    title=f"{folder['title']}, part {number + 1}",
                    text=text,
                    source=source,
                    licence=options["licence"],
                )


def _question(row: EvalsRow, folder: Mapping[str, Any]) -> str:
    question = "\n\n".join(row.questions)
    for text in folder.get("remove", ()):
        question = question.replace(text, "")
    return question.strip()


def _fill(rows: list[tuple[str, str]], instruction: str, min_chars: int) -> Iterator[str]:
    text = instruction
    for question, answer in rows:
        text += f"\n\nQuestion: {question}\nAnswer:"
        if len(text) >= min_chars:
            yield text
            text = instruction
        else:
            text += f" {answer}"
