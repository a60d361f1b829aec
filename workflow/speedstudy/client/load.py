"""One load on one server: warm-up, the measured requests, counters around them, self-check.

Needs tokenised prompts and a dialect, leaves a ``LoadResult`` in memory; who writes it where is
the caller's business.
"""

import asyncio
import gc
import itertools
import logging
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter, process_time
from typing import Any

import aiohttp
import orjson
import uvloop

from speedstudy.client import counters, selfcheck
from speedstudy.client.arrivals import poisson
from speedstudy.client.decode import DecodedTurn, decode_turn
from speedstudy.client.progress import show_progress
from speedstudy.client.transport import Timeouts, Transport
from speedstudy.client.worker import Job, Worker
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Sampling
from speedstudy.records import OUTCOMES, TurnRecord
from speedstudy.workload import Prompt

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a load is put on a server.

    Attributes:
        url: The server, ``http://host:port``, without the dialect's route.
        model: The model's name in the requests.
        concurrency: Requests in flight: just so many in a closed loop, at most in an open one.
        rate_per_s: Conversations a second of an open loop with Poisson arrivals; None is closed.
        requests: Prompts to send, from the first on and again from there when they run out; a
            conversation counts as one. None with ``duration_s`` None sends each prompt once.
        duration_s: Seconds during which requests are started; those open then are finished.
        sampling: How to decode.
        arrival_seed: Seed of the Poisson arrivals.
        timeouts: Limits on waiting.
    """

    url: str
    model: str
    concurrency: int
    sampling: Sampling
    rate_per_s: float | None = None
    requests: int | None = None
    duration_s: float | None = None
    arrival_seed: int = 0
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}; it must start with http:// or https://")
        for name in ("concurrency", "rate_per_s", "requests", "duration_s"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if self.sampling.max_tokens <= 0:
            raise ValueError(f"max_tokens is {self.sampling.max_tokens}; it must be above 0")
        if self.requests is not None and self.duration_s is not None:
            raise ValueError("requests and duration_s are both set; choose one")


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """What a load leaves.

    Attributes:
        turns: A record for every turn of every prompt that the load was to send, in the order
            of the prompts. Turns that were never sent (after a failed turn of the same
            conversation, after an interrupt) are ``cancelled`` and say why.
        warmup: ``{requests, outcomes, span_s}`` of the warm-up, or None without one.
        counters: ``{before, after, error}`` around the measured requests, or None if the server
            had none; ``error`` names a reset and is None otherwise.
        client: The self-check, see ``selfcheck.assess``.
        server: What the server's ``/version`` says, or None.
        body_example: The exact body of the first request.
        started_at: Wall-clock time of the start, ISO 8601 in UTC.
        ended_at: Wall-clock time of the end.
        span_s: Seconds from start to end.
        interrupted: Why the load was cut short, or None.
    """

    turns: list[TurnRecord]
    warmup: dict[str, Any] | None
    counters: dict[str, Any] | None
    client: dict[str, Any]
    server: dict[str, Any] | None
    body_example: dict[str, Any]
    started_at: str
    ended_at: str
    span_s: float
    interrupted: str | None

    def failure(self) -> str | None:
        """Return in one line why this is not a sound measurement, or None if it is one.

        It is one if every request is ``ok``, none was left out, and the engine counted as many
        prompt tokens as were sent.
        """
        if self.interrupted is not None:
            return self.interrupted
        failed = [turn for turn in self.turns if turn.outcome != "ok"]
        if failed:
            kinds = ", ".join(f"{n} {kind}" for kind, n in outcome_counts(self.turns).items() if n)
            return f"not every request is ok: {kinds}; the first: {failed[0].error}"
        if self.client["prompts_differ"]:
            return (
                f"the server counted or echoed another prompt than was sent in "
                f"{self.client['prompts_differ']} of {len(self.turns)} requests"
            )
        return None


def outcome_counts(turns: Sequence[TurnRecord]) -> dict[str, int]:
    """Return the number of turns by outcome, every outcome named."""
    counts = Counter(turn.outcome for turn in turns)
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def run_load(
    options: LoadOptions, prompts: Sequence[Prompt], warmup: Sequence[Prompt], dialect: Dialect
) -> LoadResult:
    """Warm up, put the load on the server and return what was seen.

    SIGINT and SIGTERM end the load, not the process: what was received is in the result, and
    ``interrupted`` says so. Both stay ignored after that, so that an impatient second one does
    not cost the record: the caller writes it, ends its engine and exits. Failing requests raise
    nothing and are never sent again.

    Args:
        options: The load.
        prompts: What to send, in order.
        warmup: Sent once, each, before the clock starts; kept out of ``turns``.
        dialect: The server's wire format.

    Raises:
        ValueError: No prompts, an empty prompt, a warm-up prompt that is also measured, or
            something that the dialect cannot say.
    """
    if not prompts:
        raise ValueError("no prompts to send")
    for prompt in (*prompts, *warmup):
        if not prompt.turn_token_ids or not prompt.turn_token_ids[0]:
            raise ValueError(f"prompt {prompt.prompt_id!r} has no tokens")
    measured = {prompt.turn_token_ids[0] for prompt in prompts}
    for prompt in warmup:
        if prompt.turn_token_ids[0] in measured:
            raise ValueError(
                f"warm-up prompt {prompt.prompt_id!r} is also measured and would be cached; "
                "warm up with other prompts"
            )
    if options.requests is not None and options.requests > len(prompts):
        logger.warning(
            "%d requests from %d prompts: prompts repeat and may come from the prefix cache",
            options.requests,
            len(prompts),
        )
    return uvloop.run(_run(options, prompts, warmup, dialect))


async def _run(
    options: LoadOptions, prompts: Sequence[Prompt], warmup: Sequence[Prompt], dialect: Dialect
) -> LoadResult:
    bodies = _bodies(options, prompts, dialect)
    async with Transport(options.url.rstrip("/") + dialect.route, options.timeouts) as transport:
        worker = _worker(options, transport, dialect)
        warmed = await _warm_up(options, warmup, transport, dialect)
        url = options.url.rstrip("/")
        server = await _version(transport.session, url)
        before, why = await counters.scrape(transport.session, url, dialect)
        transport.max_in_flight = 0
        lags_ms: list[float] = []
        lag_task = asyncio.create_task(selfcheck.sample_loop_lag(lags_ms))
        progress_task = asyncio.create_task(show_progress(worker, _total(options, prompts)))
        gc.freeze()  # what lives already is not searched again while the clock runs
        started_at, cpu_s, start_s = datetime.now(UTC), process_time(), perf_counter()
        with _stop_on_signal(worker):
            jobs = _jobs(options, prompts, bodies, worker, start_s)
            await worker.run(jobs, options.concurrency)
        span_s, cpu_s, ended_at = (
            perf_counter() - start_s,
            process_time() - cpu_s,
            datetime.now(UTC),
        )
        gc.unfreeze()
        lag_task.cancel()
        progress_task.cancel()
        await asyncio.gather(lag_task, progress_task, return_exceptions=True)
        counted = await _counters_around(transport.session, url, dialect, before, why)

    decoded = [decode_turn(raw, dialect, start_s) for raw in worker.turns]
    decoded = _in_prompt_order(decoded, prompts)
    return LoadResult(
        turns=[turn.record for turn in decoded],
        warmup=warmed,
        counters=counted,
        client=selfcheck.assess(
            decoded,
            lags_ms=lags_ms,
            cpu_share=cpu_s / span_s,
            max_in_flight=transport.max_in_flight,
            shared_prefix_tokens=selfcheck.shared_prefix(
                [prompt.turn_token_ids[0] for prompt in prompts]
            ),
        ),
        server=server,
        body_example=orjson.loads(bodies[0]),
        started_at=started_at.isoformat(),
        ended_at=ended_at.isoformat(),
        span_s=span_s,
        interrupted=worker.stop_reason,
    )


def _worker(options: LoadOptions, transport: Transport, dialect: Dialect) -> Worker:
    return Worker(
        transport=transport, dialect=dialect, model=options.model, sampling=options.sampling
    )


def _bodies(options: LoadOptions, prompts: Sequence[Prompt], dialect: Dialect) -> list[bytes]:
    """The serialised bodies of all first turns."""
    return [
        orjson.dumps(dialect.body(options.model, prompt.turn_token_ids[0], options.sampling))
        for prompt in prompts
    ]


def _jobs(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    bodies: Sequence[bytes],
    worker: Worker,
    start_s: float,
) -> Iterator[Job]:
    """Yield the conversations of the load, in order; a duration decides as they are asked for."""
    pairs: Iterator[tuple[Prompt, bytes]] = itertools.cycle(zip(prompts, bodies, strict=True))
    if options.duration_s is None:
        pairs = itertools.islice(pairs, options.requests or len(prompts))
    arrivals: Iterator[float] | None = None
    if options.rate_per_s is not None:
        arrivals = poisson(options.rate_per_s, options.arrival_seed)
    for prompt, body in pairs:
        due_s = None if arrivals is None else start_s + next(arrivals)
        if options.duration_s is not None:
            over = (due_s or perf_counter()) >= start_s + options.duration_s
            if over or worker.stopped.is_set():
                return
        yield Job(prompt, body, due_s)


def _total(options: LoadOptions, prompts: Sequence[Prompt]) -> int | None:
    """Requests that the load will send if nothing fails, or None for a duration."""
    if options.duration_s is not None:
        return None
    sent = itertools.islice(itertools.cycle(prompts), options.requests or len(prompts))
    return sum(len(prompt.turn_token_ids) for prompt in sent)


async def _warm_up(
    options: LoadOptions, prompts: Sequence[Prompt], transport: Transport, dialect: Dialect
) -> dict[str, Any] | None:
    """Send the warm-up prompts within the concurrency of the load, in a closed loop."""
    if not prompts:
        return None
    worker = _worker(options, transport, dialect)
    bodies = _bodies(options, prompts, dialect)
    start_s = perf_counter()
    jobs = (Job(prompt, body, None) for prompt, body in zip(prompts, bodies, strict=True))
    with _stop_on_signal(worker):
        await worker.run(jobs, options.concurrency)
    span_s = perf_counter() - start_s
    if worker.stop_reason is not None:
        raise KeyboardInterrupt(worker.stop_reason)
    records = [decode_turn(raw, dialect, start_s).record for raw in worker.turns]
    return {"requests": len(records), "outcomes": outcome_counts(records), "span_s": span_s}


async def _counters_around(
    session: aiohttp.ClientSession,
    url: str,
    dialect: Dialect,
    before: counters.Snapshot | None,
    why: str | None,
) -> dict[str, Any] | None:
    """The snapshots before and after, and what is wrong between them."""
    if before is None:
        logger.info("no counters: %s", why)
        return None
    after, error = await counters.scrape(session, url, dialect)
    if after is not None:
        error = counters.reset_error(before, after)
    if error is not None:
        logger.warning("%s", error)
    return {"before": before, "after": after, "error": error}


async def _version(session: aiohttp.ClientSession, url: str) -> dict[str, Any] | None:
    """What the server says of itself at ``/version``, or None."""
    try:
        async with session.get(f"{url}/version", timeout=counters.SCRAPE_TIMEOUT) as response:
            told = orjson.loads(await response.read())
            return told if response.status == 200 and isinstance(told, dict) else None
    except (aiohttp.ClientError, OSError, TimeoutError, orjson.JSONDecodeError):
        return None


@contextmanager
def _stop_on_signal(worker: Worker) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the worker, and ignore them once they have.

    Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, worker.stop, f"interrupted by {number.name}")
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
            stopped = worker.stop_reason is not None
            signal.signal(number, signal.SIG_IGN if stopped else former[number])


def _in_prompt_order(turns: Sequence[DecodedTurn], prompts: Sequence[Prompt]) -> list[DecodedTurn]:
    """Sort by the prompt's place, then by when it was scheduled (repeats), then by turn."""
    place = {prompt.prompt_id: index for index, prompt in enumerate(prompts)}
    return sorted(
        turns,
        key=lambda turn: (
            place[turn.record.prompt_id],
            turn.record.scheduled_s,
            turn.record.turn,
        ),
    )
