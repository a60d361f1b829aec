"""Start an engine and wait until it has answered a real request; end it on leaving.

What a measurement of its own (``run_cell``) and the supervisor of a session (``serve_engine``) have
in common.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from speedstudy.client.load import run_load
from speedstudy.client.options import LoadOptions
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.engines import ENGINES
from speedstudy.engines.kind import EngineKind, LaunchRequest
from speedstudy.engines.process import (
    PID_FILE,
    POLL_S,
    EngineError,
    EngineProcess,
    free_port,
    log_tail,
    running,
    wait_healthy,
)
from speedstudy.engines.session import Served
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine
from speedstudy.telemetry import gpus_before
from speedstudy.workload import Prompt

LOG = logging.getLogger(__name__)
STARTUP_TIMEOUT_S = 1800.0  # a 400B model over a network file system
# An engine that fails at a request answers that it did, or breaks off, before it has ended.
DEATH_TIMEOUT_S = 10.0
PROBE_TOKENS = 32  # any prompt proves that it answers; a long one costs a prefill


@dataclass(frozen=True, kw_only=True)
class Start:
    """What to start.

    Attributes:
        cfg: The session as JSON: ``engine``, ``target`` and ``drafter``; other keys are ignored.
        command: How the engine's server is called up to its flags; None: its usual command.
        model: Folder of the target in the engine's format.
        draft_model: Folder of the drafter's weights in the engine's format, or None.
        max_concurrency: Most requests in flight that it must hold.
        folder: Folder for its files; ``engine.pid.json`` there says who runs it.
        log: Receives its output.
        timeout_s: Longest time to a healthy engine.
    """

    cfg: Mapping[str, Any]
    command: Sequence[str] | None
    model: Path
    draft_model: Path | None
    max_concurrency: int
    folder: Path
    log: Path
    timeout_s: float


def add_start_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare what ``start_of`` reads; not ``required``: the engine may already be there."""
    parser.add_argument(
        "--model",
        type=Path,
        required=required,
        help="folder of the target in the engine's format",
    )
    parser.add_argument(
        "--draft-model", type=Path, help="folder of the drafter's weights in the engine's format"
    )
    parser.add_argument(
        "--engine-command",
        type=json.loads,
        help="how the engine's server is called up to its flags, a JSON list; null: as usual",
    )
    parser.add_argument(
        "--engine-log", type=Path, required=required, help="receives the engine's log"
    )
    parser.add_argument(
        "--startup-timeout-s",
        type=float,
        default=STARTUP_TIMEOUT_S,
        help="longest time to a healthy engine, in seconds (default %(default)g)",
    )


def start_of(arguments: argparse.Namespace, *, max_concurrency: int, folder: Path) -> Start:
    """Return what the arguments ask to be started; ``config`` among them is the session."""
    return Start(
        cfg=arguments.config,
        command=arguments.engine_command,
        model=arguments.model,
        draft_model=arguments.draft_model,
        max_concurrency=max_concurrency,
        folder=folder,
        log=arguments.engine_log,
        timeout_s=arguments.startup_timeout_s,
    )


@contextmanager
def started(start: Start, prompts: Sequence[Prompt]) -> Iterator[Served]:
    """Run an engine that has answered; its process group is ended on leaving.

    Args:
        start: What to start.
        prompts: What will be measured; the first gives the ids of the request that must succeed.

    Raises:
        EngineError: It did not start or did not answer, or is not the version that is asked for.
        KeyboardInterrupt: SIGINT or SIGTERM came while it was asked.
    """
    engine = Engine(**{**start.cfg["engine"], "command": start.command})
    drafter = Drafter(**start.cfg["drafter"])
    target, kind = start.cfg["target"], ENGINES[engine.kind]
    port = free_port()
    launch = kind.launch(
        LaunchRequest(
            engine=engine,
            drafter=drafter,
            model=start.model,
            draft_model=start.draft_model,
            folder=start.folder,
            context_length=target["context_length"],
            served_model_name=target["name"],
            port=port,
            max_concurrency=start.max_concurrency,
            known_flags=kind.probe(engine, drafter) if kind.probe else frozenset(),
        )
    )
    try:
        gpus = gpus_before(engine.gpus)
    except ValueError as error:
        raise EngineError(str(error)) from error
    started_s = time.monotonic()
    pid_file = start.folder / PID_FILE
    with running(launch, port=port, log=start.log, pid_file=pid_file) as process:
        wait_healthy(process, start.timeout_s)
        version = _version(process, kind, engine)
        _answer_one(process, target["name"], prompts, kind)
        startup_s = round(time.monotonic() - started_s, 3)
        LOG.info("engine ready after %.1f s", startup_s)
        yield Served(
            url=process.url,
            pid=process.process.pid,
            facts={
                "name": engine.name,
                "version": version,
                "precision": engine.precision,
                "threads": engine.threads,
                "max_concurrency": start.max_concurrency,
                "command": list(launch.argv),
                "environment": dict(launch.environment),
                "startup_s": startup_s,
                "gpus_before": gpus,
                "log": str(start.log),
            },
            died=process.died,
        )


def _version(process: EngineProcess, kind: EngineKind, engine: Engine) -> str:
    """The version that answers.

    Raises:
        EngineError: It does not tell, or is not the one that the study asks for.
    """
    try:
        running_version = kind.version(process.url)
    except (OSError, ValueError, LookupError) as error:
        raise EngineError(
            process.died() or f"{engine.name} does not tell its version: {error!r}"
        ) from error
    if engine.version not in (None, running_version):
        raise EngineError(
            f"{engine.name} {running_version} answers, the study asks for {engine.version}; "
            "install that one or change the engine's version in the study"
        )
    return running_version


def _answer_one(
    process: EngineProcess, model: str, prompts: Sequence[Prompt], kind: EngineKind
) -> None:
    """Send one real request: a healthy route proves little (vLLM's stays green when it fails).

    The ids are the first of a measured prompt turned round, so that nothing measured gets cached.

    Raises:
        EngineError: It did not give a token.
    """
    backwards = Prompt(
        prompt_id="health",
        category=None,
        turn_token_ids=(prompts[0].turn_token_ids[0][:PROBE_TOKENS][::-1],),
    )
    # More than the prefill's token, so that a drafter drafts and the target verifies.
    few_tokens = Sampling(max_tokens=4, temperature=0.0, ignore_eos=True)
    probe = LoadOptions(url=process.url, model=model, concurrency=1, sampling=few_tokens)
    with TemporaryDirectory() as folder:
        result = run_load(probe, [backwards], [], DIALECTS[kind.dialect], Path(folder))
    if result.interrupted is not None:
        raise KeyboardInterrupt(result.interrupted)
    failure = result.failure()
    if failure is None:
        return
    deadline = time.monotonic() + DEATH_TIMEOUT_S
    while (death := process.died()) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    raise EngineError(
        f"the engine was healthy and ended at its first request: {death}"
        if death
        else f"the engine is healthy but does not answer: {failure}; its log ends with: "
        f"{log_tail(process.log)}"
    )
