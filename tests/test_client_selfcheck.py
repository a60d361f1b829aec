"""What the client finds out about itself, from turns and reports made by hand."""

import pytest

from metric_records import reply
from speedstudy.client.decode import DecodedTurn
from speedstudy.client.outbox import check_sampling
from speedstudy.client.selfcheck import Tally, assess
from speedstudy.client.worker import WorkerReport
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling


def tally(*turns, **more):
    result = Tally(**more)
    for turn in turns:
        result.add(turn)
    return result


def open_between(sent_s, ended_s):
    return DecodedTurn(record=reply(sent_s=sent_s), late_s=0.0, ended_s=ended_s)


def steps(start_s, gap_s, count):
    """A reply with a token every ``gap_s``."""
    return DecodedTurn(record=reply([(start_s + gap_s * n, 1) for n in range(count + 1)]))


def test_most_in_flight():
    # The second is sent when the first ends: two are never open, in any order of the rows.
    turns = [open_between(2.0, 3.0), open_between(0.0, 1.0), open_between(1.0, 2.0)]
    assert tally(*turns).max_in_flight() == 1
    assert tally(*turns, open_between(0.5, 2.5)).max_in_flight() == 2
    assert tally().max_in_flight() == 0


def test_drift_of_the_median_gap():
    even = (steps(0.0, 0.02, 150), steps(5.0, 0.02, 150))
    assert tally(*even, end_s=10.0).drift() == 0
    slower = (steps(0.0, 0.02, 150), steps(5.0, 0.03, 150))
    assert tally(*slower, end_s=10.0).drift() == pytest.approx(0.5, abs=0.02)
    # Half of the time is at 20 s: nothing came after it.
    assert tally(*slower, end_s=40.0).drift() is None
    assert tally(steps(0.0, 0.02, 3), end_s=1.0).drift() is None
    verdict = assess(tally(*slower, end_s=10.0), [WorkerReport(name="w")])
    assert verdict["verdict"] == "drifting"
    assert "change of the median chunk gap" in verdict["crossed"][0]


def test_gaps_within_a_ramp_are_no_drift():
    turns = [steps(0.0, 0.05, 100), steps(6.0, 0.02, 110), steps(9.0, 0.02, 110)]
    assert tally(*turns, end_s=12.0).drift() > 0.25
    assert tally(*turns, steady_s=5.5, end_s=12.0).drift() == 0


def test_cached_tokens_beyond_the_shared_prefix_of_first_turns():
    def turn(cached, index=0):
        record = reply(cached_tokens=cached, turn=index)
        return DecodedTurn(record=record, sent_tokens=10)

    assert tally(turn(None), turn(None)).cached_share() is None
    assert tally(turn(0), turn(None)).cached_share() == 0
    assert tally(turn(4), turn(4), shared_prefix=4).cached_share() == 0
    assert tally(turn(9), turn(4), turn(10, index=1), shared_prefix=4).cached_share() == 5 / 20


def test_the_worst_of_several_processes_decides():
    idle = WorkerReport(name="idle", cpu_s=0.1, span_s=10.0, lags_ms=[0.5] * 1000)
    busy = WorkerReport(name="busy", cpu_s=9.0, span_s=10.0, lags_ms=[20.0] * 5, connections=3)
    seen = assess(Tally(), [idle, busy])
    assert seen["verdict"] == "client_bound"
    assert seen["crossed"] == ["client_bound: p99 loop lag, ms is 20, bound 10"]
    assert seen["cpu_share"] == pytest.approx(0.9)
    assert seen["connections"] == 3
    assert seen["workers"][1]["loop_lag_p99_ms"] == 20.0


def test_late_sending_is_a_bound_of_its_own():
    late = DecodedTurn(record=reply(), late_s=0.02)
    seen = assess(tally(late), [WorkerReport(name="w", cpu_s=0.1, span_s=1.0)])
    assert seen["crossed"] == ["contended: p99 send lateness, ms is 20, bound 10"]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_says_the_sampling_that_is_asked_for(dialect):
    sampling = Sampling(max_tokens=7, temperature=0.5, seed=3)
    check_sampling(dialect.body("m", [1, 2], sampling), sampling)


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 0.0},
        {"max_tokens": 7, "temperature": 0.0, "n_predict": 7},
        {"max_tokens": 8, "temperature": 0.0},
        {"max_tokens": 7},
        {"max_tokens": 7, "temperature": 0.0, "ignore_eos": True},
        {"max_tokens": 7, "temperature": 0.0, "seed": 1},
    ],
)
def test_a_body_that_says_other_sampling_is_refused(body):
    with pytest.raises(ValueError, match="the body says"):
        check_sampling(body, Sampling(max_tokens=7))
