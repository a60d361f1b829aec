"""The workers of a load: one in this process, or several in processes of their own.

Either kind is used alike: ``ready`` (workers are up), ``connect`` (their connections are open),
``run`` (they all begin at one time). Times of all processes are of one clock, see ``Exchange``.
"""

import asyncio
import itertools
import math
import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Protocol

import uvloop

from speedstudy.client.worker import TOLD, Share, Worker, WorkerReport

# One event loop keeps up with about a thousand streams of a hundred chunks a second
# (``benchmarks/client``); the server, or its client side, needs the other cores.
STREAMS_A_PROCESS = 1024
START_AHEAD_S = 0.05  # for the news of the start to reach every process
STOP_GRACE_S = 10.0


def default_processes(concurrency: int, cores: int | None = None) -> int:
    """Return one process for each 1,024 requests in flight, at most one for two cores.

    Args:
        concurrency: Requests in flight.
        cores: Cores that may be used; None asks the system.
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0))
    return max(1, min(math.ceil(concurrency / STREAMS_A_PROCESS), cores // 2))


class Crew(Protocol):
    """Workers, however they run.

    Attributes:
        told: What they tell of themselves, ``TOLD`` numbers each, in the order of the shares.
    """

    told: Sequence[float]

    async def ready(self) -> None:
        """Wait until the workers are up."""

    async def connect(self) -> None:
        """Open the connections of all workers."""

    async def run(self, start_s: float) -> list[WorkerReport]:
        """Run the load from ``start_s`` (``time.perf_counter``) on; returns the reports."""

    def stop(self, reason: str) -> None:
        """End the load now."""

    def close(self) -> None:
        """Leave nothing behind."""


class LocalCrew:
    """One worker in this process."""

    def __init__(self, share: Share) -> None:
        told = [0.0] * TOLD
        self.told: Sequence[float] = told
        self._worker = Worker(share, itertools.count().__next__, told)

    async def ready(self) -> None:
        """Nothing is to be waited for."""

    async def connect(self) -> None:
        """Open the connections."""
        await self._worker.connect()

    async def run(self, start_s: float) -> list[WorkerReport]:
        """Run the load."""
        return [await self._worker.run(start_s)]

    def stop(self, reason: str) -> None:
        """End the load now."""
        self._worker.stop(reason)

    def close(self) -> None:
        """Nothing is left."""


class ProcessCrew:
    """A process for each share. They are spawned: a fork would copy a running event loop."""

    def __init__(self, shares: Sequence[Share]) -> None:
        context = multiprocessing.get_context("spawn")
        self.told: Any = context.RawArray("d", TOLD * len(shares))
        self._order = context.Value("q", 0)
        self._links: list[Connection] = []
        self._processes = []
        self._names = [share.name for share in shares]
        self._threads = ThreadPoolExecutor(len(shares))
        for index, share in enumerate(shares):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=work_in_process,
                args=(theirs, share, index, self._order, self.told),
                daemon=True,
            )
            process.start()
            theirs.close()
            self._links.append(ours)
            self._processes.append(process)

    async def ready(self) -> None:
        """Wait until all have loaded their code and share."""
        await self._answers()

    async def connect(self) -> None:
        """Open the connections."""
        self._tell("connect")
        await self._answers()

    async def run(self, start_s: float) -> list[WorkerReport]:
        """Run the load; a process that dies ends it for all."""
        self._tell("start", start_s)
        return await self._answers()

    def stop(self, reason: str) -> None:
        """End the load now."""
        self._tell("stop", reason)

    def close(self) -> None:
        """End what still runs."""
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()
        for link in self._links:
            link.close()
        self._threads.shutdown()

    def _tell(self, *words: Any) -> None:
        for link in self._links:
            with suppress(OSError):  # who died says so in its answer
                link.send(words)

    async def _answers(self) -> list[Any]:
        return list(await asyncio.gather(*map(self._answer, range(len(self._links)))))

    async def _answer(self, index: int) -> Any:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._links[index].recv)
        except (EOFError, OSError):
            process, name = self._processes[index], self._names[index]
            process.join(1)
            error = f"client process {name} died (exit status {process.exitcode})"
            self.stop(error)
            loop.call_later(STOP_GRACE_S, self._kill)  # it may have died holding what others need
            return WorkerReport(name=name, error=error)

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


def work_in_process(
    link: Connection, share: Share, index: int, order: "Synchronized[int]", told: Any
) -> None:
    """Be a worker: the whole life of a client process.

    Signals are the parent's to handle, who says over ``link`` when to stop; a parent that died
    says so by closing it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    uvloop.run(_work(link, share, index, order, told))


async def _work(
    link: Connection, share: Share, index: int, order: "Synchronized[int]", told: Any
) -> None:
    def take() -> int:
        with order.get_lock():
            order.value += 1
            return order.value - 1

    mine = memoryview(told).cast("B").cast("d")[TOLD * index : TOLD * (index + 1)]
    worker = Worker(share, take, mine)  # type: ignore[arg-type]
    orders: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    def listen() -> None:
        try:
            words = link.recv()
        except (EOFError, OSError):
            words = ("stop", "the process that ran the load died")
            loop.remove_reader(link.fileno())
        if words[0] == "stop":
            worker.stop(words[1])
        orders.put_nowait(words)

    loop = asyncio.get_running_loop()
    loop.add_reader(link.fileno(), listen)
    _answer(link, None)
    while True:
        word, *rest = await orders.get()
        if word == "connect":
            await worker.connect()
            _answer(link, None)
        elif word == "start":
            _answer(link, await worker.run(rest[0]))
        else:
            return


def _answer(link: Connection, answer: Any) -> None:
    with suppress(OSError):  # nobody is there to hear it
        link.send(answer)


def start_crew(shares: Sequence[Share]) -> Crew:
    """Return the workers of a load: in this process if there is one."""
    return LocalCrew(shares[0]) if len(shares) == 1 else ProcessCrew(shares)
