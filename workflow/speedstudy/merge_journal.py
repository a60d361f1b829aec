"""Make the record of a load that was killed, from the journal that it left.

Needs a record's folder with ``journal`` in it, leaves ``requests.parquet``, then ``cell.json`` with
``status: failed``. Every exchange that had ended is in it as it was received; requests that were
open or not sent yet are ``cancelled``.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from speedstudy import records
from speedstudy.client import journal
from speedstudy.client.load import (
    JOURNAL,
    PLAN_FILE,
    PROMPTS_FILE,
    RECORD_FILE,
    end_journal,
)
from speedstudy.client.merge import merge_load
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import read_workload

LOG = logging.getLogger(__name__)
REASON = "the client was killed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder of the record")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the record; returns ``{out, requests}``.

    Raises:
        ValueError: There is no journal, or the load had not begun.
    """
    out: Path = arguments.dir
    folder = out / JOURNAL
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; the record is whole or nothing was measured")
    if not (folder / PLAN_FILE).is_file():
        raise ValueError(f"{folder}: the load was killed before it began; remove the folder")
    plan = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    cell = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    last_s = journal.last_end_s(sorted(folder.glob(journal.PATTERN)))
    span_s = 0.0 if last_s is None else last_s - plan["start_s"]
    outcomes, _, client = merge_load(
        folder,
        out / "requests.parquet",
        options_of(plan["options"]),
        read_workload(folder / PROMPTS_FILE),
        DIALECTS[plan["dialect"]],
        start_s=plan["start_s"],
        end_s=span_s,
        cut_short=REASON,
        reports=[],
    )
    cell.update(
        status="failed",
        reason=REASON,
        load={**cell["load"], "body_example": plan["body_example"]},
        started_at=plan["started_at"],
        span_s=span_s,
        warmup=plan["warmup"],
        counters=None,
        client=client,
    )
    cell["engine"] = cell.get("engine") or plan["server"]
    records.write_json(out / "cell.json", cell)
    end_journal(out)
    LOG.info("%s: %s", out, ", ".join(f"{n} {kind}" for kind, n in outcomes.items() if n))
    return {"out": str(out), "requests": {"total": sum(outcomes.values()), **outcomes}}


def options_of(told: dict[str, Any]) -> LoadOptions:
    """Return the options that ``dataclasses.asdict`` had turned into JSON."""
    trace_s = told["trace_s"]
    return LoadOptions(
        **{
            **told,
            "sampling": Sampling(**told["sampling"]),
            "timeouts": Timeouts(**told["timeouts"]),
            "trace_s": None if trace_s is None else tuple(trace_s),
        }
    )
