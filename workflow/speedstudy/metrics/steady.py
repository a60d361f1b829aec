"""The part of a load in which it was steady: start and drain left out by rule.

The whole run is the headline; the steady part stands beside it. In a closed loop of concurrency
C it begins when the first C requests have their first token, since until then prefills pile up
that later come spread out, and it ends when the last conversation is sent, since from then on
fewer than C are open. In an open loop it begins when the first request has ended and ends with the
last arrival. It never begins before a ramp is over.
"""

from collections.abc import Sequence
from typing import Any

from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.timing import latency, user_tok_per_s
from speedstudy.records import TurnRecord


def steady(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of the steady part; all None, and 0 requests, if there is none.

    Returns:
        ``start_s`` and ``end_s`` on the record's clock; ``requests``, the ``ok`` ones that were
        sent and ended within; ``latency`` and ``user_tok_per_s`` over those; and
        ``output_tok_per_s``, the tokens of ``ok`` requests that came within, over its length.
        Requests that are whole within a short window are the shorter ones: read the latencies of
        a window that is long beside ``e2e_ms``.
    """
    window = steady_window(turns, cell.get("load") or {})
    start_s, end_s = window or (None, None)
    ok = [turn for turn in turns if turn.outcome == "ok" and turn.sent_s is not None]
    tokens, whole = 0, []
    if window is not None:
        tokens = sum(_tokens_within(turn, *window) for turn in ok)
        whole = [turn for turn in ok if _is_within(turn, *window)]
    return {
        "start_s": start_s,
        "end_s": end_s,
        "requests": len(whole),
        "latency": latency(whole),
        "output_tok_per_s": None if window is None else divide(tokens, window[1] - window[0]),
        "user_tok_per_s": mean([user_tok_per_s(turn) for turn in whole]),
    }


def steady_window(turns: Sequence[TurnRecord], load: dict[str, Any]) -> tuple[float, float] | None:
    """Return start and end of the steady part in seconds, or None if it is empty or unknown."""
    sent = sorted((turn for turn in turns if turn.sent_s is not None), key=lambda t: t.sent_s or 0)
    firsts = [turn for turn in sent if turn.turn == 0]
    concurrency = load.get("concurrency")
    if not firsts or concurrency is None:
        return None
    if load.get("arrivals", "closed") == "closed":
        if len(firsts) <= concurrency:
            return None
        begins = [turn.chunk_s[0] for turn in firsts[:concurrency] if turn.chunk_s]
        start_s = max(begins, default=None)
        end_s = max(turn.sent_s or 0.0 for turn in firsts)
    else:
        start_s = min((turn.chunk_s[-1] for turn in sent if turn.chunk_s), default=None)
        end_s = max(turn.scheduled_s for turn in firsts)
    if start_s is None:
        return None
    start_s = max(start_s, load.get("ramp_s") or 0.0)
    return (start_s, end_s) if start_s < end_s else None


def _is_within(turn: TurnRecord, start_s: float, end_s: float) -> bool:
    sent_s = turn.sent_s
    return (
        sent_s is not None
        and bool(turn.chunk_s)
        and sent_s >= start_s
        and turn.chunk_s[-1] <= end_s
    )


def _tokens_within(turn: TurnRecord, start_s: float, end_s: float) -> int:
    chunks = zip(turn.chunk_s, turn.chunk_tokens, strict=True)
    return sum(tokens for stamp_s, tokens in chunks if start_s < stamp_s <= end_s)
