"""Acceptance from a server's counters, read before and after a cell.

The client sums the counters over all engine series and gives them canonical names:
``{"before": {...}, "after": {...}, "error": null}``, each a mapping of ``num_drafts``,
``num_draft_tokens``, ``num_accepted_tokens`` (numbers) and ``num_accepted_tokens_per_pos`` (a list
over positions from the first draft token on). A name that the server does not have is absent or
None; ``error`` is what the client found wrong with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CounterDelta:
    """What the server counted during the cell; None where it has no such counter.

    Attributes:
        steps_drafted: Verify steps with at least one drafted token.
        drafted: Drafted tokens.
        accepted: Accepted draft tokens.
        accepted_per_position: Steps that accepted at least k + 1 tokens, at index k.
    """

    steps_drafted: int | None
    drafted: int | None
    accepted: int | None
    accepted_per_position: tuple[int, ...] | None


def counter_delta(counters: Mapping[str, Any] | None) -> CounterDelta | None:
    """Return after minus before, or None if the cell has no speculative counters.

    A counter that is absent before and present after starts at 0 (llama.cpp creates some of its
    counters on first use).

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
    per_position = after.get("num_accepted_tokens_per_pos")
    delta = CounterDelta(
        steps_drafted=_difference("num_drafts", before, after),
        drafted=_difference("num_draft_tokens", before, after),
        accepted=_difference("num_accepted_tokens", before, after),
        accepted_per_position=None
        if per_position is None
        else _differences(before.get("num_accepted_tokens_per_pos") or (), per_position),
    )
    known = (delta.steps_drafted, delta.drafted, delta.accepted)
    return delta if any(value is not None for value in known) else None


def _difference(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    if after.get(name) is None:
        if before.get(name):
            raise ValueError(f"counter {name} vanished during the cell: the server was restarted")
        return None
    return _grown(name, before.get(name) or 0, after[name])


def _differences(before: Sequence[float], after: Sequence[float]) -> tuple[int, ...]:
    name = "num_accepted_tokens_per_pos"
    pairs = zip_longest(before, after, fillvalue=0)
    return tuple(_grown(f"{name}[{k}]", old, new) for k, (old, new) in enumerate(pairs))


def _grown(name: str, old: float, new: float) -> int:
    if new < old:
        raise ValueError(
            f"counter {name} fell from {old:g} to {new:g}: the server was restarted or its "
            "counters were reset during the cell; measure the cell again"
        )
    return round(new - old)
