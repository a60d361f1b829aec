"""Acceptance from a server's counters, read before and after a cell.

The client sums the counters over all engine series and gives them canonical names:
``{"before": {...}, "after": {...}, "error": null}``, each a mapping of ``num_steps``,
``num_drafts``, ``num_draft_tokens``, ``num_accepted_tokens`` (numbers),
``num_draft_tokens_per_pos`` and ``num_accepted_tokens_per_pos`` (lists over positions from the
first draft token on). A name that the server does not have is absent or None; ``error`` is what
the client found wrong with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CounterDelta:
    """What the server counted during the cell; None where it has no such counter.

    Attributes:
        steps: Verify steps, drafted or not.
        steps_drafted: Verify steps with at least one drafted token.
        drafted: Drafted tokens.
        accepted: Accepted draft tokens.
        drafted_per_position: Steps that drafted at least k + 1 tokens, at index k.
        accepted_per_position: Steps that accepted at least k + 1 tokens, at index k.
        conflict: Where a total is not the sum over its positions, or None.
    """

    steps: int | None = None
    steps_drafted: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    drafted_per_position: tuple[int, ...] | None = None
    accepted_per_position: tuple[int, ...] | None = None
    conflict: str | None = None


def counter_delta(counters: Mapping[str, Any] | None) -> CounterDelta | None:
    """Return after minus before, or None if the cell has no speculative counters.

    A counter that is absent before and present after starts at 0 (llama.cpp creates some of its
    counters on first use). A total that the server does not have is the sum over the positions;
    drafted steps are those that drafted the first position.

    Raises:
        ValueError: A counter fell or vanished: the server was restarted or its counters were
            reset; or the client says what else is wrong with them.
    """
    if not counters:
        return None
    if counters.get("error"):
        raise ValueError(f"the server's counters are of no use: {counters['error']}")
    if counters.get("after") is None:
        return None
    before, after = counters.get("before") or {}, counters["after"]
    drafted_at = _differences("num_draft_tokens_per_pos", before, after)
    accepted_at = _differences("num_accepted_tokens_per_pos", before, after)
    if drafted_at and accepted_at is None:
        accepted_at = (0,) * len(drafted_at)  # TensorRT-LLM makes a series with its first count
    steps_drafted = _difference("num_drafts", before, after)
    drafted = _difference("num_draft_tokens", before, after)
    accepted = _difference("num_accepted_tokens", before, after)
    conflicts = [
        f"{total} {name}, but {sum(parts)} over the positions"
        for name, total, parts in (
            ("drafted tokens", drafted, drafted_at),
            ("accepted tokens", accepted, accepted_at),
        )
        if parts and total not in (None, sum(parts))
    ]
    delta = CounterDelta(
        steps=_difference("num_steps", before, after),
        steps_drafted=drafted_at[0] if steps_drafted is None and drafted_at else steps_drafted,
        drafted=sum(drafted_at) if drafted is None and drafted_at else drafted,
        accepted=sum(accepted_at) if accepted is None and accepted_at else accepted,
        drafted_per_position=drafted_at,
        accepted_per_position=accepted_at,
        conflict="; ".join(conflicts) or None,
    )
    known = (delta.steps, delta.steps_drafted, delta.drafted, delta.accepted)
    return delta if any(value is not None for value in known) else None


def _difference(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    if after.get(name) is None:
        if before.get(name):
            raise ValueError(f"counter {name} vanished during the cell: the server was restarted")
        return None
    return _grown(name, before.get(name) or 0, after[name])


def _differences(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[int, ...] | None:
    if after.get(name) is None:
        return None
    pairs = zip_longest(before.get(name) or (), after[name], fillvalue=0)
    return tuple(_grown(f"{name}[{k}]", old, new) for k, (old, new) in enumerate(pairs))


def _grown(name: str, old: float, new: float) -> int:
    if new < old:
        raise ValueError(
            f"counter {name} fell from {old:g} to {new:g}: the server was restarted or its "
            "counters were reset during the cell; measure the cell again"
        )
    return round(new - old)
