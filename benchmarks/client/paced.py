"""The paced server as a process: its start, what it saw, and the CPU time of who talks to it."""

import json
import queue
import subprocess
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

POLL_EVERY_S = 0.25
PAUSE_S = 0.5


@dataclass(frozen=True)
class Period:
    """One time from the first request to a pause with nothing in flight.

    Attributes:
        stats: The server's ``/stats`` of it.
        cpu_s: CPU time of the client's whole process tree from its first request to its last.
        rss_mib: Memory of that tree at its last request, shared pages counted for each process.
    """

    stats: dict[str, Any]
    cpu_s: float
    rss_mib: float


class ProcessTree:
    """CPU time of a process and all that it started, also of those that have ended since.

    Looking for processes takes milliseconds, reading those that are known does not: the search
    is repeated only while nothing is measured.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._known = [self._root]

    def search(self) -> None:
        try:
            self._known = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            self._known = []

    def cpu_s(self) -> float:
        """Seconds, to the kernel's tick of 10 ms; ended children count at who waited for them."""
        total = 0.0
        for process in self._known:
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return total

    def rss_mib(self) -> float:
        total = 0
        for process in self._known:
            try:
                total += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total / 2**20


class PacedServer:
    """A fresh server for one run of one client.

    Args:
        binary: ``paced_server`` as ``make`` leaves it.
        flags: Its flags, without the port.
    """

    url: str

    def __init__(self, binary: Path, flags: list[str]) -> None:
        self._command = [str(binary), "--port", "0", *flags]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._periods: list[Period] = []
        self._busy = threading.Event()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = "http://" + self._process.stdout.readline().split()[-1]
        threading.Thread(target=self._read_lines, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def watch(self, command: list[str], timeout_s: float, **options: Any) -> tuple[int, float]:
        """Run a client to its end; return its exit status and the CPU seconds of its whole life.

        A client that runs into the time limit is killed with all that it started, and its status
        is that of a killed process.
        """
        before_s = _children_cpu_s()
        with subprocess.Popen(command, **options) as client:
            self._tree = ProcessTree(client.pid)
            threading.Thread(target=self._follow, daemon=True).start()
            deadline = time.monotonic() + timeout_s
            while client.poll() is None and time.monotonic() < deadline:
                if not self._busy.is_set():
                    self._tree.search()
                time.sleep(POLL_EVERY_S)
            if client.poll() is None:
                for process in [*psutil.Process(client.pid).children(recursive=True), client]:
                    process.kill()
            status = client.wait()
            while self._busy.is_set():
                time.sleep(POLL_EVERY_S)
        return status, _children_cpu_s() - before_s

    def measured(self) -> Period | None:
        """The period with the most requests: a client's probes and warm-ups are others."""
        return max(self._periods, key=lambda period: period.stats["finished"], default=None)

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _follow(self) -> None:
        """Turn the server's lines into periods.

        A closed loop whose replies end together is idle for a moment between its rounds: only a
        pause of ``PAUSE_S`` ends a period. CPU time is read at once, the rest after the pause.
        """
        begin_s = end_s = rss_mib = 0.0
        idle = True
        while True:
            try:
                line = self._lines.get(timeout=PAUSE_S if idle and self._busy.is_set() else None)
            except queue.Empty:
                self._finish_period(end_s - begin_s, rss_mib)
                continue
            if line is None:
                return
            idle = line.startswith("idle")
            if idle:
                end_s, rss_mib = self._tree.cpu_s(), self._tree.rss_mib()
            elif not self._busy.is_set():
                begin_s = self._tree.cpu_s()
                self._busy.set()

    def _finish_period(self, cpu_s: float, rss_mib: float) -> None:
        stats = json.loads(self._request("GET", "/stats"))
        self._request("POST", "/stats/reset")
        self._periods.append(Period(stats, cpu_s, rss_mib))
        self._busy.clear()

    def _request(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            body: bytes = response.read()
        return body


def _children_cpu_s() -> float:
    """CPU seconds of all ended children of this process and of theirs."""
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)
