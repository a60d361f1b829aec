"""Rates of a cell: tokens and requests over the time that the load took."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.steps import completion_tokens
from speedstudy.metrics.timing import user_tok_per_s
from speedstudy.records import TurnRecord

PEAK_WINDOW_S = 1.0


def throughput(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> dict[str, float | None]:
    """Return the rates of a cell; all None if no request is ``ok``.

    Tokens and requests are those that ended ``ok``; the span is that of the whole load.
    ``output_tok_per_s_per_device`` divides by ``load.devices`` of the cell's record.
    """
    ok = [turn for turn in turns if turn.outcome == "ok"]
    duration_s = span_s(turns) if ok else None
    tokens = sum(completion_tokens(turn) or 0 for turn in ok)
    output_tok_per_s = divide(tokens, duration_s)
    return {
        "output_tok_per_s": output_tok_per_s,
        "output_tok_per_s_per_device": divide(
            output_tok_per_s, (cell.get("load") or {}).get("devices")
        ),
        "user_tok_per_s": mean([user_tok_per_s(turn) for turn in ok]),
        "requests_per_s": divide(len(ok), duration_s),
        "peak_tok_per_s": _peak_tok_per_s(ok, duration_s, output_tok_per_s),
    }


def span_s(turns: Sequence[TurnRecord]) -> float | None:
    """Return last token stamp - first sent, over all requests whatever their outcome.

    None if nothing was sent or no token came.
    """
    sent = [turn.sent_s for turn in turns if turn.sent_s is not None]
    stamps = [turn.chunk_s[-1] for turn in turns if turn.chunk_s]
    return max(stamps) - min(sent) if sent and stamps else None


def _peak_tok_per_s(
    turns: Sequence[TurnRecord], duration_s: float | None, average: float | None
) -> float | None:
    """Return the most tokens in any window (t - w, t] over w = min(1 s, span).

    Windows that end at a chunk are enough to find the maximum. The average is a lower bound by
    definition: bursts in a span that is no whole number of windows could fall below it.
    """
    if not duration_s or average is None:
        return None
    stamps = np.concatenate([np.array(turn.chunk_s, dtype=np.float64) for turn in turns])
    tokens = np.concatenate([np.array(turn.chunk_tokens, dtype=np.int64) for turn in turns])
    window_s = min(PEAK_WINDOW_S, duration_s)
    order = np.argsort(stamps, kind="stable")
    stamps, total = stamps[order], np.concatenate([[0], np.cumsum(tokens[order])])
    ends = np.searchsorted(stamps, stamps, side="right")
    starts = np.searchsorted(stamps, stamps - window_s, side="right")
    most = int(np.max(total[ends] - total[starts], initial=0))
    return max(most / window_s, average)
