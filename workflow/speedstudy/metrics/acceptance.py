"""Acceptance of draft tokens: pooled over steps, as mean of requests, and by category.

Sources: SPEED-Bench, equation 1 and section 4 (conditional acceptance rates); the names and the
treatment of steps without a draft are those of ``docs/metrics.md``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from speedstudy.metrics.conventions import conventions
from speedstudy.metrics.counters import CounterDelta, counter_delta
from speedstudy.metrics.positions import (
    al_full_draft,
    conditional_rates,
    counter_rates,
    unconditional_rates,
)
from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.steps import (
    StepCounts,
    chunks_after_prefill,
    derive_steps,
    draft_length,
    has_drafter,
    resolve,
    tells_acceptance,
)
from speedstudy.records import TurnRecord


def acceptance(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> dict[str, Any]:
    """Return the acceptance numbers of a cell, over its ``ok`` requests.

    The response of each request comes first. Where the responses tell nothing, the server's
    counters take their place; where both tell, they are compared (``cross_check``), and counters
    that agree on the accepted tokens fill a total that the responses lack.

    Returns:
        ``pooled``, ``per_request_mean``, ``by_category``, ``conventions``, ``source`` (``steps``,
        ``totals``, ``blocks``, several joined by ``+``, ``counters``, ``definition`` without a
        drafter, or None), ``coverage`` (requests, and how many of them have known acceptance and
        known steps), ``cross_check`` (None, or both sources' totals and whether they agree) and
        ``notes`` (sentences on what a reader must know).
    """
    ok = [turn for turn in turns if turn.outcome == "ok"]
    counts = request_counts(ok, cell)
    first_token = cell.get("first_token")
    pooled = pool(counts, first_token)
    source = _source(ok, cell)
    notes: list[str] = []
    try:
        delta = counter_delta(cell.get("counters"))
    except ValueError as error:
        delta = None
        notes.append(str(error))
    if delta is not None and delta.conflict is not None:
        notes.append(f"the server's counters contradict themselves: {delta.conflict}")
    cross_check = None
    if delta is not None and source is None and has_drafter(cell):
        source = "counters"
        pooled = pool_counters(delta, turns, cell)
        if len(ok) < len(turns):
            notes.append("the server's counters include requests that did not end ok")
    elif delta is not None and source not in (None, "definition") and len(ok) == len(turns):
        cross_check = _cross_check(pooled, delta)
        if cross_check["agrees"]:
            _fill_from_counters(pooled, delta, ok, cell)
        else:
            notes.append("the responses and the server's counters tell different totals")
    notes += _request_notes(ok, counts, cell)
    unknown = sum(count.told and count.steps is None for count in counts)
    if unknown and pooled["al"] is None:
        notes.append(
            f"al is unknown: {unknown} of {len(counts)} requests do not show how many verify "
            "steps ran (a step without a draft and a cut reply cannot be told apart)"
        )
    return {
        "pooled": pooled,
        "per_request_mean": per_request_mean(counts),
        "by_category": by_category(ok, counts, first_token),
        "conventions": conventions(
            ok,
            counts,
            pooled,
            at_least=delta.accepted_per_position if delta and source == "counters" else None,
            devices=(cell.get("load") or {}).get("devices"),
        ),
        "source": source,
        "coverage": {
            "requests": len(counts),
            "accepted_known": sum(count.accepted is not None for count in counts),
            "steps_known": sum(count.steps is not None for count in counts),
        },
        "cross_check": cross_check,
        "notes": notes,
    }


def request_counts(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> list[StepCounts]:
    """Return the step counts of each turn, in order."""
    k = draft_length(turns, cell)
    return [resolve(turn, cell, k) for turn in turns]


def prompt_counts(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return accepted draft tokens and verify steps of each prompt, over its ``ok`` turns.

    Sorted by prompt. Turns of which nothing is known are left out, as in ``pool``. Empty if
    another turn lacks one of the two: the pooled AL of those that have both would be biased.
    """
    ok = [turn for turn in turns if turn.outcome == "ok"]
    totals: dict[str, tuple[int, int]] = {}
    for turn, count in zip(ok, request_counts(ok, cell), strict=True):
        if count.told:
            if count.accepted is None or count.steps is None:
                return {}
            accepted, steps = totals.get(turn.prompt_id, (0, 0))
            totals[turn.prompt_id] = (accepted + count.accepted, steps + count.steps)
    return dict(sorted(totals.items()))


def pool(counts: Sequence[StepCounts], first_token: str | None) -> dict[str, Any]:
    """Return the numbers pooled over the steps of all requests.

    A ratio is over the requests of which anything is known, and None if one of them lacks a side
    of it: those that have both would be a biased choice. A total (``steps``,
    ``steps_drafted``, ``drafted``, ``accepted``) is None unless every request tells it.

    Args:
        counts: One entry a request.
        first_token: ``prefill`` where the first token is not a verify step's, ``verify`` where
            the engine verifies with the prefill, None if unknown.
    """
    pairs = _pool_pairs(counts)
    conditional = conditional_rates(pairs)
    gaps = [count.identity_gap for count in counts if count.identity_gap is not None]
    return {
        "al": _plus_one(_ratio(counts, "accepted", "steps")),
        "al_drafted": _plus_one(_ratio(counts, "accepted", "steps_drafted")),
        "al_emitted": _al_emitted(counts, first_token),
        "al_full_draft": al_full_draft(conditional),
        "ar": _ratio(counts, "accepted", "drafted"),
        "steps": _total(counts, "steps"),
        "steps_drafted": _total(counts, "steps_drafted"),
        "drafted": _total(counts, "drafted"),
        "accepted": _total(counts, "accepted"),
        "conditional": conditional,
        "unconditional": unconditional_rates(pairs),
        "identity_gap": {
            "sum": sum(gaps) if gaps else None,
            "counts": {str(gap): number for gap, number in sorted(Counter(gaps).items())},
        },
    }


def pool_counters(
    delta: CounterDelta, turns: Sequence[TurnRecord], cell: dict[str, Any]
) -> dict[str, Any]:
    """Return the pooled numbers from the server's counters.

    Steps, and with them ``al`` and ``al_emitted``, are told or derived only if every request is
    ``ok``: the counters also hold what was done for the others.
    """
    counts = request_counts(turns, cell)
    tokens = [count.tokens for count in counts if count.tokens]
    complete = len(tokens) == len(turns) and all(turn.outcome == "ok" for turn in turns)
    steps = _steps_from_counters(delta, turns, sum(tokens), cell) if complete else None
    outside = len(tokens) if cell.get("first_token") == "prefill" else 0
    own_steps = delta.steps if delta.steps is not None else delta.steps_drafted
    gap = None
    if complete and own_steps is not None and delta.accepted is not None:
        gap = sum(tokens) - own_steps - delta.accepted
    k = ((cell.get("cell") or {}).get("drafter") or {}).get("k")
    unconditional, conditional = counter_rates(delta, k)
    return {
        "al": _plus_one(divide(delta.accepted, steps)),
        "al_drafted": _plus_one(divide(delta.accepted, delta.steps_drafted)),
        "al_emitted": divide(sum(tokens) - outside, steps),
        "al_full_draft": al_full_draft(conditional),
        "ar": divide(delta.accepted, delta.drafted),
        "steps": steps,
        "steps_drafted": delta.steps_drafted,
        "drafted": delta.drafted,
        "accepted": delta.accepted,
        "conditional": conditional,
        "unconditional": unconditional,
        "identity_gap": {"sum": gap, "counts": {}},
    }


def per_request_mean(counts: Sequence[StepCounts]) -> dict[str, float | None]:
    """Return the unweighted means over requests of each request's own ``al`` and ``ar``.

    A request without a verify step has neither and is left out; a mean is None if a request of
    which something is known lacks a side of it.
    """
    told = [count for count in counts if count.told]
    known_al = all(None not in (count.steps, count.accepted) for count in told)
    known_ar = all(None not in (count.drafted, count.accepted) for count in told)
    return {
        "al": mean([al(count) for count in told]) if known_al else None,
        "ar": mean([divide(count.accepted, count.drafted) for count in told]) if known_ar else None,
    }


def al(count: StepCounts) -> float | None:
    """Return 1 + A / steps of one request."""
    return _plus_one(divide(count.accepted, count.steps))


def by_category(
    turns: Sequence[TurnRecord], counts: Sequence[StepCounts], first_token: str | None
) -> dict[str, dict[str, Any]]:
    """Return ``pool`` for each category, sorted by name; prompts without one are in none."""
    groups: dict[str, list[StepCounts]] = {}
    for turn, count in zip(turns, counts, strict=True):
        if turn.category is not None:
            groups.setdefault(turn.category, []).append(count)
    return {name: pool(groups[name], first_token) for name in sorted(groups)}


def _plus_one(value: float | None) -> float | None:
    return None if value is None else 1.0 + value


def _ratio(counts: Sequence[StepCounts], numerator: str, denominator: str) -> float | None:
    told = [count for count in counts if count.told]
    tops = [getattr(count, numerator) for count in told]
    bottoms = [getattr(count, denominator) for count in told]
    if None in tops or None in bottoms:
        return None
    return divide(sum(tops), sum(bottoms))


def _total(counts: Sequence[StepCounts], name: str) -> int | None:
    values = [getattr(count, name) for count in counts]
    return sum(values) if values and None not in values else None


def _al_emitted(counts: Sequence[StepCounts], first_token: str | None) -> float | None:
    if first_token not in ("prefill", "verify"):
        return None
    outside = 1 if first_token == "prefill" else 0
    emitted = steps = 0
    for count in counts:
        if count.tokens and count.told:
            if count.steps is None:
                return None
            emitted += count.tokens - outside
            steps += count.steps
    return divide(emitted, steps)


def _pool_pairs(counts: Sequence[StepCounts]) -> Counter[tuple[int, int]] | None:
    told = [count.pairs for count in counts if count.told]
    known = [pairs for pairs in told if pairs is not None]
    return sum(known, Counter()) if known and len(known) == len(told) else None


def _source(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> str | None:
    told = {turn.acceptance_source or "totals" for turn in turns if tells_acceptance(turn)}
    if told:
        return "+".join(sorted(told))
    return None if has_drafter(cell) else "definition"


def _request_notes(
    turns: Sequence[TurnRecord], counts: Sequence[StepCounts], cell: dict[str, Any]
) -> list[str]:
    """Return what a reader must know of the requests themselves."""
    notes = []
    conflicts = [turn for turn in turns if turn.acceptance_conflict is not None]
    if conflicts:
        notes.append(
            f"{len(conflicts)} of {len(turns)} requests contradict themselves; the first, "
            f"{conflicts[0].prompt_id}: {conflicts[0].acceptance_conflict}"
        )
    other = sum(
        turn.completion_tokens not in (None, sum(turn.chunk_tokens))
        for turn in turns
        if turn.chunk_tokens
    )
    if other:
        notes.append(
            f"in {other} of {len(turns)} requests the engine counted other completion tokens than "
            "came in the stream"
        )
    cut = sum(_cut(count) for count in counts) if cell.get("first_token") == "prefill" else 0
    if cut:
        notes.append(
            f"{cut} of {len(turns)} requests end inside a verify step (an EOS or the length "
            "limit); al counts all that the step accepted, al_emitted what was emitted"
        )
    if not has_drafter(cell) and any(count.accepted for count in counts):
        notes.append("the cell names no drafter, but the engine accepted draft tokens")
    return notes


def _cut(count: StepCounts) -> bool:
    """Whether fewer tokens came than the prefill and the steps gave."""
    if count.tokens is None or count.steps is None or count.accepted is None:
        return False
    return count.tokens < 1 + count.steps + count.accepted


def _cross_check(pooled: Mapping[str, Any], delta: CounterDelta) -> dict[str, Any]:
    """Compare what both tell; without a quantity that both tell there is no contradiction."""
    names = ("steps", "steps_drafted", "drafted", "accepted")
    responses = {name: pooled[name] for name in names}
    counters = {name: getattr(delta, name) for name in names}
    both = [name for name in names if None not in (responses[name], counters[name])]
    agrees = all(responses[name] == counters[name] for name in both)
    return {"agrees": agrees, "compared": both, "responses": responses, "counters": counters}


def _fill_from_counters(
    pooled: dict[str, Any], delta: CounterDelta, turns: Sequence[TurnRecord], cell: dict[str, Any]
) -> None:
    """Add what only the counters tell, for an engine whose responses lack a total.

    llama.cpp's lack the steps, TensorRT-LLM's may lack the accepted tokens.
    """
    counted = pool_counters(delta, turns, cell)
    for name in ("steps", "steps_drafted", "drafted", "accepted"):
        if pooled[name] is None:
            pooled[name] = counted[name]
    for name, top, bottom in (
        ("al", "accepted", "steps"),
        ("al_drafted", "accepted", "steps_drafted"),
    ):
        if pooled[name] is None:
            pooled[name] = _plus_one(divide(pooled[top], pooled[bottom]))
    if pooled["ar"] is None:
        pooled["ar"] = divide(pooled["accepted"], pooled["drafted"])
    for name in ("al_emitted", "al_full_draft", "conditional", "unconditional"):
        if pooled[name] is None:
            pooled[name] = counted[name]
    if pooled["identity_gap"]["sum"] is None:
        pooled["identity_gap"] = counted["identity_gap"]


def _steps_from_counters(
    delta: CounterDelta, turns: Sequence[TurnRecord], tokens: int, cell: dict[str, Any]
) -> int | None:
    if delta.steps is not None:
        return delta.steps
    if cell.get("first_token") != "prefill" or delta.accepted is None:
        return None
    chunks = [chunks_after_prefill(turn) for turn in turns]
    return derive_steps(
        tokens=tokens,
        requests=len(turns),
        accepted=delta.accepted,
        steps_drafted=delta.steps_drafted,
        chunks=None if None in chunks else sum(len(chunk or ()) for chunk in chunks),
    )
