"""Replies of 23, 1 and 0 tokens and a reply in one chunk: every metric by hand."""

import pytest

from metric_records import reply, stepped
from speedstudy.metrics.measure import measure

approx = pytest.approx
CELL = {"first_token": "prefill", "load": {"devices": 2}}
NO_TIMES = dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))


def same(value):
    """The distribution of one value."""
    return approx(dict.fromkeys(NO_TIMES, value))


def measured(turn):
    result = measure([turn], CELL)
    acceptance = result["acceptance"]
    return {
        **{name: result[name] for name in ("latency", "throughput", "output_length")},
        "pooled": acceptance["pooled"],
        "per_request_mean": acceptance["per_request_mean"],
        "ok": result["requests"]["ok"],
    }


def test_23_tokens():
    # The prefill token 200 ms after sending, then 13 steps every 20 ms: 5 drafted 3 and accepted
    # 3 0 2 3 1 (14 tokens), 8 drafted nothing (8 tokens). A = 9, steps = 13 = 23 - 1 - 9.
    sizes = [1, 4, 1, 1, 3, 1, 1, 4, 1, 1, 2, 1, 1, 1]
    turn = stepped([3] * 5, [3, 0, 2, 3, 1], tokens=23, finish_reason="length")
    turn.sent_s, turn.chunk_tokens = 1.0, sizes
    turn.chunk_s = [1.2 + 0.02 * i for i in range(14)]
    # Gaps of a token: 8 of 5 ms (chunks of 4), 3 of 6.67, 2 of 10, 9 of 20; ranks 0 to 21.
    result = measured(turn)
    assert result["latency"].pop("itl_ms") == approx(
        {"mean": 260 / 22, "p50": (20 / 3 + 10) / 2, "p90": 20, "p95": 20, "p99": 20}
    )
    assert {name: result["latency"][name] for name in ("ttft_ms", "tpot_ms", "e2e_ms")} == {
        "ttft_ms": same(200),
        "tpot_ms": same(260 / 22),
        "e2e_ms": same(460),
    }
    assert result["latency"]["chunk_gap_ms"] == same(20)
    assert result["throughput"] == approx(
        {
            **result["throughput"],
            "output_tok_per_s": 50,
            "output_tok_per_s_per_device": 25,
            "user_tok_per_s": 22 / 0.26,
            "requests_per_s": 1 / 0.46,
            "peak_tok_per_s": 50,
        }
    )
    assert result["pooled"] == {
        "al": approx(1 + 9 / 13),
        "al_drafted": approx(2.8),
        "al_emitted": approx(22 / 13),
        "al_full_draft": approx(2.8),
        "ar": approx(0.6),
        "steps": 13,
        "steps_drafted": 5,
        "drafted": 15,
        "accepted": 9,
        "conditional": approx([4 / 5, 3 / 4, 2 / 3]),
        "unconditional": approx([4 / 5, 3 / 5, 2 / 5]),
        "identity_gap": {"sum": 9, "counts": {"9": 1}},
    }
    assert result["per_request_mean"] == {"al": approx(22 / 13), "ar": approx(0.6)}
    assert result["output_length"] == {"mean_tokens": 23, "capped_share": 1}


def test_1_token():
    # No verify step ran: everything of acceptance is undefined, and so is every gap.
    result = measured(stepped([], [], tokens=1, sizes=[1], finish_reason="length"))
    assert result["latency"]["ttft_ms"] == result["latency"]["e2e_ms"] == same(100)
    for name in ("tpot_ms", "itl_ms", "chunk_gap_ms"):
        assert result["latency"][name] == NO_TIMES
    assert result["throughput"]["user_tok_per_s"] is None
    for name in ("output_tok_per_s", "requests_per_s", "peak_tok_per_s"):
        assert result["throughput"][name] == approx(10)
    counted = {"steps": 0, "steps_drafted": 0, "drafted": 0, "accepted": 0}
    gap = {"sum": 1, "counts": {"1": 1}}
    undefined = dict.fromkeys(result["pooled"])
    assert result["pooled"] == undefined | counted | {"identity_gap": gap}
    assert result["per_request_mean"] == {"al": None, "ar": None}


def test_0_tokens():
    # An empty reply is counted, and is in nothing else.
    result = measured(reply(outcome="empty", completion_tokens=0))
    assert result["ok"] == 0
    assert all(values == NO_TIMES for values in result["latency"].values())
    assert set(result["throughput"].values()) == {None}
    undefined = dict.fromkeys(result["pooled"])
    assert result["pooled"] == undefined | {"identity_gap": {"sum": None, "counts": {}}}
    assert result["output_length"] == {"mean_tokens": None, "capped_share": None}


def test_a_reply_in_one_chunk():
    # 8 = 1 + (3 + 1) + (2 + 1), all in one read at 100 ms: lengths are known, gaps are not.
    result = measured(stepped([3, 3], [3, 2], tokens=8, sizes=[8], finish_reason="stop"))
    assert result["latency"]["ttft_ms"] == result["latency"]["e2e_ms"] == same(100)
    for name in ("tpot_ms", "itl_ms", "chunk_gap_ms"):
        assert result["latency"][name] == NO_TIMES
    assert result["throughput"]["user_tok_per_s"] is None
    assert result["throughput"]["output_tok_per_s"] == approx(80)
    assert result["throughput"]["output_tok_per_s_per_device"] == approx(40)
    assert result["throughput"]["peak_tok_per_s"] == approx(80)
    assert result["pooled"] == {
        "al": 3.5,
        "al_drafted": 3.5,
        "al_emitted": 3.5,
        "al_full_draft": 3.5,
        "ar": approx(5 / 6),
        "steps": 2,
        "steps_drafted": 2,
        "drafted": 6,
        "accepted": 5,
        "conditional": [1.0, 1.0, 0.5],
        "unconditional": [1.0, 1.0, 0.5],
        "identity_gap": {"sum": 1, "counts": {"1": 1}},
    }
