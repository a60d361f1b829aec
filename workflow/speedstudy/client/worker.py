"""One event loop that sends its share of a load.

Conversations are taken one after the other out of an order that all workers share; a worker has
a fixed number of slots, each with a connection of its own. So all slots of a closed loop are
busy, and the server sees them so, while conversations last.
"""

import asyncio
import gc
from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time

import aiohttp

from speedstudy.client.exchange import Exchange, Failure
from speedstudy.client.journal import Journal
from speedstudy.client.link import Link
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.client.outbox import Outbox, completion_url
from speedstudy.client.slot import CONNECT_ERRORS, Slot
from speedstudy.dialects import Dialect

# Exchanges that have ended are written down in pieces of a millisecond or so: in a closed loop
# that keeps step, a thousand end at once, and their next first tokens are on the way.
WRITE_AFTER_S = 0.005
WRITTEN_AT_A_TIME = 16
TICK_S = 0.25  # limits on waiting are held to within this
LAG_SAMPLE_EVERY_S = 0.02
CONNECTIONS_AT_A_TIME = 64  # below the backlog of ordinary servers

# What a worker tells of itself while it runs, a number each; NEWEST is a place in its journal.
DONE, FAILED, IN_FLIGHT, READS, NEWEST = range(5)
TOLD = 5


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one worker needs to know; plain data, to be sent to another process.

    Attributes:
        name: Its own.
        journal: Its journal file.
        options: The load.
        dialect: The server's wire format.
        outbox: File of the raw first requests.
        bounds: Where each begins in it.
        conversations: By place of the prompt the ids to append before each turn, for prompts of
            several turns.
        jobs: Number of conversations; None: until the duration is over.
        due_s: When each is due, in seconds from the start; None in a closed loop.
        slot_starts_s: When each slot of this worker begins, in seconds from the start.
    """

    name: str
    journal: Path
    options: LoadOptions
    dialect: Dialect
    outbox: Path
    bounds: "array[int]"
    conversations: Mapping[int, tuple[tuple[int, ...], ...]]
    jobs: int | None
    due_s: Sequence[float] | None
    slot_starts_s: Sequence[float]


@dataclass(kw_only=True)
class WorkerReport:
    """What a worker knows of itself at the end.

    Attributes:
        name: Its name.
        cpu_s: CPU time of its process from the start to its last exchange.
        span_s: Seconds between them.
        connections: Connections that it opened.
        lags_ms: By how much its event loop woke later than asked.
        error: Why it stopped by itself, or None.
    """

    name: str
    cpu_s: float = 0.0
    span_s: float = 0.0
    connections: int = 0
    lags_ms: list[float] = field(default_factory=list)
    error: str | None = None


class Worker:
    """A worker: ``connect``, then ``run``, once.

    Attributes:
        share: Its share of the load.
        report: What it knows of itself.
        url: Where it sends.
        start_s: When the load began (``time.perf_counter``).
        stop_reason: Why it was cut short, or None.
    """

    def __init__(self, share: Share, take: Callable[[], int], told: MutableSequence[float]) -> None:
        """Prepare a worker; an event loop must be running.

        Args:
            share: Its share of the load.
            take: Gives the next place in the order that all workers share, from 0.
            told: Receives its ``TOLD`` numbers now and then.
        """
        self.share = share
        self.report = WorkerReport(name=share.name)
        self.url = completion_url(share.options, share.dialect)
        self.start_s = 0.0
        self.stop_reason: str | None = None
        self._take = take
        self._told = told
        self._outbox = Outbox(share.outbox, share.bounds)
        self._journal = Journal(share.journal)
        self._ended: deque[Exchange] = deque()
        self._done = self._failed = self._reads = 0
        self._slots = [Slot(self, start_s) for start_s in share.slot_starts_s]
        self._working = len(self._slots)
        self._tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = loop.create_future()
        self._connector = aiohttp.TCPConnector(limit=0)
        self._request = aiohttp.ClientRequest("POST", self.url, loop=loop)
        self._timeout = aiohttp.ClientTimeout(total=None, connect=share.options.timeouts.connect_s)

    async def connect(self) -> None:
        """Open the connections of all slots.

        One that cannot be had is left to the slot's first request, which then says why.
        """
        self._outbox.touch()
        gate = asyncio.Semaphore(CONNECTIONS_AT_A_TIME)

        async def one(slot: Slot) -> None:
            async with gate:
                with suppress(*CONNECT_ERRORS):
                    await slot.renew()

        await asyncio.gather(*map(one, self._slots))
        gc.collect()
        gc.freeze()  # what lives already is not searched again while the clock runs

    async def run(self, start_s: float) -> WorkerReport:
        """Begin at ``start_s`` (``time.perf_counter``) and work until nothing is left to send."""
        self.start_s = start_s
        while (left_s := start_s - perf_counter()) > 0:  # uvloop's timers are in whole ms
            await asyncio.sleep(left_s)
        cpu_s = process_time()
        helpers = [asyncio.create_task(self._tick()), asyncio.create_task(self._sample_lag())]
        try:
            for slot in self._slots:
                slot.begin()
            await self._finished
        finally:
            self.report.cpu_s = process_time() - cpu_s
            self.report.span_s = perf_counter() - start_s
            self._write(len(self._ended))
            self._tell()
            gc.unfreeze()
            await self._close([*helpers, *self._tasks])
        return self.report

    def stop(self, reason: str) -> None:
        """End the load now: open requests are cut and keep what they have received."""
        if self.stop_reason is None:
            self.stop_reason = reason
            for slot in self._slots:
                slot.stop(Failure("cancelled", reason))

    async def _close(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for slot in self._slots:
            slot.link.close()
        await self._connector.close()
        self._journal.close()
        self._outbox.close()

    # What slots ask for.

    def next_job(self) -> int | None:
        """Return the next conversation to send, or None if none is left."""
        if self.stop_reason is not None:
            return None
        job, share = self._take(), self.share
        if share.jobs is not None:
            return job if job < share.jobs else None
        assert share.options.duration_s is not None
        return job if perf_counter() < self.start_s + share.options.duration_s else None

    def due_s(self, job: int) -> float | None:
        """Return when a conversation is due (``time.perf_counter``); None in a closed loop."""
        due_s = self.share.due_s
        return None if due_s is None else self.start_s + due_s[job]

    def first_request(self, job: int) -> bytes:
        """Return the raw request of a conversation's first turn."""
        return self._outbox[job % len(self._outbox)]

    def turns(self, job: int) -> tuple[tuple[int, ...], ...]:
        """Return the ids to append before each turn; empty for a conversation of one turn."""
        return self.share.conversations.get(job % len(self._outbox), ())

    async def open_link(self, link: Link) -> None:
        """Open a link's connection; raises what ``Link.connect`` raises."""
        await link.connect(self._connector, self._request, self._timeout)
        self.report.connections += 1

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run a coroutine beside the slots."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def keep(self, exchange: Exchange, status: int | None) -> None:
        """Have an exchange that has ended written into the journal."""
        self._done += 1
        self._failed += exchange.failure is not None or status != 200
        self._reads += len(exchange.reads)
        if not self._ended:
            asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._write_some)
        self._ended.append(exchange)

    def slot_done(self) -> None:
        """Take in that a slot has nothing more to send."""
        self._working -= 1
        if not self._working:
            self._finished.set_result(None)

    # What runs beside them.

    def _write_some(self) -> None:
        """Write a part of what has ended, and see to the rest a little later."""
        self._write(max(WRITTEN_AT_A_TIME, len(self._ended) // 16))
        if self._ended:
            asyncio.get_running_loop().call_later(WRITE_AFTER_S, self._write_some)

    def _write(self, count: int) -> None:
        try:
            while self._ended and count:
                self._journal.append(self._ended.popleft())
                count -= 1
        except OSError as error:
            self._ended.clear()
            self.report.error = f"{self.share.journal} cannot be written: {error}"
            self.stop(self.report.error)

    async def _tick(self) -> None:
        """Hold requests to the limits on waiting, and tell how far the load is.

        The limits are read off stamps that are there anyway, so they cost the hot path nothing.
        """
        while True:
            await asyncio.sleep(TICK_S)
            now = perf_counter()
            for slot in self._slots:
                text = overdue(slot.link, now, self.share.options.timeouts)
                if text is not None:
                    slot.link.abort(Failure("timeout", text))
            self._tell()

    async def _sample_lag(self) -> None:
        while True:
            due_s = perf_counter() + LAG_SAMPLE_EVERY_S
            await asyncio.sleep(LAG_SAMPLE_EVERY_S)
            self.report.lags_ms.append(max(0.0, (perf_counter() - due_s) * 1000))

    def _tell(self) -> None:
        open_ones = [slot.link.exchange for slot in self._slots if slot.link.exchange]
        self._told[DONE] = self._done
        self._told[FAILED] = self._failed
        self._told[IN_FLIGHT] = len(open_ones)
        self._told[READS] = self._reads + sum(len(exchange.reads) for exchange in open_ones)
        self._told[NEWEST] = self._journal.newest


def overdue(link: Link, now_s: float, limits: Timeouts) -> str | None:
    """Return which limit the open exchange of a link has crossed, in words, or None."""
    exchange = link.exchange
    if exchange is None or exchange.sent_s is None:
        return None
    if now_s - exchange.sent_s > limits.total_s:
        return f"not finished {limits.total_s:g} s after it was sent"
    if not link.answered():
        if now_s - exchange.sent_s > limits.first_token_s:
            return f"no first token {limits.first_token_s:g} s after it was sent"
    elif now_s - exchange.read_s[-1] > limits.between_tokens_s:
        return f"no more tokens {limits.between_tokens_s:g} s after the last"
    return None
