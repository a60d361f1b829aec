"""The record of a load that was killed, out of the journal that it left.

Needs a record's folder with ``journal`` in it, leaves ``requests.parquet``, then ``cell.json`` with
``status: failed``. Every exchange that had ended is in it as it was received; requests that were
open or not sent yet are ``cancelled``.
"""

import json
from pathlib import Path
from typing import Any

from speedstudy import records
from speedstudy.client import journal
from speedstudy.client.load import JOURNAL, PLAN_FILE, PROMPTS_FILE, end_journal
from speedstudy.client.merge import merge_load
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import read_workload

REASON = "the client was killed"


def has_begun(out: Path) -> bool:
    """Return whether a load that was killed had got past its warm-up."""
    return (out / JOURNAL / PLAN_FILE).is_file()


def record_killed_load(out: Path) -> dict[str, int]:
    """Write the record and drop the journal; returns turns by outcome.

    Raises:
        ValueError: There is no journal, the load had not begun, or another version of this program
            wrote it.
    """
    folder = out / JOURNAL
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; the record is whole or nothing was measured")
    if not has_begun(out):
        raise ValueError(f"{folder}: the load was killed before it began; remove the folder")
    plan = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    cell = records.read_cell(folder)
    try:
        options = options_of(plan["options"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{folder}: another version of this program wrote it ({error}); merge it with that "
            "one, or remove the folder"
        ) from error
    last_s = journal.last_end_s(sorted(folder.glob(journal.PATTERN)))
    span_s = 0.0 if last_s is None else last_s - plan["start_s"]
    outcomes, _, client = merge_load(
        folder,
        out / "requests.parquet",
        options,
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
    return outcomes


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
