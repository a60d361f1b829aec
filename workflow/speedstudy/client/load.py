"""One load on one server: warm-up, the measured requests, counters around them, self-check.

Needs tokenised prompts and a dialect, leaves ``requests.parquet`` and a ``LoadResult``; who
writes that where is the caller's business. While it runs, what is received is in the folder
``journal`` beside, from which ``killed`` makes the record of a load that was killed.
"""

import asyncio
import logging
import resource
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp
import orjson
import uvloop

from speedstudy.client import counters
from speedstudy.client.crew import START_AHEAD_S, LocalCrew, start_crew
from speedstudy.client.merge import merge_load
from speedstudy.client.options import LoadOptions
from speedstudy.client.outbox import first_body
from speedstudy.client.progress import Samples, show_progress
from speedstudy.client.shares import divide, number_of_requests
from speedstudy.dialects import Dialect
from speedstudy.records import write_json
from speedstudy.workload import Prompt, write_workload

JOURNAL = "journal"
PLAN_FILE = "load.json"
RECORD_FILE = "cell.json"
WARM_UP = f"{JOURNAL}/warmup"
PROMPTS_FILE = "prompts.parquet"
# Files that a process has open beside its connections.
OTHER_OPEN_FILES = 64

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """What a load leaves beside ``requests.parquet``.

    That has a row for every turn of every prompt that the load was to send, in the order of the
    prompts. Turns that were never sent (after a failed turn of the same conversation, after an
    interrupt) are ``cancelled`` and say why.

    Attributes:
        outcomes: Turns by outcome, every outcome named.
        first_failure: Reason of the first turn that is not ``ok``, or None.
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

    outcomes: dict[str, int]
    first_failure: str | None
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
        total = sum(self.outcomes.values())
        if self.outcomes["ok"] < total:
            kinds = ", ".join(f"{n} {kind}" for kind, n in self.outcomes.items() if n)
            return f"not every request is ok: {kinds}; the first: {self.first_failure}"
        if self.client["prompts_differ"]:
            return (
                f"the server counted or echoed another prompt than was sent in "
                f"{self.client['prompts_differ']} of {total} requests"
            )
        return None


def begin_journal(out: Path, record: Mapping[str, Any]) -> None:
    """Make the journal's folder anew, with what the record holds already.

    From it ``record_killed_load`` makes ``cell.json`` if the load is killed.
    """
    shutil.rmtree(out / JOURNAL, ignore_errors=True)
    (out / JOURNAL).mkdir(parents=True)
    write_json(out / JOURNAL / RECORD_FILE, record)


def end_journal(out: Path) -> None:
    """Drop the journal: the record is whole and in place."""
    shutil.rmtree(out / JOURNAL)


def run_load(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    warmup: Sequence[Prompt],
    dialect: Dialect,
    out: Path,
) -> LoadResult:
    """Warm up, put the load on the server and write ``requests.parquet``.

    SIGINT and SIGTERM end the load, not the process: what was received is in the record, and
    ``interrupted`` says so. Both stay ignored after that, so that an impatient second one does
    not cost the record: the caller writes it, ends its engine and exits. Failing requests raise
    nothing and are never sent again.

    Args:
        options: The load.
        prompts: What to send, in order.
        warmup: Sent once, each, before the clock starts; kept out of the record.
        dialect: The server's wire format.
        out: Folder of the record; it is made. ``begin_journal`` and ``end_journal`` belong
            before and after.

    Raises:
        ValueError: No prompts, an empty prompt, a warm-up prompt that is also measured, something
            that the dialect cannot say, or too few open files are allowed.
        KeyboardInterrupt: The warm-up was interrupted.
    """
    _check_prompts(options, prompts, warmup)
    allow_open_files(options.concurrency)
    (out / JOURNAL).mkdir(parents=True, exist_ok=True)
    return uvloop.run(_run(options, prompts, warmup, dialect, out))


def allow_open_files(concurrency: int) -> None:
    """Raise the limit of open files of this process and its children, if it is too low.

    Raises:
        ValueError: The hard limit is too low for the connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = concurrency + OTHER_OPEN_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ValueError(
            f"concurrency {concurrency} needs {needed} open files and the hard limit is {hard}; "
            "raise it (ulimit -Hn) or lower the concurrency"
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _check_prompts(
    options: LoadOptions, prompts: Sequence[Prompt], warmup: Sequence[Prompt]
) -> None:
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
        LOG.warning(
            "%d requests from %d prompts: prompts repeat and may come from the prefix cache",
            options.requests,
            len(prompts),
        )


async def _run(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    warmup: Sequence[Prompt],
    dialect: Dialect,
    out: Path,
) -> LoadResult:
    url, journal = options.url.rstrip("/"), out / JOURNAL
    body_example = orjson.loads(first_body(options, prompts[0], dialect))
    write_workload(journal / PROMPTS_FILE, prompts)
    shares = divide(options, prompts, dialect, journal)
    async with aiohttp.ClientSession() as session:
        with closing(start_crew(shares)) as crew:
            await crew.ready()
            warmed = await _warm_up(options, warmup, dialect, out / WARM_UP)
            server = await _version(session, url)
            before, why = await counters.scrape(session, url, dialect)
            await crew.connect()
            started_at, start_s = datetime.now(UTC), perf_counter() + START_AHEAD_S
            plan = {
                "dialect": dialect.name,
                "options": asdict(options),
                "start_s": start_s,
                "started_at": started_at.isoformat(),
                "warmup": warmed,
                "server": server,
                "body_example": body_example,
            }
            write_json(journal / PLAN_FILE, plan)
            progress = asyncio.create_task(
                show_progress(
                    crew.told,
                    Samples([share.journal for share in shares], dialect),
                    number_of_requests(prompts, shares[0].jobs),
                    options.duration_s,
                )
            )
            with _stop_on_signal(crew.stop) as stopped:
                reports = await crew.run(start_s)
            end_s, ended_at = perf_counter(), datetime.now(UTC)
            progress.cancel()
            await asyncio.gather(progress, return_exceptions=True)
            counted = await _counters_around(session, url, dialect, before, why)
    reasons = [*stopped, *(report.error for report in reports if report.error is not None)]
    interrupted = reasons[0] if reasons else None
    outcomes, first_failure, client = merge_load(
        journal,
        out / "requests.parquet",
        options,
        prompts,
        dialect,
        start_s=start_s,
        end_s=end_s - start_s,
        cut_short=interrupted,
        reports=reports,
    )
    return LoadResult(
        outcomes=outcomes,
        first_failure=first_failure,
        warmup=warmed,
        counters=counted,
        client=client,
        server=server,
        body_example=body_example,
        started_at=started_at.isoformat(),
        ended_at=ended_at.isoformat(),
        span_s=end_s - start_s,
        interrupted=interrupted,
    )


async def _warm_up(
    options: LoadOptions, prompts: Sequence[Prompt], dialect: Dialect, folder: Path
) -> dict[str, Any] | None:
    """Send the warm-up prompts within the concurrency of the load, in a closed loop.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    if not prompts:
        return None
    folder.mkdir()
    closed = LoadOptions(
        url=options.url,
        model=options.model,
        concurrency=options.concurrency,
        sampling=options.sampling,
        timeouts=options.timeouts,
        processes=1,
    )
    (share,) = divide(closed, prompts, dialect, folder)
    crew = LocalCrew(share)
    await crew.connect()
    start_s = perf_counter()
    with _stop_on_signal(crew.stop) as stopped:
        reports = await crew.run(start_s)
    end_s = perf_counter() - start_s
    if stopped:
        raise KeyboardInterrupt(stopped[0])
    outcomes, _, _ = merge_load(
        folder,
        folder / "requests.parquet",
        closed,
        prompts,
        dialect,
        start_s=start_s,
        end_s=end_s,
        cut_short=None,
        reports=reports,
    )
    return {"requests": sum(outcomes.values()), "outcomes": outcomes, "span_s": end_s}


async def _counters_around(
    session: aiohttp.ClientSession,
    url: str,
    dialect: Dialect,
    before: counters.Snapshot | None,
    why: str | None,
) -> dict[str, Any] | None:
    """The snapshots before and after, and what is wrong between them."""
    if before is None:
        LOG.info("no counters: %s", why)
        return None
    after, error = await counters.scrape(session, url, dialect)
    if after is not None:
        error = counters.reset_error(before, after)
    if error is not None:
        LOG.warning("%s", error)
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
def _stop_on_signal(stop: Callable[[str], None]) -> Iterator[list[str]]:
    """Let SIGINT and SIGTERM stop a load, and ignore them once they have.

    Yields:
        Why it was stopped, an item each time. Outside the main thread nothing changes.
    """
    stopped: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def on_signal(reason: str) -> None:
        stopped.append(reason)
        stop(reason)

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.getsignal(number) for number in signals}
    for number in signals:
        loop.add_signal_handler(number, on_signal, f"interrupted by {number.name}")
    try:
        yield stopped
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN if stopped else former[number])
