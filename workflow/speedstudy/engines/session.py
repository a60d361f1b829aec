"""One engine for all loads of its session: where it is, and whose turn it is.

The supervisor of a session (``serve_engine``) tells of the engine in a file, written whole each
time. The measurements of the session are all started at once; each takes the lock beside that
file, so that one at a time has the engine, and reads there whether it can measure and, if not, why.
"""

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from speedstudy.engines.process import EngineError, Identity, is_alive
from speedstudy.records import RECORD_FILES, write_json

POLL_S = 0.1
FINISHED = "finished"  # folder of the session's, see `keep_finished`
HALF = ".tmp"  # ends the name of a copy that is being made

SESSION_PARTS = ("engine", "target", "drafter")  # of a cell's configuration
State = Literal["starting", "ready", "failed", "died"]
# How long a supervisor may take to tell why its engine ended.
WORD_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """An engine that has answered, whoever started it.

    Attributes:
        url: Its base URL.
        pid: Its process.
        facts: What a record says about it: name, version, command, start-up time and the like.
        died: Returns what to say about an engine that has ended, None while it lives.
    """

    url: str
    pid: int
    facts: Mapping[str, Any]
    died: Callable[[], str | None]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What the supervisor tells.

    Attributes:
        state: ``starting``; ``ready``, after a real answer; ``failed``, it never answered;
            ``died``, it ended while it was needed.
        supervisor: The supervisor's process.
        serves: The session: its engine, target and drafter.
        reason: Why it failed or died.
        url: Base URL, once ready.
        engine: The engine's process, once ready.
        facts: As in ``Served``, once ready.
    """

    state: State
    supervisor: Identity
    serves: Mapping[str, Any]
    reason: str | None = None
    url: str | None = None
    engine: Identity | None = None
    facts: Mapping[str, Any] | None = None


def write_endpoint(path: Path, endpoint: Endpoint) -> None:
    """Write the file; it is replaced whole."""
    write_json(path, asdict(endpoint))


def read_endpoint(path: Path) -> Endpoint:
    """Read the file.

    Raises:
        EngineError: The session is over, so that nobody tells any more.
    """
    try:
        return Endpoint(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise EngineError(f"the session of the engine is over: no {path}") from error


@contextmanager
def lock(endpoint: Path) -> Iterator[None]:
    """Hold the engine alone; waits for whoever has it. A killed holder's lock is free at once."""
    with (endpoint.parent / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(endpoint: Path) -> bool:
    """Return whether some measurement holds the engine, or waits for it."""
    with (endpoint.parent / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def joined(path: Path, wanted: Mapping[str, Any], timeout_s: float) -> Iterator[Served]:
    """Wait for the session's engine and one's turn, and hold the engine while inside.

    Args:
        path: The session's endpoint file.
        wanted: The engine, target and drafter that the measurement is of.
        timeout_s: Longest time to wait for an engine that is starting.

    Raises:
        EngineError: The engine did not start, or ended before this turn.
        ValueError: The session is another one.
    """
    with lock(path):
        endpoint = _settled(path, timeout_s)
        differing = [name for name in SESSION_PARTS if endpoint.serves[name] != wanted[name]]
        if differing:
            raise ValueError(f"{path} serves another {', '.join(differing)}; give its own endpoint")
        reason = _ended(path)
        if endpoint.state == "failed":
            raise EngineError(endpoint.reason or "the engine of the session did not start")
        if reason is not None:
            raise EngineError(f"the engine of the session ended before this load: {reason}")
        if endpoint.url is None or endpoint.engine is None or endpoint.facts is None:
            raise EngineError(f"{path}: ready, but it does not say where the engine is")
        yield Served(
            url=endpoint.url,
            pid=int(endpoint.engine["pid"]),
            facts=endpoint.facts,
            died=lambda: _ended(path),
        )


def _settled(path: Path, timeout_s: float) -> Endpoint:
    """Wait until the engine is no longer starting."""
    deadline = time.monotonic() + timeout_s
    while (endpoint := read_endpoint(path)).state == "starting":
        if not is_alive(endpoint.supervisor):
            raise EngineError("the supervisor of the session ended before its engine was ready")
        if time.monotonic() > deadline:
            raise EngineError(f"the engine of the session was not ready after {timeout_s:.0f} s")
        time.sleep(POLL_S)
    return endpoint


def _ended(path: Path) -> str | None:
    """Return why the session's engine has ended, None while it lives.

    The supervisor is the engine's parent and learns how it ended; until it has said so, the
    missing process is all that is known.
    """
    deadline = time.monotonic() + WORD_TIMEOUT_S
    while True:
        try:
            endpoint = read_endpoint(path)
        except EngineError as error:
            return str(error)
        if endpoint.state != "ready":
            return endpoint.reason
        if endpoint.engine is not None and is_alive(endpoint.engine):
            return None
        if not is_alive(endpoint.supervisor):
            return "its supervisor was ended, and the engine with it"
        if time.monotonic() > deadline:
            return f"its process is gone (pid {(endpoint.engine or {}).get('pid')})"
        time.sleep(POLL_S)


def keep_finished(endpoint: Path, cell: Path) -> None:
    """Copy a finished cell's record beside the endpoint, out of the run's reach.

    To Snakemake the loads of a session are one job: when a run is stopped before the last one,
    it takes all of them for unfinished and removes their outputs.
    """
    copy = endpoint.parent / FINISHED / cell.name
    half = copy.with_name(copy.name + HALF)
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    for name in RECORD_FILES:
        shutil.copy2(cell / name, half)
    shutil.rmtree(copy, ignore_errors=True)
    half.rename(copy)


def forget_finished(endpoint: Path) -> None:
    """Remove the copies; for the end of a session of which no load is left."""
    shutil.rmtree(endpoint.parent / FINISHED, ignore_errors=True)
