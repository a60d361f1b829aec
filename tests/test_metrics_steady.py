"""The steady part of a load, by hand."""

import pytest

from metric_records import reply
from speedstudy.metrics.steady import steady, steady_window

CLOSED = {"concurrency": 2}


def sent(at_s, *stamps_s, turn=0, **more):
    return reply([(stamp_s, 2) for stamp_s in stamps_s], sent_s=at_s, turn=turn, **more)


# Two slots: the first requests have a token at 1 and 2 s; the last is sent at 7 s and ends at 9 s.
TURNS = [
    sent(0.0, 1.0, 3.0),
    sent(0.0, 2.0, 4.0),
    sent(3.0, 4.0, 5.0, 6.0),
    sent(4.0, 5.5, 7.0),
    sent(6.0, 8.0, 8.5),
    sent(7.0, 8.0, 9.0),
]


def test_closed_loop():
    seen = steady(TURNS, {"load": CLOSED})
    assert (seen["start_s"], seen["end_s"]) == (2.0, 7.0)
    # Within (2, 7]: stamps 3, 4, 4, 5, 6, 5.5 and 7 with two tokens each, in 5 s.
    assert seen["output_tok_per_s"] == pytest.approx(14 / 5)
    # Sent and ended within: those of 3 s (TTFT 1 s, 4 tokens in 2 s after the first) and of 4 s
    # (TTFT 1.5 s, 2 tokens in 1.5 s).
    assert seen["requests"] == 2
    assert seen["latency"]["ttft_ms"]["mean"] == pytest.approx(1250)
    assert seen["user_tok_per_s"] == pytest.approx((2 + 2 / 1.5) / 2)


def test_failed_requests_shape_the_window_but_are_not_in_it():
    turns = [*TURNS[:3], sent(4.0, 5.5, 7.0, outcome="incomplete"), *TURNS[4:]]
    seen = steady(turns, {"load": CLOSED})
    assert (seen["start_s"], seen["end_s"], seen["requests"]) == (2.0, 7.0, 1)
    assert seen["output_tok_per_s"] == pytest.approx(10 / 5)
    failed = sent(0.0, outcome="error")
    assert steady_window([failed, *TURNS], CLOSED) == (1.0, 7.0)


def test_later_turns_hold_their_slot():
    turns = [*TURNS, sent(9.0, 10.0, turn=1)]
    assert steady_window(turns, CLOSED) == (2.0, 7.0)


def test_a_ramp_is_left_out():
    assert steady_window(TURNS, {**CLOSED, "ramp_s": 5.0}) == (5.0, 7.0)
    assert steady_window(TURNS, {**CLOSED, "ramp_s": 8.0}) is None


def test_open_loop():
    turns = [sent(0.0, 1.0, 3.0), sent(2.0, 3.5, 5.0), sent(6.5, 7.0, 8.0)]
    for turn, scheduled_s in zip(turns, (0.0, 2.0, 6.0), strict=True):
        turn.scheduled_s = scheduled_s
    load = {"concurrency": 8, "arrivals": "poisson"}
    assert steady_window(turns, load) == (3.0, 6.0)


@pytest.mark.parametrize("turns", [[], TURNS[:2], [sent(None)]])
def test_none_where_the_load_is_never_full_or_never_begins_to_drain(turns):
    seen = steady(turns, {"load": CLOSED})
    assert (seen["start_s"], seen["output_tok_per_s"], seen["requests"]) == (None, None, 0)
    assert steady(TURNS, {})["start_s"] is None
