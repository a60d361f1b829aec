"""Measure one cell: start the engine, send the workload, end the engine, record.

Computes no metric. A failing engine is a finding, not a crash: it gives a record with
``status: failed`` and the reason, and the command succeeds, so that the other cells go on.
"""

import argparse
import json
import logging
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speedstudy.client.load import LoadOptions, LoadResult, run_load
from speedstudy.config import Drafter, Engine
from speedstudy.coverage import read_note
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.engines import ENGINES
from speedstudy.engines.kind import EngineKind, LaunchRequest
from speedstudy.engines.process import (
    EngineError,
    EngineProcess,
    free_port,
    running,
    wait_healthy,
)
from speedstudy.environment import hardware, software
from speedstudy.records import RECORD_VERSION, write_json, write_requests
from speedstudy.workload import Prompt, digest, read_workload

LOG = logging.getLogger(__name__)
STARTUP_TIMEOUT_S = 1800.0  # a 400B model over a network file system


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config",
        type=json.loads,
        required=True,
        help="the cell as JSON: engine, target, drafter, load, sampling",
    )
    parser.add_argument("--id", required=True, help="the cell's id")
    parser.add_argument("--workload", type=Path, required=True, help="prompts to measure")
    parser.add_argument("--warmup", type=Path, required=True, help="prompts to warm up with")
    parser.add_argument(
        "--model", type=Path, required=True, help="folder of the target in the engine's format"
    )
    parser.add_argument(
        "--draft-model", type=Path, help="folder of the drafter's weights in the engine's format"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--engine-log", type=Path, required=True, help="receives the engine's log")
    parser.add_argument(
        "--startup-timeout-s",
        type=float,
        default=STARTUP_TIMEOUT_S,
        help="longest time to a healthy engine, in seconds (default %(default)g)",
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and write ``requests.parquet``, then ``cell.json``; returns status and reason."""
    cfg = arguments.config
    prompts = read_workload(arguments.workload)
    arguments.out.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "record_version": RECORD_VERSION,
        "status": "failed",
        "reason": None,
        "cell_id": arguments.id,
        "cell": cfg,
        "workload": {
            "name": arguments.workload.stem,
            "digest": digest(prompts),
            "prompts": len(prompts),
            "coverage": read_note(arguments.workload),
        },
        "engine": None,
        "load": None,
        "warmup": None,
        "counters": None,
        "client": None,
        "first_token": DIALECTS[ENGINES[cfg["engine"]["kind"]].dialect].first_token,
        "hardware": hardware(),
        "software": software(),
        "started_at": datetime.now(UTC).isoformat(),
    }
    result: LoadResult | None = None
    try:
        result = _measure(arguments, cfg, prompts, record)
        record["reason"] = record["reason"] or result.failure()
        record["status"] = "ok" if record["reason"] is None else "failed"
    except EngineError as error:
        record["reason"] = str(error)
    record.setdefault("ended_at", datetime.now(UTC).isoformat())
    write_requests(arguments.out / "requests.parquet", result.turns if result else [])
    write_json(arguments.out / "cell.json", record)
    if record["status"] == "failed":
        LOG.error("%s failed: %s", arguments.id, record["reason"])
    if result is not None and result.interrupted is not None:
        raise KeyboardInterrupt(result.interrupted)
    return {"status": record["status"], "reason": record["reason"]}


def _measure(
    arguments: argparse.Namespace,
    cfg: dict[str, Any],
    prompts: list[Prompt],
    record: dict[str, Any],
) -> LoadResult:
    """Run engine and load, filling in the record as it goes.

    Raises:
        EngineError: The engine did not start or did not answer. One that dies later leaves its
            reason in the record and what it had answered in the result.
    """
    engine, drafter = Engine(**cfg["engine"]), Drafter(**cfg["drafter"])
    load, kind = cfg["load"], ENGINES[engine.kind]
    port = free_port()
    launch = kind.launch(
        LaunchRequest(
            engine=engine,
            drafter=drafter,
            model=arguments.model,
            draft_model=arguments.draft_model,
            served_model_name=cfg["target"]["name"],
            port=port,
            max_concurrency=load["concurrency"],
        )
    )
    started_s = time.monotonic()
    pid_file = arguments.out / "engine.pid.json"
    with running(launch, port=port, log=arguments.engine_log, pid_file=pid_file) as process:
        wait_healthy(process, arguments.startup_timeout_s)
        version = _version(process, kind, engine)
        options = LoadOptions(
            url=process.url,
            model=cfg["target"]["name"],
            concurrency=load["concurrency"],
            sampling=Sampling(
                max_tokens=load["max_tokens"],
                temperature=cfg["sampling"]["temperature"],
                seed=cfg["sampling"]["seed"],
                ignore_eos=load["ignore_eos"],
            ),
        )
        _answer_one(process, options, prompts, kind)
        record["engine"] = {
            "name": engine.name,
            "version": version,
            "precision": engine.precision,
            "threads": engine.threads,
            "command": list(launch.argv),
            "environment": dict(launch.environment),
            "startup_s": round(time.monotonic() - started_s, 3),
            "log": str(arguments.engine_log),
        }
        LOG.info("engine ready after %.1f s", record["engine"]["startup_s"])
        dialect = DIALECTS[kind.dialect]
        result = run_load(options, prompts, read_workload(arguments.warmup), dialect)
        record.update(
            load={
                **asdict(options),
                "dialect": kind.dialect,
                "devices": max(1, engine.gpus),
                "body_example": result.body_example,
                "span_s": result.span_s,
            },
            warmup=result.warmup,
            counters=result.counters,
            client=result.client,
            started_at=result.started_at,
            ended_at=result.ended_at,
        )
        record["reason"] = process.died()
    return result


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
    process: EngineProcess, options: LoadOptions, prompts: list[Prompt], kind: EngineKind
) -> None:
    """Send one real request: a healthy route proves little (vLLM's stays green when it fails).

    The ids are those of a measured prompt turned round, so that nothing measured gets cached.

    Raises:
        EngineError: It did not give a token.
    """
    backwards = Prompt(
        prompt_id="health",
        category=None,
        turn_token_ids=(prompts[0].turn_token_ids[0][::-1],),
    )
    one_token = Sampling(max_tokens=1, temperature=0.0, ignore_eos=True)
    probe = LoadOptions(url=options.url, model=options.model, concurrency=1, sampling=one_token)
    result = run_load(probe, [backwards], [], DIALECTS[kind.dialect])
    if result.interrupted is not None:
        raise KeyboardInterrupt(result.interrupted)
    failure = result.failure()
    if failure is not None:
        death = process.died()
        raise EngineError(death or f"the engine is healthy but does not answer: {failure}")
