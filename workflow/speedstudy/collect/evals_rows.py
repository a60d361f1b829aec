"""Rows of the OpenAI Evals wheel: which messages ask, and which answer.

The wheel ``evals`` carries ``evals/registry/data/<folder>/<file>.jsonl``. A row's ``input`` is a
list of chat messages; ``ideal`` is the known answer, or a list of them. Earlier question-answer
pairs appear in three dialects: user and assistant, system messages named ``example_user`` and
``example_assistant``, and system messages that start with ``Q:`` and ``A:``.
"""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = "evals/registry/data/"

# Data sets that the wheel's LICENSE.md puts under terms other than its MIT licence.
OTHER_TERMS = frozenset(
    {
        "already_said_that",
        "ballots",
        "sandbagging",
        "schelling_point",
        "steganography",
        "text_compression",
        "theory_of_mind",
    }
)

_LABEL = re.compile(r"^[QA]:\s*")


@dataclass(frozen=True)
class EvalsRow:
    """One row, with what asks and what answers apart.

    Attributes:
        instruction: The system text that sets the task; may be empty.
        examples: Questions of earlier question-answer pairs, in order, without their answers.
        questions: What is asked in the end, in order; at least one.
        answers: The known answers; may be empty. Never part of this row's own prompt.
    """

    instruction: str
    examples: tuple[str, ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


def open_wheel(files: Mapping[str, Path]) -> zipfile.ZipFile:
    """Open the one wheel among the files.

    Raises:
        ValueError: There is not exactly one file, or it is no zip archive.
    """
    paths = list(files.values())
    if len(paths) != 1:
        raise ValueError(f"expected the evals wheel alone, got {len(paths)} files: {sorted(files)}")
    if not zipfile.is_zipfile(paths[0]):
        raise ValueError(f"{paths[0]}: not a wheel (no zip archive); fetch the artifact again")
    return zipfile.ZipFile(paths[0])


def read_rows(wheel: zipfile.ZipFile, member: str) -> Iterator[EvalsRow | None]:
    """Stream the rows of ``<folder>/<file>.jsonl``; None stands for a damaged row.

    Raises:
        ValueError: The wheel has no such member, or its licence excludes the folder.
    """
    folder = member.split("/")[0]
    if folder in OTHER_TERMS:
        raise ValueError(
            f"{member}: the wheel's LICENSE.md names {folder} under terms of its own; leave it out"
        )
    try:
        stream = wheel.open(DATA + member)
    except KeyError:
        raise ValueError(f"{member}: no such file in {wheel.filename}; check the version") from None
    with stream:
        for line in stream:
            if line.strip():
                yield _parse(line)


def _parse(line: bytes) -> EvalsRow | None:
    try:
        row = json.loads(line)
    except ValueError:  # broken JSON and broken UTF-8 alike
        return None
    messages = row.get("input") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        return None
    ideal = row.get("ideal")
    answers = ideal if isinstance(ideal, list) else [ideal]
    return _split(messages, tuple(answer for answer in answers if isinstance(answer, str)))


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), str)


def _split(messages: list[dict[str, str]], answers: tuple[str, ...]) -> EvalsRow | None:
    kinds = [_kind(message) for message in messages]
    texts = [_LABEL.sub("", message["content"]).strip() for message in messages]
    instruction, examples, questions = [], [], []
    for index, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
        if kind == "question" and kinds[index + 1 : index + 2] == ["answer"]:
            examples.append(text)
        elif kind == "question":
            questions.append(text)
        elif kind == "instruction":
            instruction.append(text)
    if not questions and instruction:  # the task was written as a system message
        questions.append(instruction.pop())
    if not questions:
        return None
    return EvalsRow("\n\n".join(instruction), tuple(examples), tuple(questions), answers)


def _kind(message: Mapping[str, str]) -> str:
    role, name, content = message.get("role"), message.get("name"), message["content"]
    if role == "assistant" or name == "example_assistant":
        return "answer"
    if role == "user" or name == "example_user":
        return "question"
    if content.startswith("A:"):
        return "answer"
    return "question" if content.startswith("Q:") else "instruction"
