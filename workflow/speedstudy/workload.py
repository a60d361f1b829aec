"""A workload: tokenised prompts in a fixed order, as every engine gets them.

``tokenize`` writes workloads, ``run_cell`` and ``load`` send them. This module imports no
more of ours than ``coverage``.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speedstudy.coverage import Note, with_note

WORKLOAD_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("category", pa.string()),
        ("turn_token_ids", pa.list_(pa.list_(pa.int32()))),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One conversation, tokenised outside the engine.

    Attributes:
        prompt_id: Unique within the workload.
        category: Category or entropy tier; None if the prompts have none.
        turn_token_ids: Per turn the ids to append before the model answers. Turn 0 is the whole
            rendered prompt. A later turn is what the chat template puts after a reply: it starts
            with the end-of-turn ids, of which the client drops what the reply already ended with.
    """

    prompt_id: str
    category: str | None
    turn_token_ids: tuple[tuple[int, ...], ...]


def continue_ids(
    sent: Sequence[int], received: Sequence[int], continuation: Sequence[int]
) -> list[int]:
    """Return the ids of the next turn: sent, received, continuation, without a doubled seam.

    The continuation starts with the template's end-of-turn ids. A reply that stopped by itself
    already ends with some of them, a reply cut by its length with none: the longest end of the
    reply that is also a beginning of the continuation is taken once.
    """
    overlap = min(len(received), len(continuation))
    while overlap and list(received[-overlap:]) != list(continuation[:overlap]):
        overlap -= 1
    return [*sent, *received, *continuation[overlap:]]


def digest(prompts: Sequence[Prompt]) -> str:
    """Return the sha256 (hex) over ids, categories and token ids, in order."""
    sha = hashlib.sha256()
    for prompt in prompts:
        sha.update(repr((prompt.prompt_id, prompt.category, prompt.turn_token_ids)).encode())
    return sha.hexdigest()


def write_workload(path: Path, prompts: Sequence[Prompt], missing: Note | None = None) -> None:
    """Write the prompts as parquet in order; the file appears whole or not at all.

    ``missing`` says what the prompts lack because a source was skipped.
    """
    rows = [
        {
            "prompt_id": prompt.prompt_id,
            "category": prompt.category,
            "turn_token_ids": [list(ids) for ids in prompt.turn_token_ids],
        }
        for prompt in prompts
    ]
    temporary = path.with_name(path.name + ".tmp")
    table = with_note(pa.Table.from_pylist(rows, schema=WORKLOAD_SCHEMA), missing)
    pq.write_table(table, temporary)
    temporary.replace(path)


def read_workload(path: Path) -> list[Prompt]:
    """Read what ``write_workload`` wrote, in its order.

    Raises:
        ValueError: There is no such file.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such workload; run speedstudy tokenize")
    return [
        Prompt(
            prompt_id=row["prompt_id"],
            category=row["category"],
            turn_token_ids=tuple(tuple(ids) for ids in row["turn_token_ids"]),
        )
        for row in pq.read_table(path, schema=WORKLOAD_SCHEMA).to_pylist()
    ]
