"""What the client knows of its own error, and a verdict on the measurement.

Needs the decoded turns and what was sampled while the load ran, leaves the ``client`` object of
``cell.json``. A verdict other than ``valid`` voids no record; it says what the numbers are worth.
"""

import asyncio
import math
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

from speedstudy.client.decode import DecodedTurn

LAG_SAMPLE_EVERY_S = 0.02
# A stamp is late by what the event loop lags. 10 ms is a tenth of an ordinary TTFT and about one
# chunk gap of a fast engine; a client that lags so in one of a hundred samples distorts tails.
LOOP_LAG_P99_BOUND_MS = 10.0
# The same, for requests that could have gone out and did not.
SEND_LATENESS_P99_BOUND_MS = 10.0
# Above this share of one core a lag is the client's own work, below it other processes took
# the core: one event loop cannot use more than one.
OWN_CPU_SHARE_BOUND = 0.7
# The share above which a prefix cache shortens prefill visibly (the bound of vLLM's speculators
# evaluation). What all prompts begin with, a template's system prompt, does not count.
CACHED_SHARE_BOUND = 0.05
# The median gap of a steady run's halves differs by less, small samples included.
DRIFT_BOUND = 0.25
DRIFT_LEAST_GAPS = 200


async def sample_loop_lag(lags_ms: list[float]) -> None:
    """Append, until cancelled, by how many ms the event loop woke later than asked."""
    while True:
        due = perf_counter() + LAG_SAMPLE_EVERY_S
        await asyncio.sleep(LAG_SAMPLE_EVERY_S)
        lags_ms.append(max(0.0, (perf_counter() - due) * 1000))


def assess(
    turns: Sequence[DecodedTurn],
    *,
    lags_ms: Sequence[float],
    cpu_share: float,
    max_in_flight: int,
    shared_prefix_tokens: int,
) -> dict[str, Any]:
    """Return the self-check: figures, verdict, and each bound that was crossed in words.

    The verdict names the first bound crossed, in the order ``client_bound`` or ``contended``
    (the client's stamps are late, by its own work or since others had the CPU), ``cached``
    (prompts came from the prefix cache), ``drifting`` (the server was not steady). The share of
    coalesced chunks is a figure without a bound: a server that writes several events at once
    causes it as well as a late client, and the late client shows in its lag.

    Args:
        turns: All turns of the load.
        lags_ms: Samples of ``sample_loop_lag``.
        cpu_share: CPU time of the client over the span of the load, in cores.
        max_in_flight: Most requests in flight at a time.
        shared_prefix_tokens: Ids that all prompts have in common at their beginning.
    """
    chunks = sum(len(turn.record.chunk_s) for turn in turns)
    coalesced = sum(turn.record.coalesced_reads for turn in turns)
    late_ms = [turn.late_s * 1000 for turn in turns if turn.late_s is not None]
    lag, lateness = summary(lags_ms), summary(late_ms)
    coalesced_share = coalesced / chunks if chunks else None
    cached_share = _cached_share(turns, shared_prefix_tokens)
    drift = _drift(turns)

    late_verdict = "client_bound" if cpu_share > OWN_CPU_SHARE_BOUND else "contended"
    checks = (
        (late_verdict, "p99 loop lag, ms", lag["p99"], LOOP_LAG_P99_BOUND_MS),
        (late_verdict, "p99 send lateness, ms", lateness["p99"], SEND_LATENESS_P99_BOUND_MS),
        ("cached", "share of cached prompt tokens", cached_share, CACHED_SHARE_BOUND),
        ("drifting", "change of the median chunk gap", drift, DRIFT_BOUND),
    )
    crossed = [
        (verdict, f"{verdict}: {what} is {value:.3g}, bound {bound:g}")
        for verdict, what, value, bound in checks
        if value is not None and value > bound
    ]
    return {
        "verdict": crossed[0][0] if crossed else "valid",
        "crossed": [text for _, text in crossed],
        "loop_lag_ms": lag,
        "send_lateness_ms": lateness,
        "coalesced_share": coalesced_share,
        "cpu_share": cpu_share,
        "max_in_flight": max_in_flight,
        "cached_share": cached_share,
        "drift": drift,
        "prompts_differ": sum(turn.prompt_differs for turn in turns),
        "assumed_chunks": sum(turn.assumed_chunks for turn in turns),
    }


def summary(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean, p50, p90, p99 (nearest rank) and max; each None without values."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[math.ceil(share * len(ordered)) - 1]

    return {
        "mean": sum(ordered) / len(ordered),
        "p50": rank(0.5),
        "p90": rank(0.9),
        "p99": rank(0.99),
        "max": ordered[-1],
    }


def shared_prefix(sequences: Sequence[tuple[int, ...]]) -> int:
    """Return how many ids all sequences begin with; 0 for fewer than two different ones."""
    if not sequences or min(sequences) == max(sequences):
        return 0
    first, last = min(sequences), max(sequences)  # in lexical order the ends differ first
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return length


def _cached_share(turns: Sequence[DecodedTurn], shared_prefix_tokens: int) -> float | None:
    """Cached prompt tokens beyond the shared prefix over prompt tokens, first turns only."""
    told = [turn for turn in turns if turn.record.turn == 0 and turn.record.cached_tokens]
    if not told:
        zero = any(turn.record.cached_tokens == 0 for turn in turns)
        return 0.0 if zero else None
    sent = sum(turn.sent_tokens for turn in turns if turn.record.turn == 0)
    beyond = sum(max(0, (turn.record.cached_tokens or 0) - shared_prefix_tokens) for turn in told)
    return beyond / sent


def _drift(turns: Sequence[DecodedTurn]) -> float | None:
    """Relative change of the median chunk gap from the first half of all gaps to the second."""
    gaps = sorted(
        (later, later - earlier)
        for turn in turns
        for earlier, later in zip(turn.record.chunk_s, turn.record.chunk_s[1:], strict=False)
        if later > earlier
    )
    if len(gaps) < DRIFT_LEAST_GAPS:
        return None
    half = len(gaps) // 2
    first = median(gap for _, gap in gaps[:half])
    second = median(gap for _, gap in gaps[half:])
    return abs(second - first) / first
