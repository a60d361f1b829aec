"""What a measurement writes: ``requests.parquet`` (one row a turn) and ``cell.json``.

Records hold what was seen, never what was computed from it: every metric is a pure function of
these two files, so that a definition can change without measuring again. This module imports
nothing of ours.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

RECORD_VERSION = 1
RECORD_FILES = ("requests.parquet", "cell.json")  # in the order in which they are written

Outcome = Literal["ok", "incomplete", "empty", "error", "timeout", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "incomplete", "empty", "error", "timeout", "cancelled")

REQUESTS_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("category", pa.string()),
        ("turn", pa.int32()),
        ("outcome", pa.string()),
        ("error", pa.string()),
        ("scheduled_s", pa.float64()),
        ("sent_s", pa.float64()),
        ("chunk_s", pa.list_(pa.float64())),
        ("chunk_tokens", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("steps", pa.int64()),
        ("steps_drafted", pa.int64()),
        ("drafted", pa.int64()),
        ("accepted", pa.int64()),
        ("step_drafted", pa.list_(pa.int32())),
        ("step_accepted", pa.list_(pa.int32())),
        ("acceptance_source", pa.string()),
        ("acceptance_conflict", pa.string()),
        ("cached_tokens", pa.int64()),
        ("coalesced_reads", pa.int64()),
    ]
)
# Columns that a record may lack: later additions, None where they are not there.
OPTIONAL_COLUMNS = frozenset({"acceptance_conflict"})


@dataclass(kw_only=True)
class TurnRecord:
    """One turn of one prompt, as the client saw it.

    Times are seconds on one monotonic clock from the cell's start. A count that the engine did
    not tell is None, never 0.

    Attributes:
        prompt_id: The prompt's id in its workload.
        category: The prompt's category, or None.
        turn: Index of the turn in its conversation, from 0.
        outcome: One of ``OUTCOMES``.
        error: Why the outcome is not ``ok``; never empty then, None for ``ok``.
        scheduled_s: When the load wanted the request to be sent.
        sent_s: When it was sent; None if it never was.
        chunk_s: Arrival of each chunk that carried at least one token.
        chunk_tokens: Tokens in each of those chunks.
        token_ids: All completion token ids in order, or None if the engine sends none.
        prompt_tokens: Prompt tokens as the engine counted them.
        completion_tokens: Completion tokens as the engine counted them, else the ids seen.
        finish_reason: The engine's word, for example ``stop`` or ``length``.
        steps: Verify steps, drafted or not; None if unknown.
        steps_drafted: Verify steps with at least one drafted token; None if unknown.
        drafted: Drafted tokens over all steps; None if unknown.
        accepted: Accepted draft tokens over all steps; None if unknown.
        step_drafted: Drafted tokens of each reported step, or None.
        step_accepted: Accepted tokens of each reported step, or None.
        acceptance_source: Where the acceptance fields come from: ``steps`` (per-step lists),
            ``totals`` (per-request totals or histogram), ``blocks`` (stream blocks of an engine
            that guarantees one event a step); None if the response told nothing.
        acceptance_conflict: What contradicts itself or cannot be read in what the response told,
            or None.
        cached_tokens: Prompt tokens that the engine served from its prefix cache, or None.
        coalesced_reads: Chunks that arrived in the same network read as an earlier one, so that
            their time stamp is not their own.
    """

    prompt_id: str
    category: str | None
    turn: int
    outcome: Outcome
    error: str | None = None
    scheduled_s: float
    sent_s: float | None = None
    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    steps: int | None = None
    steps_drafted: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    step_drafted: list[int] | None = None
    step_accepted: list[int] | None = None
    acceptance_source: str | None = None
    acceptance_conflict: str | None = None
    cached_tokens: int | None = None
    coalesced_reads: int = 0


ROWS_A_GROUP = 1024


class RequestsWriter:
    """Writes turns as parquet one by one, some at a time; the memory it takes does not grow.

    A context manager: the file appears whole when the block ends well, and not at all otherwise.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".tmp")
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self._file = pq.ParquetWriter(self._temporary, REQUESTS_SCHEMA)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write_group()
        self._file.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink()

    def write(self, turn: TurnRecord) -> None:
        """Add a turn."""
        self._rows.append(vars(turn))
        if len(self._rows) == ROWS_A_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        self._file.write_table(pa.Table.from_pylist(self._rows, schema=REQUESTS_SCHEMA))
        self._rows = []


def write_requests(path: Path, turns: Iterable[TurnRecord]) -> None:
    """Write the turns as parquet, in the given order; the file appears whole or not at all."""
    with RequestsWriter(path) as writer:
        for turn in turns:
            writer.write(turn)


def read_requests(path: Path) -> list[TurnRecord]:
    """Read what ``write_requests`` wrote, in its order.

    Raises:
        ValueError: A column of the schema is missing; the message names it.
    """
    table = pq.read_table(path)
    present = [name for name in REQUESTS_SCHEMA.names if name in table.column_names]
    missing = set(REQUESTS_SCHEMA.names) - OPTIONAL_COLUMNS - set(present)
    if missing:
        raise ValueError(
            f"{path}: no column {', '.join(sorted(missing))}; not a requests.parquet of ours"
        )
    return [TurnRecord(**row) for row in table.select(present).to_pylist()]


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write JSON (sorted keys, NaN refused); the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)


def read_cell(directory: Path) -> dict[str, Any]:
    """Read ``cell.json`` of a cell's directory.

    Raises:
        ValueError: There is none (the measurement did not finish) or it is of another version.
    """
    path = directory / "cell.json"
    if not path.is_file():
        raise ValueError(f"{directory}: no cell.json; the measurement there did not finish")
    cell: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if cell.get("record_version") != RECORD_VERSION:
        raise ValueError(
            f"{path}: record_version {cell.get('record_version')}, this program reads "
            f"{RECORD_VERSION}; measure the cell again"
        )
    return cell
