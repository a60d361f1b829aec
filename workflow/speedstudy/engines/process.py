"""Start, watch and end one engine process."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from speedstudy.engines import guard
from speedstudy.engines.kind import Launch
from speedstudy.records import write_json

STOP_GRACE_S = 10.0
POLL_S = 0.1
LOG_TAIL_LINES = 8
LOG_ERRORS = 3
ERROR = re.compile(r"\b[\w.]+(?:Error|Exception): .+")
BUILT_BY_MAKE = {f".engines/{name}": f"make engine-{name}" for name in ("llamacpp", "vllm-cpu")}
PID_FILE = "engine.pid.json"  # who runs here, so that `recover` can end stragglers

Identity = Mapping[str, float]  # pid, and started: seconds since the epoch


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
    """Return the last lines of a log on one line, and before them the last errors further up.

    An engine of several processes goes on to say a lot after the one that matters has died.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    further_up = (ERROR.search(line) for line in lines[:-LOG_TAIL_LINES])
    errors = list(dict.fromkeys(found[0] for found in further_up if found))
    told = [*errors[-LOG_ERRORS:], *lines[-LOG_TAIL_LINES:]]
    return " | ".join(line.strip() for line in told if line.strip()) or "nothing"


def free_port() -> int:
    """Return a free TCP port on the loopback interface.

    ``SPEEDSTUDY_ENGINE_PORT`` fixes it, for firewalls and containers.

    Raises:
        EngineError: The fixed port is no number, or is taken: another server there would answer in
            the engine's place and be measured for it.
    """
    told = os.environ.get("SPEEDSTUDY_ENGINE_PORT", "0")
    if not told.isdecimal():
        raise EngineError(f"SPEEDSTUDY_ENGINE_PORT is {told!r}; set it to a TCP port or unset it")
    fixed = int(told)
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


def require_command(program: str) -> None:
    """Check that the first word of a command line can be run.

    Raises:
        EngineError: It cannot; the message says how to get it, where we know.
    """
    if shutil.which(program) is not None:
        return
    for folder, target in BUILT_BY_MAKE.items():
        if Path(program).is_relative_to(folder):
            raise EngineError(f"there is no {program}; `{target}` builds it")
    raise EngineError(
        f"there is no {program}; install it (docs/engines.md), or set `command` of the engine"
    )


@contextmanager
def running(launch: Launch, *, port: int, log: Path, pid_file: Path) -> Iterator[EngineProcess]:
    """Run an engine in its own process group and end the whole group on leaving.

    Args:
        launch: Command line, environment and files.
        port: The port that the command line names.
        log: Receives stdout and stderr, after one line with the command.
        pid_file: Holds who runs it while it runs.

    Raises:
        EngineError: The engine is not installed.
    """
    require_command(launch.argv[0])
    # -P: beside the guard lie modules of ours, which are none of its business.
    command = [sys.executable, "-P", guard.__file__, str(os.getpid()), *launch.argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    for path, text in launch.files.items():
        path.write_text(text, encoding="utf-8")
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
        write_json(pid_file, {"owner": identity(os.getpid()), "engine": identity(process.pid)})
        yield EngineProcess(process=process, url=f"http://127.0.0.1:{port}", log=log)
    finally:
        _end_group(process)
        pid_file.unlink(missing_ok=True)


@contextmanager
def owned(pid_file: Path) -> Iterator[None]:
    """Name this process, which has no engine of its own, in a file while inside."""
    write_json(pid_file, {"owner": identity(os.getpid())})
    try:
        yield
    finally:
        pid_file.unlink(missing_ok=True)


def identity(pid: int) -> Identity:
    """Return the pid with its start time, so that a reused pid is not taken for ours."""
    try:
        return {"pid": pid, "started": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:  # ended at once; `died` will say so
        return {"pid": pid, "started": 0.0}


def is_alive(one: Identity) -> bool:
    """Return whether this very process still runs; one that only waits to be reaped does not."""
    try:
        process = psutil.Process(int(one["pid"]))
        started: float = process.create_time()
        ended: bool = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return started == one["started"] and not ended


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
