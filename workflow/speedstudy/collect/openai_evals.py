"""Prompts of the OpenAI Evals wheel (PyPI ``evals``, MIT but for the data sets it names).

Options:
    max_chars: Longest prompt that is kept, all turns together, in characters.
    most_rows: Most rows of any one file, one number or one by category; null or missing leaves it
        to each file's own ``rows``.
    folders: List of mappings, one a file of the wheel:
        ``member`` (``<folder>/<file>.jsonl``), ``category``, ``rows`` (how many to keep), and
        optionally ``sub_category`` (default: the folder), ``instruction`` (replaces the row's
        system text; many rows ask for a single letter, which leaves nothing to decode), ``remove``
        (literal texts taken out of the prompt, such as "Answer Y or N."), ``conversation``
        (true: the questions of earlier question-answer pairs become turns of their own; false:
        these pairs are left out) and ``difficulty``.

Of a file's usable rows the ``rows`` with the lowest hash of their own text are kept, so that
which ones stay does not depend on their order.

A known answer is never put into a prompt. Some tasks show a worked example that happens to be the
answer of one of their rows; such a row is dropped (``answer_in_instruction``). Answers shorter than
``MIN_ANSWER_CHARS`` are letters, numbers and names of options that the task offers to every row.
"""

import heapq
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, fault, new_candidate, text_hash
from speedstudy.collect.evals_rows import EvalsRow, open_wheel, read_rows

MIN_ANSWER_CHARS = 25


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read the mapped files of the wheel; ``src_id`` is the file and a hash of the prompt.

    Raises:
        ValueError: No wheel, or an option names a file that it lacks or that is left out for
            its licence.
    """
    with open_wheel(files) as wheel:
        for folder in options["folders"]:
            rows = min(int(folder["rows"]), _most_rows(options, folder))
            yield from _read_folder(source, wheel, folder, int(options["max_chars"]), rows)


def _most_rows(options: Mapping[str, Any], folder: Mapping[str, Any]) -> int:
    most = options.get("most_rows")
    if isinstance(most, Mapping):
        most = most.get(folder["category"])
    return int(folder["rows"] if most is None else most)


def _read_folder(
    source: str, wheel: zipfile.ZipFile, folder: Mapping[str, Any], max_chars: int, rows: int
) -> Iterator[Candidate | Dropped]:
    member = folder["member"]
    usable: dict[str, Candidate] = {}
    for row in read_rows(wheel, member):
        if row is None:
            yield Dropped(src_id=member, reason="damaged_row")
            continue
        turns = row_turns(row, folder)
        src_id = f"{member}#{text_hash(*turns)}"
        if _tells_answer(folder.get("instruction", row.instruction), row.answers):
            yield Dropped(src_id=src_id, reason="answer_in_instruction")
            continue
        if sum(len(turn) for turn in turns) > max_chars:
            yield Dropped(src_id=src_id, reason="over_max_chars")
            continue
        candidate = new_candidate(
            source=source,
            src_id=src_id,
            category=folder["category"],
            sub_category=folder.get("sub_category") or member.split("/")[0],
            turns=turns,
            difficulty=folder.get("difficulty", ""),
        )
        reason = "duplicate" if src_id in usable else fault(candidate)
        if reason:
            yield Dropped(src_id=src_id, reason=reason)
        else:
            usable[src_id] = candidate
    kept = heapq.nsmallest(rows, usable.values(), key=lambda item: item.question_id)
    yield from kept
    for src_id in usable.keys() - {candidate.src_id for candidate in kept}:
        yield Dropped(src_id=src_id, reason="over_quota")


def _tells_answer(instruction: str, answers: tuple[str, ...]) -> bool:
    return any(len(answer) >= MIN_ANSWER_CHARS and answer in instruction for answer in answers)


def row_turns(row: EvalsRow, folder: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the row's user turns: instruction, blank line, question; answers never."""
    instruction = folder.get("instruction", row.instruction)
    if folder.get("conversation", False):
        first, *later = [*row.examples, *row.questions]
    else:
        first, later = "\n\n".join(row.questions), []
    turns = ["\n\n".join(part for part in (instruction, first) if part), *later]
    for text in folder.get("remove", ()):
        turns = [turn.replace(text, "") for turn in turns]
    return tuple(turn.strip() for turn in turns)
