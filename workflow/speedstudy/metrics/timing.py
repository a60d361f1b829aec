"""Latency of requests as the client saw it.

Only ``ok`` requests count. A chunk is one streamed event that carried at least one token, so
that role-only, empty and usage events never enter.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from speedstudy.metrics.steps import completion_tokens
from speedstudy.records import TurnRecord

Distribution = dict[str, float | None]
Floats = npt.NDArray[np.float64]


def latency(turns: Sequence[TurnRecord]) -> dict[str, Distribution]:
    """Return the distributions of TTFT, TPOT, ITL, chunk gap and E2E, in ms.

    TTFT and E2E are from when a request was sent, and beside that from when it was scheduled,
    which holds the wait for a free slot of an open loop too. They and TPOT are over requests;
    ITL is over tokens and chunk gaps over chunks, both pooled over all requests.
    """
    ok = [turn for turn in turns if turn.outcome == "ok"]
    return {
        "ttft_ms": distribution([ttft_ms(turn) for turn in ok]),
        "tpot_ms": distribution([tpot_ms(turn) for turn in ok]),
        "itl_ms": _pooled_distribution([itl_ms(turn) for turn in ok]),
        "chunk_gap_ms": _pooled_distribution([chunk_gap_ms(turn) for turn in ok]),
        "e2e_ms": distribution([e2e_ms(turn) for turn in ok]),
        "ttft_scheduled_ms": distribution([_from_schedule_ms(turn, 0) for turn in ok]),
        "e2e_scheduled_ms": distribution([_from_schedule_ms(turn, -1) for turn in ok]),
    }


def distribution(values: Sequence[float | None]) -> Distribution:
    """Return mean, p50, p90, p95 and p99 of the known values; all None if there is none.

    A percentile is numpy's default: linear interpolation between the two nearest ranks.
    """
    return _distribution(np.array([v for v in values if v is not None], dtype=np.float64))


def ttft_ms(turn: TurnRecord) -> float | None:
    """Return first chunk - sent, in ms."""
    if turn.sent_s is None or not turn.chunk_s:
        return None
    return (turn.chunk_s[0] - turn.sent_s) * 1000.0


def e2e_ms(turn: TurnRecord) -> float | None:
    """Return last chunk - sent, in ms; a trailing usage event does not count."""
    if turn.sent_s is None or not turn.chunk_s:
        return None
    return (turn.chunk_s[-1] - turn.sent_s) * 1000.0


def _from_schedule_ms(turn: TurnRecord, chunk: int) -> float | None:
    """Return a chunk's arrival - scheduled, in ms."""
    return (turn.chunk_s[chunk] - turn.scheduled_s) * 1000.0 if turn.chunk_s else None


def tpot_ms(turn: TurnRecord) -> float | None:
    """Return (last chunk - first chunk) / tokens after the first chunk, in ms.

    None if nothing follows the first chunk.
    """
    tokens = completion_tokens(turn)
    if len(turn.chunk_s) < 2 or tokens is None or tokens <= turn.chunk_tokens[0]:
        return None
    span_s = turn.chunk_s[-1] - turn.chunk_s[0]
    return span_s * 1000.0 / (tokens - turn.chunk_tokens[0])


def user_tok_per_s(turn: TurnRecord) -> float | None:
    """Return 1000 / ``tpot_ms``; None where that is undefined or 0 (all chunks in one read)."""
    per_token_ms = tpot_ms(turn)
    return 1000.0 / per_token_ms if per_token_ms else None


def chunk_gap_ms(turn: TurnRecord) -> Floats:
    """Return the gaps between neighbouring chunks, in ms and in order."""
    return np.diff(np.array(turn.chunk_s, dtype=np.float64)) * 1000.0


def itl_ms(turn: TurnRecord) -> Floats:
    """Return one gap a token after the first chunk, in ms.

    A chunk of n tokens after a gap g gives n gaps of g / n: the tokens of a chunk arrive
    together, and this spreads them over the time that they took.
    """
    tokens = np.array(turn.chunk_tokens[1:], dtype=np.int64)
    return np.repeat(chunk_gap_ms(turn) / tokens, tokens)


def _pooled_distribution(groups: Sequence[Floats]) -> Distribution:
    return _distribution(np.concatenate(groups) if groups else np.array([], dtype=np.float64))


def _distribution(values: Floats) -> Distribution:
    names = ("p50", "p90", "p95", "p99")
    if values.size == 0:
        return dict.fromkeys(("mean", *names))
    quantiles = np.percentile(values, [50, 90, 95, 99])
    return {
        "mean": float(values.mean()),
        **{name: float(value) for name, value in zip(names, quantiles, strict=True)},
    }
