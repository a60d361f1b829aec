"""Measure one cell: have the engine, send the workload, record.

The engine is started for this cell and ended after it, or it is the one that the cells of a session
share (``--endpoint``). Computes no metric. A failing engine is a finding, not a crash: it gives a
record with ``status: failed`` and the reason, and the command succeeds, so that the other cells go
on.
"""

import argparse
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speedstudy import telemetry
from speedstudy.client.load import LoadResult, begin_journal, end_journal, run_load
from speedstudy.client.options import LoadOptions
from speedstudy.coverage import read_note
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.engine_start import add_start_arguments, start_of, started
from speedstudy.engines import ENGINES
from speedstudy.engines.process import PID_FILE, EngineError, owned
from speedstudy.engines.session import Served, joined, keep_finished
from speedstudy.environment import hardware, software
from speedstudy.machine import contention, judged, watched
from speedstudy.records import RECORD_VERSION, write_json, write_requests
from speedstudy.workload import Prompt, digest, read_workload

LOG = logging.getLogger(__name__)


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
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument(
        "--endpoint",
        type=Path,
        help="measure on the engine that this file of serve-engine tells; without it one is "
        "started, which needs --model and --engine-log",
    )
    parser.add_argument(
        "--target-memory-gib",
        type=float,
        help="GPU memory in all that the target needs, in GiB; less that is free makes the cell "
        "contended (default: unknown)",
    )
    add_start_arguments(parser, required=False)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and write ``requests.parquet``, then ``cell.json``; returns status and reason.

    Raises:
        ValueError: Neither an engine to start nor one to join.
    """
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
        "machine": None,
        "telemetry": None,
        "first_token": DIALECTS[ENGINES[cfg["engine"]["kind"]].dialect].first_token,
        "hardware": hardware(),
        "software": software(),
        "started_at": datetime.now(UTC).isoformat(),
    }
    try:
        # A session's turn lasts until the record is written: the next load has idle cores.
        with _engine(arguments, prompts) as served:
            result = _measure(served, arguments, cfg, prompts, record)
            _write(arguments, record, result)
    except EngineError as error:
        record["reason"] = str(error)
        _write(arguments, record, None)
    return {"status": record["status"], "reason": record["reason"]}


@contextmanager
def _engine(arguments: argparse.Namespace, prompts: list[Prompt]) -> Iterator[Served]:
    """Have the engine to oneself: a new one, or the session's in one's turn.

    Raises:
        EngineError: It did not start, or has ended.
        ValueError: Neither is asked for, or another session's.
    """
    if arguments.endpoint is not None:
        with (
            owned(arguments.out / PID_FILE),
            joined(arguments.endpoint, arguments.config, arguments.startup_timeout_s) as served,
        ):
            yield served
        return
    if arguments.model is None or arguments.engine_log is None:
        raise ValueError("no engine: give --model and --engine-log, or --endpoint")
    concurrency = arguments.config["load"]["concurrency"]
    start = start_of(arguments, max_concurrency=concurrency, folder=arguments.out)
    with started(start, prompts) as served:
        yield served


def _measure(
    served: Served,
    arguments: argparse.Namespace,
    cfg: dict[str, Any],
    prompts: list[Prompt],
    record: dict[str, Any],
) -> LoadResult:
    """Run the load and fill in the record; an engine that dies leaves its reason there."""
    load = cfg["load"]
    dialect = ENGINES[cfg["engine"]["kind"]].dialect
    options = LoadOptions(
        url=served.url,
        model=cfg["target"]["name"],
        concurrency=load["concurrency"],
        sampling=Sampling(
            max_tokens=load["max_tokens"],
            temperature=cfg["sampling"]["temperature"],
            seed=cfg["sampling"]["seed"],
            ignore_eos=load["ignore_eos"],
        ),
        **_traffic(load),
    )
    record["engine"] = {**served.facts, "reused": arguments.endpoint is not None}
    record["load"] = {
        **asdict(options),
        "dialect": dialect,
        "devices": max(1, cfg["engine"]["gpus"]),
    }
    begin_journal(arguments.out, record)
    warmup = read_workload(arguments.warmup)
    with (
        watched([os.getpid(), served.pid]) as machine,
        telemetry.sampled(cfg["engine"]["gpus"]) as gpus,
    ):
        result = run_load(options, prompts, warmup, DIALECTS[dialect], arguments.out)
    seen = machine.report()
    reasons = [
        *contention(seen),
        *telemetry.contention(served.facts["gpus_before"], arguments.target_memory_gib),
    ]
    record.update(
        load={**record["load"], "body_example": result.body_example, "span_s": result.span_s},
        warmup=result.warmup,
        counters=result.counters,
        client=judged(result.client, reasons),
        machine=seen,
        telemetry=gpus and gpus.report(result.started_at, result.ended_at),
        started_at=result.started_at,
        ended_at=result.ended_at,
    )
    record["reason"] = served.died() or result.failure()
    record["status"] = "ok" if record["reason"] is None else "failed"
    return result


def _traffic(load: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``LoadOptions`` that only some loads have, from a cell's load."""
    arrivals, ramp = load.get("arrivals") or {}, load.get("ramp") or {}
    trace_s = arrivals.get("offsets_s")
    return {
        "arrivals": arrivals.get("kind", "closed"),
        "rate_per_s": arrivals.get("rate_per_s"),
        "burstiness": arrivals.get("burstiness", 1.0),
        "trace_s": None if trace_s is None else tuple(trace_s),
        "arrival_seed": arrivals.get("seed", 0),
        "ramp_s": ramp.get("seconds", 0.0),
        "ramp_steps": ramp.get("steps", 0),
        "duration_s": load.get("duration_s"),
    }


def _write(
    arguments: argparse.Namespace, record: dict[str, Any], result: LoadResult | None
) -> None:
    """Write the record.

    Raises:
        KeyboardInterrupt: The load was interrupted.
    """
    record.setdefault("ended_at", datetime.now(UTC).isoformat())
    if result is None:
        write_requests(arguments.out / "requests.parquet", [])
    write_json(arguments.out / "cell.json", record)
    if result is not None:
        end_journal(arguments.out)
    if record["status"] == "failed":
        LOG.error("%s failed: %s", arguments.id, record["reason"])
    elif arguments.endpoint is not None:
        keep_finished(arguments.endpoint, arguments.out)
    if arguments.endpoint is not None:
        # Snakemake says nothing of a session's loads until the last one is done.
        print(f"{datetime.now():%H:%M:%S} {record['status']}: {arguments.id}", flush=True)
    if result is not None and result.interrupted is not None:
        raise KeyboardInterrupt(result.interrupted)
