"""Rows of the study's tables from one cell's record: identity, metrics, comparison.

Pure: a record in, rows out. ``aggregate`` reads the records and makes tables of the rows. A
column is declared with its type; what a row does not have is null there.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from speedstudy.cells import Cell
from speedstudy.metrics.acceptance import per_request_mean, pool, request_counts
from speedstudy.metrics.bootstrap import acceptance_length_change, mean_acceptance_length
from speedstudy.metrics.compare import (
    output_length_drift,
    prompt_rates,
    speedup_output,
    speedup_user,
    token_agreement,
)
from speedstudy.metrics.measure import measure
from speedstudy.metrics.steps import StepCounts, completion_tokens
from speedstudy.records import TurnRecord

Row = dict[str, Any]
PromptCounts = Mapping[str, tuple[int, int]]  # accepted draft tokens and verify steps

TEXT, WHOLE, REAL = "string", "Int64", "float64"
ACCEPTANCE = {
    "al": REAL,
    "al_drafted": REAL,
    "al_emitted": REAL,
    "ar": REAL,
    "steps": WHOLE,
    "steps_drafted": WHOLE,
    "drafted": WHOLE,
    "accepted": WHOLE,
}
RATES = (
    "user_tok_per_s",
    "output_tok_per_s",
    "output_tok_per_s_per_device",
    "requests_per_s",
    "peak_tok_per_s",
)
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "chunk_gap_ms", "e2e_ms")
STATISTICS = ("mean", "p50", "p95")

IDENTITY_COLUMNS = {
    "cell_id": TEXT,
    "engine": TEXT,
    "engine_version": TEXT,
    "target": TEXT,
    "drafter": TEXT,
    "method": TEXT,
    "k": WHOLE,
    "load": TEXT,
    "workload": TEXT,  # qualitative, or the bucket's name
    "ids": TEXT,  # real or random
    "concurrency": WHOLE,
    "max_tokens": WHOLE,
    "temperature": REAL,
    "seed": WHOLE,
    "repeat": WHOLE,
    "coverage": TEXT,  # what the prompts lack because a source was skipped; null: nothing
}
CELL_COLUMNS = {
    **IDENTITY_COLUMNS,
    "status": TEXT,
    "reason": TEXT,
    "verdict": TEXT,
    "startup_s": REAL,
    "requests": WHOLE,
    "requests_ok": WHOLE,
    "completion_tokens": WHOLE,
    "output_tok_per_joule": REAL,  # over the GPUs' own energy; null without GPUs
    **ACCEPTANCE,
    "al_low": REAL,
    "al_high": REAL,
    "al_change": REAL,  # from the cell with the fewest requests in flight
    "al_change_low": REAL,
    "al_change_high": REAL,
    "conditional": TEXT,  # the paper's AR_k for k = 1, 2, ... as a JSON list; null: unknown
    "al_request_mean": REAL,
    "acceptance_source": TEXT,
    "cross_check": TEXT,  # of the sources that tell the same quantity; null: only one does
    **dict.fromkeys(RATES, REAL),
    **{f"{name}_{statistic}": REAL for name in LATENCIES for statistic in STATISTICS},
    "speedup_user": REAL,
    "speedup_user_low": REAL,
    "speedup_user_high": REAL,
    "speedup_prompts": WHOLE,
    "speedup_output": REAL,
    "output_length_drift": REAL,
    "replies_compared": WHOLE,
    "replies_equal": WHOLE,
}
PROMPT_COLUMNS = {
    **IDENTITY_COLUMNS,
    "prompt_id": TEXT,
    "category": TEXT,
    "turns": WHOLE,
    "completion_tokens": WHOLE,
    "user_tok_per_s": REAL,
    **ACCEPTANCE,
}
CATEGORY_COLUMNS = {
    **IDENTITY_COLUMNS,
    "category": TEXT,
    "requests": WHOLE,
    **ACCEPTANCE,
    "al_request_mean": REAL,
}
ACCEPTED_COLUMNS = {
    **IDENTITY_COLUMNS,
    "category": TEXT,
    "accepted": WHOLE,
    "steps": WHOLE,
    "listed": TEXT,  # which steps the engine lists: all, or drafted ones only
}


def cell_row(cell: Cell, turns: Sequence[TurnRecord] | None) -> Row:
    """Return the cell's row without intervals and comparisons; no metrics if ``turns`` is None."""
    row = {
        **cell.identity(),
        "status": cell.record["status"],
        "reason": cell.record.get("reason"),
        "verdict": (cell.record.get("client") or {}).get("verdict"),
        "startup_s": (cell.record.get("engine") or {}).get("startup_s"),
    }
    if turns is None:
        return row
    metrics = measure(turns, cell.record)
    acceptance, rates, latency = metrics["acceptance"], metrics["throughput"], metrics["latency"]
    tokens = sum(completion_tokens(turn) or 0 for turn in _ok(turns))
    energy_j = (cell.record.get("telemetry") or {}).get("energy_j")
    return {
        **row,
        "requests": metrics["requests"]["total"],
        "requests_ok": metrics["requests"]["ok"],
        "completion_tokens": tokens,
        "output_tok_per_joule": tokens / energy_j if energy_j else None,
        **{name: acceptance["pooled"][name] for name in ACCEPTANCE},
        "conditional": _list_text(acceptance["pooled"]["conditional"]),
        "al_request_mean": acceptance["per_request_mean"]["al"],
        "acceptance_source": acceptance["source"],
        "cross_check": _cross_check(acceptance["cross_check"], _ok(turns)),
        **{name: rates[name] for name in RATES},
        **{
            f"{name}_{statistic}": latency[name][statistic]
            for name in LATENCIES
            for statistic in STATISTICS
        },
    }


def _list_text(rates: Sequence[float | None] | None) -> str | None:
    if rates is None:
        return None
    return json.dumps([None if rate is None else round(rate, 4) for rate in rates])


def comparison(
    baseline_row: Row,
    baseline_turns: Sequence[TurnRecord],
    row: Row,
    turns: Sequence[TurnRecord],
) -> Row:
    """Return a drafter's comparison columns against the cell without a drafter."""
    user = speedup_user(baseline_turns, turns)
    agreement = token_agreement(baseline_turns, turns)
    return {
        "speedup_user": user and user.ratio,
        "speedup_user_low": user and user.low,
        "speedup_user_high": user and user.high,
        "speedup_prompts": user.prompts if user else 0,
        "speedup_output": speedup_output(baseline_row["output_tok_per_s"], row["output_tok_per_s"]),
        "output_length_drift": output_length_drift(baseline_turns, turns),
        "replies_compared": agreement.compared,
        "replies_equal": agreement.equal,
    }


def al_interval(counts: PromptCounts) -> Row:
    """Return the columns of the interval of a cell's AL."""
    al = mean_acceptance_length([[*counts.values()]])
    return {"al_low": al and al.low, "al_high": al and al.high}


def al_change(fewest: PromptCounts, counts: PromptCounts) -> Row:
    """Return a cell's AL against that of the cell with the fewest requests in flight."""
    change = acceptance_length_change(fewest, counts)
    return {
        "al_change": change and change.value,
        "al_change_low": change and change.low,
        "al_change_high": change and change.high,
    }


def prompt_rows(cell: Cell, turns: Sequence[TurnRecord]) -> list[Row]:
    """Return one row a prompt, sorted by its id, over its ``ok`` turns."""
    ok = _ok(turns)
    rates = prompt_rates(ok)
    groups = _grouped(ok, request_counts(ok, cell.record), lambda turn: turn.prompt_id)
    return [
        {
            **cell.identity(),
            "prompt_id": prompt_id,
            "category": group[0][0].category,
            "turns": len(group),
            "completion_tokens": sum(count.tokens or 0 for _, count in group),
            "user_tok_per_s": rates.get(prompt_id),
            **_acceptance(cell, [count for _, count in group]),
        }
        for prompt_id, group in groups.items()
    ]


def category_rows(cell: Cell, turns: Sequence[TurnRecord]) -> list[Row]:
    """Return one row a category, sorted by name: pooled over steps, and the mean of requests."""
    ok = _ok(turns)
    groups = _grouped(ok, request_counts(ok, cell.record), lambda turn: turn.category)
    rows = []
    for category, group in groups.items():
        counts = [count for _, count in group]
        rows.append(
            {
                **cell.identity(),
                "category": category,
                "requests": len(group),
                **_acceptance(cell, counts),
                "al_request_mean": per_request_mean(counts)["al"],
            }
        )
    return rows


def accepted_rows(cell: Cell, turns: Sequence[TurnRecord]) -> list[Row]:
    """Return how many listed steps accepted how many tokens, by category; none without lists.

    Sorted by category (prompts without one first), then by accepted length.
    """
    histograms: dict[tuple[str, str], Counter[int]] = {}
    for turn in _ok(turns):
        if turn.step_accepted is not None:
            listed = "drafted" if turn.steps is None else "all"
            histogram = histograms.setdefault((turn.category or "", listed), Counter())
            histogram.update(turn.step_accepted)
    return [
        {
            **cell.identity(),
            "category": category or None,
            "accepted": accepted,
            "steps": histogram[accepted],
            "listed": listed,
        }
        for (category, listed), histogram in sorted(histograms.items())
        for accepted in sorted(histogram)
    ]


def _acceptance(cell: Cell, counts: Sequence[StepCounts]) -> Row:
    pooled = pool(counts, cell.record.get("first_token"))
    return {name: pooled[name] for name in ACCEPTANCE}


def _cross_check(check: Mapping[str, Any] | None, turns: Sequence[TurnRecord]) -> str | None:
    """Return what responses and server counters both tell and whether they tell the same.

    A response that contradicts itself (its stream blocks, its lists and its totals) comes first.
    """
    conflicts = sum(turn.acceptance_conflict is not None for turn in turns)
    if conflicts:
        return f"differ: within {conflicts} of {len(turns)} responses"
    if check is None or not check["compared"]:
        return None
    return f"{'agree' if check['agrees'] else 'differ'}: {', '.join(check['compared'])}"


def _grouped(
    turns: Sequence[TurnRecord],
    counts: Sequence[StepCounts],
    key: Callable[[TurnRecord], str | None],
) -> dict[str, list[tuple[TurnRecord, StepCounts]]]:
    groups: dict[str, list[tuple[TurnRecord, StepCounts]]] = {}
    for turn, count in zip(turns, counts, strict=True):
        name = key(turn)
        if name is not None:
            groups.setdefault(name, []).append((turn, count))
    return dict(sorted(groups.items()))


def _ok(turns: Sequence[TurnRecord]) -> list[TurnRecord]:
    return [turn for turn in turns if turn.outcome == "ok"]
