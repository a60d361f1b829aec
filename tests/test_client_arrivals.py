"""Arrival times and ramps, by hand."""

from itertools import islice, pairwise
from statistics import mean, variance

import pytest

from speedstudy.client.arrivals import constant, due_times, gamma, poisson, ramped, slot_start_s
from speedstudy.client.options import LoadOptions
from speedstudy.dialects.reply import Sampling

GAPS = 20_000


def due(prompts=4, concurrency=1, **more):
    sampling = Sampling(max_tokens=1)
    options = LoadOptions(
        url="http://h", model="m", concurrency=concurrency, sampling=sampling, **more
    )
    return due_times(options, prompts)


def gaps(arrivals):
    return [later - earlier for earlier, later in pairwise([0.0, *islice(arrivals, GAPS)])]


def test_constant_arrivals_are_exact():
    assert list(islice(constant(4.0), 4)) == [0.0, 0.25, 0.5, 0.75]
    assert due(3, arrivals="constant", rate_per_s=8.0) == [0.0, 0.125, 0.25]


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_the_rate_and_the_variance_of_their_shape(shape):
    seen = gaps(gamma(50.0, shape, seed=3))
    # Mean 20 ms, variance mean^2 / shape; four standard errors of 20,000 gaps and some.
    assert mean(seen) == pytest.approx(0.02, rel=0.06)
    assert variance(seen) == pytest.approx(0.02**2 / shape, rel=0.25)
    assert list(islice(gamma(50.0, shape, 3), 5)) == list(islice(gamma(50.0, shape, 3), 5))


def test_gamma_of_shape_1_is_exponential():
    # Of exponential gaps, the share above their mean is 1/e.
    above = sum(gap > 0.02 for gap in gaps(gamma(50.0, 1.0, seed=1))) / GAPS
    assert above == pytest.approx(0.3679, abs=0.015)
    above = sum(gap > 0.02 for gap in gaps(poisson(50.0, seed=1))) / GAPS
    assert above == pytest.approx(0.3679, abs=0.015)


def test_a_trace_is_replayed_as_it_is():
    trace = (0.0, 0.5, 0.5, 2.0)
    assert due(2, arrivals="trace", trace_s=trace) == list(trace)
    assert due(9, arrivals="trace", trace_s=trace, requests=3) == [0.0, 0.5, 0.5]
    assert due(9, arrivals="trace", trace_s=trace, duration_s=0.6) == [0.0, 0.5, 0.5]


def test_a_duration_ends_the_arrivals_and_a_closed_loop_has_none():
    assert due(1, arrivals="constant", rate_per_s=2.0, duration_s=1.6) == [0.0, 0.5, 1.0, 1.5]
    assert due() is None


def test_an_even_ramp_of_the_rate():
    # At rate 1 over a ramp of 8 s, t^2 / 16 arrivals have come by t: the 1st at 4 s, the 4th at
    # 8 s, and one a second after that.
    assert [ramped(n, 8.0) for n in (0, 1, 4, 5, 6)] == [0, 4, 8, 9, 10]
    assert ramped(3.0, 0.0) == 3.0


def test_a_ramp_of_the_rate_in_steps():
    # Two steps of 4 s: half the rate until 4 s brings 2 arrivals, the full rate 4 until 8 s.
    assert [ramped(n, 8.0, 2) for n in (0, 1, 2, 3, 6, 7)] == [0, 2, 4, 5, 8, 9]


def test_a_ramped_schedule_rises():
    times = due(6, arrivals="constant", rate_per_s=1.0, ramp_s=8.0)
    assert times == pytest.approx([0, 4, 4 * 2**0.5, 4 * 3**0.5, 8, 9])


def test_slots_of_a_closed_loop_begin_over_the_ramp():
    assert [slot_start_s(slot, 4, 8.0) for slot in range(4)] == [0, 2, 4, 6]
    assert [slot_start_s(slot, 4, 8.0, 2) for slot in range(4)] == [0, 0, 4, 4]
    assert [slot_start_s(slot, 3, 0.0) for slot in range(3)] == [0, 0, 0]
