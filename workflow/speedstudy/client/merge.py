"""The journal of a load into its record.

Runs when the load is over, also when it was killed. Needs the journal's folder, leaves
``requests.parquet``: read exchange by exchange in the order of the prompts, so that the memory
it takes does not grow with the run.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from speedstudy.client import journal
from speedstudy.client.arrivals import due_times
from speedstudy.client.decode import DecodedTurn, decode_exchange, never_sent
from speedstudy.client.exchange import Exchange
from speedstudy.client.journal import Entry
from speedstudy.client.options import LoadOptions
from speedstudy.client.selfcheck import Tally, assess, shared_prefix
from speedstudy.client.shares import number_of_jobs
from speedstudy.client.worker import WorkerReport
from speedstudy.dialects import Dialect
from speedstudy.records import OUTCOMES, Outcome, RequestsWriter, TurnRecord
from speedstudy.workload import Prompt, continue_ids


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a load was to send, and what came in its way.

    Attributes:
        prompts: The prompts in order; conversation i is of prompt i modulo their number.
        dialect: The server's wire format.
        start_s: When the load began (``time.perf_counter``).
        jobs: Number of conversations; None: as many as there are in the journal.
        due_s: When each was due, in seconds from the start; None in a closed loop.
        end_s: When it ended, in seconds from the start.
        cut_short: Why conversations may be missing, or None.
    """

    prompts: Sequence[Prompt]
    dialect: Dialect
    start_s: float
    jobs: int | None
    due_s: Sequence[float] | None
    end_s: float
    cut_short: str | None


@dataclass(kw_only=True)
class Merged:
    """What the merged record holds.

    Attributes:
        outcomes: Turns by outcome.
        first_failure: The reason of the first turn that is not ``ok``, or None.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    first_failure: str | None = None


def merge_load(
    folder: Path,
    path: Path,
    options: LoadOptions,
    prompts: Sequence[Prompt],
    dialect: Dialect,
    *,
    start_s: float,
    end_s: float,
    cut_short: str | None,
    reports: Sequence[WorkerReport],
) -> tuple[dict[str, int], str | None, dict[str, Any]]:
    """Write the record of a load from its journal, and judge the client.

    Args:
        folder: The journal.
        path: ``requests.parquet``.
        options: The load.
        prompts: What it was to send.
        dialect: The server's wire format.
        start_s: When it began (``time.perf_counter``).
        end_s: When it ended, in seconds from its start.
        cut_short: Why it was cut short, or None.
        reports: What its workers report.

    Returns:
        Turns by outcome, the reason of the first that is not ``ok`` or None, and the self-check.
    """
    order = Order(
        prompts=prompts,
        dialect=dialect,
        start_s=start_s,
        end_s=end_s,
        jobs=number_of_jobs(options, len(prompts)),
        due_s=due_times(options, len(prompts)),
        cut_short=cut_short,
    )
    tally = Tally(
        steady_s=options.ramp_s,
        end_s=end_s,
        shared_prefix=shared_prefix([prompt.turn_token_ids[0] for prompt in prompts]),
    )
    merged = merge(folder, order, tally, path)
    outcomes: dict[str, int] = {outcome: merged.outcomes[outcome] for outcome in OUTCOMES}
    return outcomes, merged.first_failure, assess(tally, reports)


def merge(folder: Path, order: Order, tally: Tally, path: Path) -> Merged:
    """Write the record of a journal; the file appears whole or not at all.

    Rows are in the order of the prompts, then of their repeats, then of the turns. A turn that
    was to be sent and is not in the journal is ``cancelled`` and says why.

    Args:
        folder: The journal.
        order: What was to be sent.
        tally: Takes in every turn.
        path: ``requests.parquet``.

    Raises:
        OSError: A file cannot be read or written.
    """
    paths = sorted(folder.glob(journal.PATTERN))
    merged = Merged()
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        writer = stack.enter_context(RequestsWriter(path))
        for turn in _turns(paths, files, order):
            record = turn.record
            merged.outcomes[record.outcome] += 1
            merged.first_failure = merged.first_failure or record.error
            tally.add(turn)
            writer.write(record)
    return merged


def _turns(paths: list[Path], files: Sequence[BinaryIO], order: Order) -> Iterator[DecodedTurn]:
    """Yield all turns of a load in the order of the record."""
    prompts = len(order.prompts)
    places = np.array([*journal.entries(paths)], dtype=np.int64).reshape(-1, len(Entry._fields))
    job, turn = places[:, 0], places[:, 1]
    places = places[np.lexsort((turn, job, job % prompts))]
    jobs = int(job.max(initial=-1)) + 1 if order.jobs is None else order.jobs
    at = 0
    for prompt in range(prompts):
        for one in range(prompt, jobs, prompts):
            end = at
            while end < len(places) and places[end, 0] == one:
                end += 1
            exchanges = (
                journal.read_exchange(files[file], offset)
                for _, _, file, offset in places[at:end].tolist()
            )
            yield from _conversation(one, exchanges, order)
            at = end


def _conversation(job: int, exchanges: Iterator[Exchange], order: Order) -> Iterator[DecodedTurn]:
    """Yield the turns of one conversation, those that were never sent with the reason."""
    prompt = order.prompts[job % len(order.prompts)]
    due_s = order.end_s if order.due_s is None else order.due_s[job]
    ids: Sequence[int] = prompt.turn_token_ids[0]
    received: Sequence[int] = ()
    reason = order.cut_short or "it is not in the journal"
    for turn, continuation in enumerate(prompt.turn_token_ids):
        exchange = next(exchanges, None)
        if exchange is None:
            yield never_sent(prompt, turn, due_s, reason)
            continue
        if turn:
            ids = continue_ids(ids, received, continuation)
        decoded = decode_exchange(exchange, prompt, ids, order.dialect, order.start_s)
        yield decoded
        due_s, received = exchange.ended_s - order.start_s, decoded.record.token_ids or []
        reason = _why_not_continued(decoded.record, order.cut_short)


def _why_not_continued(record: TurnRecord, cut_short: str | None) -> str:
    if cut_short is not None and record.outcome in ("ok", "cancelled"):
        return cut_short
    if record.outcome != "ok":
        return f"not sent: turn {record.turn} ended as {record.outcome}"
    return f"not sent: turn {record.turn} came back without token ids to continue from"
