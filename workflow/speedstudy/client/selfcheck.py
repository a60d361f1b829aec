"""What the client knows of its own error, and a verdict on the measurement.

Needs the decoded turns one by one and what the workers report, leaves the ``client`` object of
``cell.json``. A verdict other than ``valid`` voids no record; it says what the numbers are worth.
"""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from speedstudy.client.decode import DecodedTurn
from speedstudy.client.worker import WorkerReport

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
DRIFT_LEAST_GAPS = 100  # in each half
# Gaps are counted in bins of 1 %, from 1 us on: a median is then known to 1 % in little memory.
BIN_RATIO = 1.01
LEAST_GAP_S = 1e-6
BINS = 2400


class Tally:
    """What the self-check keeps of the turns; grows by four numbers a request."""

    def __init__(
        self, *, steady_s: float = 0.0, end_s: float = 0.0, shared_prefix: int = 0
    ) -> None:
        """Begin a tally.

        Args:
            steady_s: When concurrency or rate had its full value, in seconds from the start.
            end_s: When the load ended.
            shared_prefix: Ids that all prompts have in common at their beginning.
        """
        self.chunks = self.coalesced = self.assumed_chunks = 0
        self.prompts_told = self.prompts_differ = 0
        self.late_ms = array("d")
        self._steady_s, self._half_s = steady_s, (steady_s + end_s) / 2
        self._shared_prefix = shared_prefix
        self._first_tokens = self._cached_tokens = 0
        self._cache_told = False
        self._sent_s, self._ended_s = array("d"), array("d")
        self._gaps = np.zeros((2, BINS), dtype=np.int64)

    def add(self, turn: DecodedTurn) -> None:
        """Take in a turn."""
        record = turn.record
        self.chunks += len(record.chunk_s)
        self.coalesced += record.coalesced_reads
        self.prompts_told += turn.prompt_told
        self.prompts_differ += turn.prompt_differs
        self.assumed_chunks += turn.assumed_chunks
        if turn.late_s is not None:
            self.late_ms.append(turn.late_s * 1000)
        if record.sent_s is not None and turn.ended_s is not None:
            self._sent_s.append(record.sent_s)
            self._ended_s.append(turn.ended_s)
        if record.turn == 0:
            self._first_tokens += turn.sent_tokens
            if record.cached_tokens is not None:
                self._cache_told = True
                self._cached_tokens += max(0, record.cached_tokens - self._shared_prefix)
        self._add_gaps(np.array(record.chunk_s, dtype=np.float64))

    def max_in_flight(self) -> int:
        """Return the most requests that were open at a time; one that ends makes room first."""
        starts, ends = np.sort(self._sent_s), np.sort(self._ended_s)
        over = np.searchsorted(ends, starts, side="right")
        return int(np.max(np.arange(1, len(starts) + 1) - over, initial=0))

    def cached_share(self) -> float | None:
        """Cached prompt tokens beyond the shared prefix over prompt tokens, first turns only.

        None if the server tells nothing.
        """
        if not self._cache_told:
            return None
        return self._cached_tokens / self._first_tokens if self._first_tokens else 0.0

    def drift(self) -> float | None:
        """Relative change of the median chunk gap from the first half of the time to the second.

        None if either half has too few gaps.
        """
        counts = self._gaps.sum(axis=1)
        if counts.min() < DRIFT_LEAST_GAPS:
            return None
        cumulated = np.cumsum(self._gaps, axis=1)
        first, second = (
            int(np.searchsorted(row, (count + 1) // 2))
            for row, count in zip(cumulated, counts, strict=True)
        )
        return abs(BIN_RATIO ** (second - first) - 1)

    def _add_gaps(self, stamps_s: "np.ndarray[Any, np.dtype[np.float64]]") -> None:
        gaps_s, later_s = np.diff(stamps_s), stamps_s[1:]
        wanted = (gaps_s > 0) & (later_s >= self._steady_s)
        gaps_s, later_s = gaps_s[wanted], later_s[wanted]
        bins = np.log(gaps_s / LEAST_GAP_S) / math.log(BIN_RATIO)
        bins = np.clip(bins.astype(np.int64), 0, BINS - 1)
        second = later_s >= self._half_s
        self._gaps[0] += np.bincount(bins[~second], minlength=BINS)
        self._gaps[1] += np.bincount(bins[second], minlength=BINS)


def assess(tally: Tally, workers: Sequence[WorkerReport]) -> dict[str, Any]:
    """Return the self-check: figures, verdict, and each bound that was crossed in words.

    The verdict names the first bound crossed, in the order ``client_bound`` or ``contended``
    (the client's stamps are late, by its own work or since others had the CPU), ``cached``
    (prompts came from the prefix cache), ``drifting`` (the server was not steady). Lag and CPU
    are those of the worst worker. The share of coalesced chunks is a figure without a bound: a
    server that writes several events at once causes it as well as a late client, and the late
    client shows in its lag.
    """
    lags_p99_ms = [summary(worker.lags_ms)["p99"] or 0.0 for worker in workers]
    shares = [worker.cpu_s / worker.span_s if worker.span_s else 0.0 for worker in workers]
    cpu_share = max(shares, default=0.0)
    lateness = summary(tally.late_ms)
    cached_share, drift = tally.cached_share(), tally.drift()

    late_verdict = "client_bound" if cpu_share > OWN_CPU_SHARE_BOUND else "contended"
    checks = (
        (late_verdict, "p99 loop lag, ms", max(lags_p99_ms, default=0.0), LOOP_LAG_P99_BOUND_MS),
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
        "loop_lag_ms": summary([lag for worker in workers for lag in worker.lags_ms]),
        "send_lateness_ms": lateness,
        "coalesced_share": tally.coalesced / tally.chunks if tally.chunks else None,
        "cpu_share": cpu_share,
        "cpu_s": sum(worker.cpu_s for worker in workers),
        "connections": sum(worker.connections for worker in workers),
        "workers": [
            {
                "name": worker.name,
                "cpu_share": share,
                "connections": worker.connections,
                "loop_lag_p99_ms": lag_p99_ms,
            }
            for worker, share, lag_p99_ms in zip(workers, shares, lags_p99_ms, strict=True)
        ],
        "max_in_flight": tally.max_in_flight(),
        "cached_share": cached_share,
        "drift": drift,
        "prompts_told": tally.prompts_told,
        "prompts_differ": tally.prompts_differ,
        "assumed_chunks": tally.assumed_chunks,
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
