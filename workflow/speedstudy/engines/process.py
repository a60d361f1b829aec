"""Start, watch and end one engine process."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from speedstudy.engines.kind import Launch
from speedstudy.records import write_json

STOP_GRACE_S = 10.0
POLL_S = 0.1
LOG_TAIL_LINES = 8


class EngineError(Exception):
    """The engine did not start, did not answer or died; the message says what its log says."""


@dataclass(frozen=True, kw_only=True)
class EngineProcess:
    """A started engine.

    Attributes:
        process: The process; its group holds all that it started.
        url: Base URL on the loopback interface.
        log: File of its stdout and stderr.
    """

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def died(self) -> str | None:
        """Return what to say about an engine that has ended, None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"the engine ended with {how}; its log ends with: {log_tail(self.log)}"


def log_tail(log: Path) -> str:
    """Return the last lines of a log on one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " | ".join(line.strip() for line in lines[-LOG_TAIL_LINES:] if line.strip()) or "nothing"


def free_port() -> int:
    """Return a free TCP port on the loopback interface.

    ``SPEEDSTUDY_ENGINE_PORT`` fixes it, for firewalls and containers.

    Raises:
        EngineError: The fixed port is taken. Another server there would answer in the engine's
            place and be measured for it.
    """
    fixed = int(os.environ.get("SPEEDSTUDY_ENGINE_PORT", "0"))
    with socket.socket() as probe:
        # As servers do: a port that is only lingering after its last connection is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", fixed))
        except OSError as error:
            raise EngineError(
                f"port {fixed} is taken ({error.strerror}); end what listens there or change "
                "SPEEDSTUDY_ENGINE_PORT"
            ) from error
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(launch: Launch, *, port: int, log: Path, pid_file: Path) -> Iterator[EngineProcess]:
    """Run an engine in its own process group and end the whole group on leaving.

    Args:
        launch: Command line and environment.
        port: The port that the command line names.
        log: Receives stdout and stderr, after one line with the command.
        pid_file: Holds who runs it while it runs, so that ``recover`` can end stragglers.
    """
    command = [sys.executable, "-m", "speedstudy.engines.guard", str(os.getpid()), *launch.argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        sink.write(f"$ {shlex.join(launch.argv)}\n".encode())
        sink.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **launch.environment},
            start_new_session=True,
        )
    try:
        write_json(pid_file, {"owner": _identity(os.getpid()), "engine": _identity(process.pid)})
        yield EngineProcess(process=process, url=f"http://127.0.0.1:{port}", log=log)
    finally:
        _end_group(process)
        pid_file.unlink(missing_ok=True)


def _identity(pid: int) -> dict[str, float]:
    """Return the pid with its start time, so that a reused pid is not taken for ours."""
    try:
        return {"pid": pid, "started": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:  # ended at once; `died` will say so
        return {"pid": pid, "started": 0.0}


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for sign, grace_s in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, STOP_GRACE_S)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def wait_healthy(engine: EngineProcess, timeout_s: float) -> None:
    """Wait until ``/health`` answers 200.

    Raises:
        EngineError: The engine ended, or the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        death = engine.died()
        if death is not None:
            raise EngineError(death)
        try:
            with urllib.request.urlopen(f"{engine.url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(POLL_S)
    raise EngineError(
        f"the engine was not healthy after {timeout_s:.0f} s; its log ends with: "
        f"{log_tail(engine.log)}"
    )


def ask_json(url: str, timeout_s: float = 10.0) -> Any:
    """Return what a route of a running engine answers, as parsed JSON.

    Raises:
        OSError: It does not answer, or not with a good status.
        ValueError: The answer is not JSON.
    """
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:
        return json.load(answer)
