"""Latency and rates by hand; the project's list of vectors is in test_vectors.py."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_records import PREFILL, reply
from speedstudy.metrics.throughput import throughput
from speedstudy.metrics.timing import distribution, latency, user_tok_per_s

approx = pytest.approx


def means(turns):
    return {name: values["mean"] for name, values in latency(turns).items()}


def test_23_tokens():
    # First token at +200 ms, 13 chunks of 22 tokens every 20 ms after it.
    sizes = [1, 4, 1, 1, 3, 1, 1, 4, 1, 1, 2, 1, 1, 1]
    turn = reply([(1.2 + 0.02 * i, n) for i, n in enumerate(sizes)], sent_s=1.0)
    assert means([turn]) == approx(
        {
            "ttft_ms": 200,
            "tpot_ms": 260 / 22,
            "itl_ms": 260 / 22,
            "chunk_gap_ms": 20,
            "e2e_ms": 460,
            "ttft_scheduled_ms": 1200,  # scheduled at 0
            "e2e_scheduled_ms": 1460,
        }
    )
    # 8 tokens of chunks of 4 have 5 ms, 3 have 6.67, 2 have 10, 9 have 20: the median is between
    # the 11th and the 12th of 22 in order, 6.67 and 10.
    assert latency([turn])["itl_ms"]["p50"] == approx((20 / 3 + 10) / 2)
    rates = throughput([turn], {"load": {"devices": 2}})
    assert rates == approx(
        {
            "output_tok_per_s": 50,
            "output_tok_per_s_per_device": 25,
            "user_tok_per_s": 22 / 0.26,
            "requests_per_s": 1 / 0.46,
            "peak_tok_per_s": 50,
        }
    )


def test_empty_and_failed_replies_are_in_no_latency():
    turns = [
        reply([(0.1, 1), (0.2, 1)]),
        reply(outcome="empty", completion_tokens=0),
        reply(outcome="error", sent_s=None),
        reply([(0.1, 1), (9.0, 1)], outcome="incomplete"),
    ]
    assert latency(turns) == latency(turns[:1])


def test_every_request_failed():
    turns = [reply([(0.1, 1)], outcome="incomplete"), reply(outcome="error")]
    assert set(throughput(turns, PREFILL).values()) == {None}
    assert all(value is None for values in latency(turns).values() for value in values.values())


def test_span_is_that_of_the_whole_load():
    # The first request was sent at 0 and timed out; the ok one is 1 s to 2 s with 10 tokens.
    turns = [
        reply(outcome="timeout", sent_s=0.0),
        reply([(1.5, 1), (2.0, 9)], sent_s=1.0, prompt_id="q"),
    ]
    rates = throughput(turns, PREFILL)
    assert rates["output_tok_per_s"] == approx(5)
    assert rates["requests_per_s"] == approx(0.5)


def test_peak_is_the_busiest_second():
    # 2 tokens at 0.5 s, 30 within 2.1 to 2.9 s, 1 at 10 s.
    turn = reply([(0.5, 2), (2.1, 10), (2.5, 10), (2.9, 10), (10.0, 1)])
    assert throughput([turn], PREFILL)["peak_tok_per_s"] == approx(30)


def test_chunks_of_one_read_have_no_user_rate():
    # All stamps equal: the time a token took was not seen.
    turn = reply([(0.1, 1), (0.1, 1)])
    assert user_tok_per_s(turn) is None
    assert latency([turn])["tpot_ms"]["mean"] == 0.0


def test_unknown_devices_give_no_rate_per_device():
    assert throughput([reply([(0.1, 1)])], {})["output_tok_per_s_per_device"] is None


def test_percentiles_interpolate_linearly():
    # Ranks 0..10 of 0, 10, ... 100: p95 lies half way from rank 9 to 10.
    values = distribution([10.0 * i for i in range(11)])
    assert values == approx({"mean": 50, "p50": 50, "p90": 90, "p95": 95, "p99": 99})


CHUNKS = st.lists(st.tuples(st.floats(0.001, 0.8), st.integers(1, 5)), min_size=1, max_size=12).map(
    lambda gaps: [
        (sum(gap for gap, _ in gaps[: i + 1]), tokens) for i, (_, tokens) in enumerate(gaps)
    ]
)


@settings(deadline=None)
@given(st.lists(CHUNKS, min_size=1, max_size=5))
def test_peak_is_never_below_the_average(replies):
    turns = [
        reply([(second + 0.3 * i, n) for second, n in chunks], sent_s=0.3 * i)
        for i, chunks in enumerate(replies)
    ]
    rates = throughput(turns, PREFILL)
    assert rates["peak_tok_per_s"] >= rates["output_tok_per_s"]


@settings(deadline=None)
@given(CHUNKS)
def test_token_gaps_add_up_to_the_decode_time(chunks):
    turn = reply(chunks)
    values = latency([turn])
    following = turn.completion_tokens - turn.chunk_tokens[0]
    if following:
        assert values["itl_ms"]["mean"] == approx(values["tpot_ms"]["mean"])
        assert values["itl_ms"]["p50"] <= values["itl_ms"]["p99"]
