"""Make a run folder usable again after a run that was killed or had failed cells.

Ends engines and measurements that outlived their run, releases Snakemake's lock, puts back what an
interrupted session had finished, makes records of what killed measurements had received, sets these
and other failed cells aside so that the next run tries them again, and only those, and drops tables
and figures that have to be made anew.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from speedstudy.client.killed import has_begun, record_killed_load
from speedstudy.client.load import JOURNAL, end_journal
from speedstudy.engines.process import PID_FILE, is_alive
from speedstudy.engines.session import FINISHED, HALF
from speedstudy.records import RECORD_FILES, read_cell

LOG = logging.getLogger(__name__)
END_GRACE_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--directory", type=Path, default=Path(), help="folder that snakemake runs in"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Recover the folder; returns what was done.

    Raises:
        ValueError: A live run is using the folder.
    """
    directory: Path = arguments.directory.resolve()
    other = _live_run(directory)
    if other is not None:
        raise ValueError(
            f"{directory}: snakemake is running here (pid {other}); wait for it or stop it first"
        )
    results = directory / "results"
    ended = end_stragglers(results)
    unlocked = _unlock(directory)
    finished = put_finished_back(results)
    if finished:
        _declare_finished(directory, finished)
    record_killed(results / "cells")
    retried = set_failed_aside(results / "cells", results / "failed")
    for cell in retried:
        LOG.info("failed last time, tried again: %s", cell)
    dropped = []
    if retried or not _has_records(directory):
        dropped = drop_plain_outputs(results)
    return {
        "ended_pids": ended,
        "unlocked": unlocked,
        "finished_cells": [path.name for path in finished],
        "failed_cells": retried,
        "dropped": [str(path) for path in dropped],
    }


def _live_run(directory: Path) -> int | None:
    ancestors = {process.pid for process in psutil.Process().parents()}
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if process.pid in ancestors or process.pid == os.getpid():
            continue
        words = [Path(word).name for word in (process.info["cmdline"] or [])[:3]]
        if "snakemake" in words and process.info["cwd"] == str(directory):
            return int(process.pid)
    return None


def end_stragglers(results: Path) -> list[int]:
    """End engines, supervisors and measurements that a dead run left; returns the ended pids."""
    ended = []
    # Measurements first: one that loses its engine would still write that it failed.
    for pid_file in (
        *sorted(results.glob(f"cells/*/{PID_FILE}")),
        *sorted(results.glob(f"sessions/*/{PID_FILE}")),
    ):
        try:
            processes = json.loads(pid_file.read_text(encoding="utf-8"))
        except FileNotFoundError:  # it ended when an earlier one did
            continue
        for role, process in processes.items():
            if is_alive(process):
                ended.append(_end(int(process["pid"]), group=role == "engine"))
        pid_file.unlink(missing_ok=True)
    return ended


def _end(pid: int, *, group: bool) -> int:
    process = psutil.Process(pid)
    LOG.info("ending pid %d, left by a run that was killed", pid)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, sign) if group else os.kill(pid, sign)
            process.wait(END_GRACE_S)
        except (ProcessLookupError, psutil.NoSuchProcess):
            break
        except psutil.TimeoutExpired:
            continue
        break
    return pid


def _unlock(directory: Path) -> bool:
    locks = directory / ".snakemake" / "locks"
    if not locks.is_dir() or not any(locks.iterdir()):
        return False
    LOG.info("releasing the lock of a run that was killed")
    subprocess.run(
        [sys.executable, "-m", "snakemake", "--unlock"],
        cwd=directory,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return True


def put_finished_back(results: Path) -> list[Path]:
    """Put the cells that an interrupted session had finished back; returns their folders.

    Snakemake removes them when the session is interrupted, or takes them for unfinished when it is
    killed itself: the session was one job to it.
    """
    back = []
    for copy in sorted(results.glob(f"sessions/*/{FINISHED}/*")):
        cell = results / "cells" / copy.name
        if copy.suffix != HALF:
            cell.mkdir(parents=True, exist_ok=True)
            for name in RECORD_FILES:
                (copy / name).replace(cell / name)
            back.append(cell)
        shutil.rmtree(copy)
    return back


def _declare_finished(directory: Path, cells: Sequence[Path]) -> None:
    """Have Snakemake forget that it takes these cells for unfinished.

    It complains that it has no record of them, which is so; their names tell what they are.
    """
    LOG.info("%d cells of an interrupted session are finished", len(cells))
    files = [str((cell / name).relative_to(directory)) for cell in cells for name in RECORD_FILES]
    subprocess.run(
        [sys.executable, "-m", "snakemake", "--cleanup-metadata", *files],
        cwd=directory,
        check=False,
        capture_output=True,
    )


def record_killed(cells: Path) -> list[str]:
    """Make a failed record of what each killed measurement had received; returns the cells' ids.

    A journal that holds no more than its cell's record, or no reply at all, is dropped. One that
    cannot be read stays until its cell is measured again.
    """
    recorded = []
    for journal in sorted(cells.glob(f"*/{JOURNAL}")):
        cell = journal.parent
        if (cell / "cell.json").is_file() or not has_begun(cell):
            end_journal(cell)
            continue
        try:
            outcomes = record_killed_load(cell)
        except ValueError as error:
            LOG.warning("%s", error)
            continue
        LOG.info(
            "killed with %d of %d replies received, which are kept: %s",
            outcomes["ok"],
            sum(outcomes.values()),
            cell.name,
        )
        recorded.append(cell.name)
    return recorded


def set_failed_aside(cells: Path, failed: Path) -> list[str]:
    """Move the records of failed cells out of the graph's sight; returns the cells' ids.

    The last failed record of a cell is kept in ``failed/<cell>/`` for reading.
    """
    moved = []
    for record in sorted(cells.glob("*/cell.json")):
        try:
            status = read_cell(record.parent)["status"]
        except ValueError as error:  # of another record version: measured again as well
            LOG.warning("%s", error)
            status = "failed"
        if status != "failed":
            continue
        aside = failed / record.parent.name
        aside.mkdir(parents=True, exist_ok=True)
        for name in RECORD_FILES:
            source = record.parent / name
            if source.is_file():
                source.replace(aside / name)
        moved.append(record.parent.name)
    return moved


def _has_records(directory: Path) -> bool:
    """Whether Snakemake still knows what made the outputs in this folder."""
    records = directory / ".snakemake" / "metadata"
    return records.is_dir() and any(records.iterdir())


def drop_plain_outputs(results: Path) -> list[Path]:
    """Remove tables and figures, so that they are made anew; returns what was removed.

    Their names don't tell what they were made from, unlike those of all that came before them: with
    Snakemake's records lost they could be stale, and while they stand, Snakemake does not miss the
    record of a cell below them that was set aside. They take seconds to make.
    """
    plain = sorted(
        path
        for pattern in ("*.pdf", "*.png", "study.json", "tables/*")
        for path in results.glob(pattern)
    )
    for path in plain:
        path.unlink()
    if plain:
        LOG.info("tables and figures are made anew")
    return plain
