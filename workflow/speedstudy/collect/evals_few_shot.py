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
            instruction = f"{options['instruction']}\n\n"
            texts = _fill(ordered, int(options["min_chars"]) - len(instruction))
            for number, (examples, question) in enumerate(texts):
                whole = f"{instruction}{examples}{question}"
                yield LongText(
                    text_id=identifier(source, hashlib.sha256(whole.encode()).hexdigest()),
                    tier="mixed",
                    title=f"{folder['title']}, part {number + 1}",
                    opening=instruction,
                    text=examples,
                    closing=question,
                    source=source,
                    licence=options["licence"],
                )


def _question(row: EvalsRow, folder: Mapping[str, Any]) -> str:
    question = "\n\n".join(row.questions)
    for text in folder.get("remove", ()):
        question = question.replace(text, "")
    return question.strip()


def _fill(rows: list[tuple[str, str]], min_chars: int) -> Iterator[tuple[str, str]]:
    """Yield solved questions and the open one that brings them to the length."""
    examples = ""
    for question, answer in rows:
        asked = f"Question: {question}\nAnswer:"
        if len(examples) + len(asked) >= min_chars:
            yield examples, asked
            examples = ""
        else:
            examples += f"{asked} {answer}\n\n"
