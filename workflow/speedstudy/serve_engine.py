"""Keep one engine up for all loads of its session: the supervisor.

Tells in the endpoint file where the engine is, or why there is none, and stays until it is ended
(SIGTERM, SIGINT, or with the process that started it), also when the engine has died: a supervisor
that ended earlier would take the session's other measurements down with it. A dead engine is not
started again: what it had measured and what follows would come from two processes under one name.
The remaining loads fail with the reason, and the next run tries them with a new engine.
"""

import argparse
import json
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from speedstudy.engine_start import add_start_arguments, start_of, started
from speedstudy.engines.guard import die_with_parent
from speedstudy.engines.process import PID_FILE, EngineError, identity, is_alive
from speedstudy.engines.session import (
    POLL_S,
    SESSION_PARTS,
    Endpoint,
    State,
    forget_finished,
    is_locked,
    write_endpoint,
)
from speedstudy.workload import read_workload

LOG = logging.getLogger(__name__)
STOPPING_TIMEOUT_S = 60.0  # more than an engine is given to end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config",
        type=json.loads,
        required=True,
        help="the session as JSON: engine, target, drafter, max_concurrency",
    )
    parser.add_argument(
        "--workload", type=Path, required=True, help="gives the ids of the first request"
    )
    parser.add_argument(
        "--endpoint", type=Path, required=True, help="file to tell in; its folder is the session's"
    )
    add_start_arguments(parser, required=True)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Serve until ended; returns what was told last: state and reason."""
    serves = {name: arguments.config[name] for name in SESSION_PARTS}
    supervisor = Supervisor(arguments.endpoint, serves)
    signal.signal(signal.SIGTERM, supervisor.end)
    signal.signal(signal.SIGINT, supervisor.end)
    try:
        if die_with_parent(os.getppid(), signal.SIGINT):
            _supervise(supervisor, arguments)
    except KeyboardInterrupt:
        LOG.info("ended")
    if supervisor.is_over:
        forget_finished(arguments.endpoint)
    return {"state": supervisor.told.state, "reason": supervisor.told.reason}


class Supervisor:
    """What is told of a session; from the beginning, so that whoever waits for the file sees it.

    Attributes:
        told: The last state.
        is_over: Whether it was ended since no load is left, and not cut short.
    """

    def __init__(self, endpoint: Path, serves: Mapping[str, Any]) -> None:
        endpoint.parent.mkdir(parents=True, exist_ok=True)
        self._endpoint = endpoint
        self.is_over = False
        self.told = Endpoint(state="starting", supervisor=identity(os.getpid()), serves=serves)
        write_endpoint(endpoint, self.told)

    def tell(self, state: State, **what: Any) -> None:
        """Tell a new state."""
        fields = {"reason": None, "url": None, "engine": None, "facts": None, **what}
        self.told = replace(self.told, state=state, **fields)
        write_endpoint(self._endpoint, self.told)
        LOG.info("%s %s", state, self.told.reason or self.told.url)

    def end(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: leave by way of every ``finally``, which no second one may cut short.

        Snakemake sends SIGTERM when the last load is done. SIGINT comes from the keyboard, or when
        Snakemake has ended itself.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.is_over = number == signal.SIGTERM and not is_locked(self._endpoint)
        raise KeyboardInterrupt


def _supervise(supervisor: Supervisor, arguments: argparse.Namespace) -> None:
    """Start the engine, tell how it is, and stay until KeyboardInterrupt."""
    start = start_of(
        arguments,
        max_concurrency=arguments.config["max_concurrency"],
        folder=arguments.endpoint.parent,
    )
    try:
        wait_for_ending_engines(arguments.endpoint, STOPPING_TIMEOUT_S)
        with started(start, read_workload(arguments.workload)) as served:
            supervisor.tell(
                "ready", url=served.url, engine=identity(served.pid), facts=served.facts
            )
            while (death := served.died()) is None:
                time.sleep(POLL_S)
            supervisor.tell("died", reason=death)
    except (EngineError, ValueError) as error:
        supervisor.tell("failed", reason=str(error))
    while True:
        signal.pause()


def wait_for_ending_engines(endpoint: Path, timeout_s: float) -> None:
    """Wait until the engines of sessions that are over have ended.

    Snakemake ends a supervisor when the last load is done, removes its endpoint file, and starts
    what comes next without waiting: on a GPU the old engine would still hold the memory.

    Raises:
        EngineError: One of them stays.
    """
    deadline = time.monotonic() + timeout_s
    for pid_file in sorted(endpoint.parent.parent.glob(f"*/{PID_FILE}")):
        in_use = (pid_file.parent / endpoint.name).exists()
        if in_use and pid_file.parent != endpoint.parent:
            continue
        try:
            processes = json.loads(pid_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        while any(map(is_alive, processes.values())):
            if time.monotonic() > deadline:
                raise EngineError(
                    f"the engine of session {pid_file.parent.name} does not end "
                    f"(pid {processes['engine']['pid']}); end it and start again"
                )
            time.sleep(POLL_S)
