"""Say what a study would measure: its cells, how long they take, and what is in the way."""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.data_lock import LOCK, Lock, lock_key, pinned_sums, read_lock
from speedstudy.expand import Cell, Plan, expand, unpinned
from speedstudy.schema.study import Study
from speedstudy.study import load_study

TYPICAL_ISL_TOKENS = 141  # the paper's overall median (Table 3), for estimates only


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy plan``."""
    parser.add_argument(
        "overrides", nargs="*", help="Hydra overrides, for example drafters.ngram_k3.k=4"
    )
    parser.add_argument("--experiment", default="demo", help="a file of config/experiment")
    parser.add_argument(
        "--config-dir", type=Path, default=Path("config"), help="folder of study.yaml"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder that cells are recorded in"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a study's cells with totals, what is in the way, and the GPUs that sessions need.

    Times are in seconds; ``estimated_s`` is over the cells to do whose time is known.
    """
    study = load_study(
        arguments.config_dir, [f"experiment={arguments.experiment}", *arguments.overrides]
    )
    plan = expand(study)
    rows = _rows(study, plan, arguments.results)
    todo = [row for row in rows if row["state"] == "to do"]
    starts = {row["session"] if study.server.reuse == "session" else row["cell"] for row in todo}
    return {
        "cells": rows,
        "impossible": [vars(one) for one in plan.impossible],
        "unpinned": unpinned(plan),
        "without_sum": without_sum(plan, read_lock(arguments.config_dir / LOCK.name)),
        "sessions": [
            {
                "session": one.id,
                "gpus": one.engine.gpus,
                "target_memory_gib": one.target.memory_gib,
            }
            for one in plan.sessions.values()
        ],
        "requests": sum(row["requests"] for row in rows),
        "engine_starts": len(starts),
        "estimated_s": sum(row["estimated_s"] or 0 for row in todo),
    }


def text(report: Mapping[str, Any]) -> str:
    """Return the cells, a line each, then what is in the way, and the totals."""
    return "\n".join(
        [
            *(_cell_line(row) for row in report["cells"]),
            *_obstacle_lines(report),
            *(_gpu_line(one) for one in report["sessions"] if one["gpus"]),
            _total_line(report),
        ]
    )


def _cell_line(row: Mapping[str, Any]) -> str:
    time = "?" if row["estimated_s"] is None else f"{row['estimated_s']:.0f}"
    return f"{row['state']:7} {row['requests']:5d} requests {time:>6} s  {row['cell']}"


def _obstacle_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for one in report["impossible"]:
        yield f"cannot  {one['engine']} x {one['target']} x {one['drafter']}: {one['reason']}"
    yield from report["unpinned"]
    if report["without_sum"]:
        yield (
            f"no sum is known of {len(report['without_sum'])} files, first "
            f"{report['without_sum'][0]}: lock-data adds them once fetched"
        )


def _gpu_line(session: Mapping[str, Any]) -> str:
    memory_gib = session["target_memory_gib"]
    memory = "" if memory_gib is None else f", {memory_gib:.0f} GiB or more in all"
    return f"{session['gpus']} GPUs{memory}  {session['session']}"


def _total_line(report: Mapping[str, Any]) -> str:
    todo = [row for row in report["cells"] if row["state"] == "to do"]
    unknown = sum(row["estimated_s"] is None for row in todo)
    times = [f"{unknown} cells whose time is not known"] if unknown else []
    if unknown < len(todo) or not todo:
        times.insert(0, f"about {report['estimated_s'] / 60:.0f} min to go")
    return (
        f"{len(report['cells'])} cells ({len(todo)} to do, {report['engine_starts']} engine "
        f"starts) in {len(report['sessions'])} sessions, {report['requests']} requests, "
        f"{' and '.join(times)}"
    )


def without_sum(plan: Plan, lock: Lock) -> list[str]:
    """Return the files to fetch whose sum neither configuration nor lock knows.

    Raises:
        ValueError: Configuration and lock contradict each other.
    """
    unknown = []
    for artifact in (one.cfg for one in plan.data.artifacts.values()):
        key = lock_key(artifact)
        if key is not None:
            known = pinned_sums(artifact, lock)
            unknown += [f"{key}/{file}" for file in artifact["files"] if file not in known]
    return unknown


def _rows(study: Study, plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Return a row a cell; a session's only start is in the estimate of its first cell to do."""
    rows, started = [], set()
    for cell in plan.cells.values():
        done = (results / "cells" / cell.id / "cell.json").is_file()
        starts = study.server.reuse == "cell" or cell.session not in started
        if starts and not done:
            started.add(cell.session)
        rows.append(
            {
                "cell": cell.id,
                "session": cell.session,
                "requests": cell.cfg["load"]["requests"],
                "estimated_s": _estimated_s(study, cell, starts=starts),
                "state": "done" if done else "to do",
            }
        )
    return rows


def _estimated_s(study: Study, cell: Cell, *, starts: bool) -> float | None:
    """Rough: prefills one after another, decoding of the concurrent streams side by side."""
    load = cell.cfg["load"]
    speeds = cell.engine.estimate
    if speeds is None:
        return None
    bucket = load["workload"]["bucket"]
    isl = TYPICAL_ISL_TOKENS
    if bucket is not None:
        isl = next(b.length for b in study.buckets.values() if b.name == bucket)
    prefill_s = isl / speeds.prefill_tok_per_s
    decode_s: float = load["max_tokens"] / speeds.decode_tok_per_s
    each_s = prefill_s + decode_s / load["concurrency"]
    measured_s: float = max(load["requests"] * each_s, _last_arrival_s(load))
    if load.get("duration_s") is not None:  # what is open by then is finished
        measured_s = load["duration_s"] + prefill_s + decode_s
    warmup_s: float = load["warmup_requests"] * each_s
    startup_s = speeds.startup_s if starts else 0.0
    return round(startup_s + warmup_s + measured_s, 1)


def _last_arrival_s(load: Mapping[str, Any]) -> float:
    """Return when the last conversation of an open loop is due, in seconds; 0 in a closed one."""
    arrivals = load.get("arrivals")
    if arrivals is None:
        return 0.0
    if arrivals["offsets_s"] is not None:
        return float(arrivals["offsets_s"][-1])
    return float(load["requests"] / arrivals["rate_per_s"])
