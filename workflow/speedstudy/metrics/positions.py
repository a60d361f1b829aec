"""Acceptance by draft position, from (L, j) pairs or from counters per position.

A pair counts the steps that drafted L tokens and accepted the first j of them. Lists have the
rate of position k at index k - 1.
"""

from collections.abc import Mapping
from itertools import zip_longest

from speedstudy.metrics.counters import CounterDelta
from speedstudy.metrics.ratios import divide

Rates = list[float | None]


def counter_rates(delta: CounterDelta, k: int | None) -> tuple[Rates | None, Rates | None]:
    """Return unconditional and conditional rates from counters per position.

    Both are known if every step drafted k tokens (drafted = k * steps). Where the server also
    counts the drafted tokens per position (TensorRT-LLM), the unconditional rates are known for
    any draft lengths. Both are None otherwise. Without a configured k it is the number of
    positions.
    """
    at_least, offered = delta.accepted_per_position, delta.drafted_per_position
    steps = delta.steps_drafted
    if not at_least or not steps:
        return None, None
    if delta.drafted != (k or len(at_least)) * steps:
        if offered is None:
            return None, None
        return [divide(n, of) for n, of in zip_longest(at_least, offered, fillvalue=0)], None
    reached = [steps, *at_least[:-1]]
    unconditional = [divide(number, steps) for number in at_least]
    conditional = [divide(number, prior) for number, prior in zip(at_least, reached, strict=True)]
    return unconditional, conditional


def unconditional_rates(pairs: Mapping[tuple[int, int], int] | None) -> Rates | None:
    """Return a_k = #(j >= k) / #(L >= k) for k = 1 to the longest draft; None if L is unknown."""
    if not pairs:
        return None
    rates: Rates = []
    for k in range(1, max(length for length, _ in pairs) + 1):
        accepted = sum(n for (_, j), n in pairs.items() if j >= k)
        offered = sum(n for (length, _), n in pairs.items() if length >= k)
        rates.append(divide(accepted, offered))
    return rates or None


def conditional_rates(pairs: Mapping[tuple[int, int], int] | None) -> Rates | None:
    """Return c_k = #(j >= k) / #(j >= k-1 and L >= k), the paper's AR_k; None if L is unknown."""
    if not pairs:
        return None
    rates: Rates = []
    for k in range(1, max(length for length, _ in pairs) + 1):
        accepted = sum(n for (_, j), n in pairs.items() if j >= k)
        reached = sum(n for (length, j), n in pairs.items() if j >= k - 1 and length >= k)
        rates.append(divide(accepted, reached))
    return rates or None


def al_full_draft(conditional: Rates | None) -> float | None:
    """Return 1 + sum over k of the product of c_1 to c_k (SPEED-Bench, equation 1).

    It is the acceptance length of a drafter that always drafts to the end. It equals
    ``al_drafted`` where every draft has the same length, and only there.
    """
    if conditional is None:
        return None
    length, reach = 1.0, 1.0
    for rate in conditional:
        if reach == 0.0:
            break
        if rate is None:
            return None
        reach *= rate
        length += reach
    return length
