"""A drafter's cell against the baseline by hand."""

import pytest

from metric_records import reply
from speedstudy.metrics.compare import (
    first_difference,
    output_length_drift,
    projected_speedup,
    speedup_output,
    speedup_user,
    token_agreement,
)

approx = pytest.approx


def paced(prompt_id, tokens_per_s, tokens=11, **fields):
    gap = 1 / tokens_per_s
    chunks = [(1.0 + gap * i, 1) for i in range(tokens)]
    return reply(chunks, prompt_id=prompt_id, **fields)


# SPEED-Bench, table 10: AL, t_ar, t_sd and the printed projection.
TABLE_10 = [
    (2.12, 19.6, 25.9, 1.61),
    (1.86, 20.4, 27.5, 1.38),
    (1.17, 25.2, 34.1, 0.86),
    (2.93, 19.6, 25.9, 2.22),
    (2.59, 20.4, 27.5, 1.92),
    (1.19, 25.2, 34.1, 0.88),
    (2.47, 19.7, 35.3, 1.38),
    (2.49, 20.4, 38.6, 1.32),
    (2.60, 25.2, 59.9, 1.09),
    (3.12, 19.7, 35.3, 1.74),
    (3.16, 20.4, 38.6, 1.67),
    (3.21, 25.2, 59.9, 1.35),
]


@pytest.mark.parametrize(("al", "t_ar_ms", "t_sd_ms", "printed"), TABLE_10)
def test_projection_of_table_10(al, t_ar_ms, t_sd_ms, printed):
    # The inputs are printed with three digits, so the projection can move by 0.01.
    assert projected_speedup(t_ar_ms, al, t_sd_ms) == approx(printed, abs=0.0101)


def test_user_speedup_is_a_ratio_of_means_over_shared_prompts():
    baseline = [paced("a", 10), paced("b", 20), paced("only-here", 1000)]
    drafter = [paced("a", 30), paced("b", 30), paced("only-there", 1)]
    speedup = speedup_user(baseline, drafter)
    # (30 + 30) / (10 + 20), not the mean of 3 and 1.5.
    assert speedup.ratio == approx(2.0)
    assert speedup.prompts == 2
    # Resamples are aa, ab, ba, bb: 3, 2, 2, 1.5.
    assert speedup.low == approx(1.5)
    assert speedup.high == approx(3.0)


def test_bootstrap_is_paired_and_repeatable():
    # Every prompt is twice as fast, however different the prompts: no spread at all.
    baseline = [paced(str(i), 10 * (i + 1)) for i in range(8)]
    drafter = [paced(str(i), 20 * (i + 1)) for i in range(8)]
    speedup = speedup_user(baseline, drafter, seed=7)
    assert (speedup.low, speedup.high) == (approx(2.0), approx(2.0))
    uneven = [paced(str(i), 10 + i * i) for i in range(8)]
    assert speedup_user(baseline, uneven, seed=3) == speedup_user(baseline, uneven, seed=3)


def test_speedup_without_shared_prompts_or_spread():
    assert speedup_user([paced("a", 10)], [paced("b", 10)]) is None
    assert speedup_user([paced("a", 10)], [paced("a", 10, outcome="timeout")]) is None
    one = speedup_user([paced("a", 10)], [paced("a", 15)])
    assert one.ratio == approx(1.5)
    assert (one.low, one.high) == (None, None)


def test_output_speedup():
    assert speedup_output(100.0, 150.0) == 1.5
    assert speedup_output(None, 150.0) is None
    assert speedup_output(0.0, 150.0) is None


def test_drift_is_over_the_same_turns():
    baseline = [paced("a", 10, tokens=20), paced("b", 10, tokens=20), paced("c", 10, tokens=99)]
    drafter = [paced("a", 10, tokens=10), paced("b", 10, tokens=20)]
    assert output_length_drift(baseline, drafter) == approx(30 / 40)


def test_first_difference():
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2, 3], [1, 2]) == 2
    assert first_difference([], []) is None


def test_agreement_stops_at_a_prompts_first_difference():
    def turns(first, second, other):
        return [
            reply(prompt_id="p", turn=0, token_ids=first),
            reply(prompt_id="p", turn=1, token_ids=second),
            reply(prompt_id="q", turn=0, token_ids=other),
        ]

    agreement = token_agreement(turns([1, 2], [3], [4]), turns([1, 5], [6], [4]))
    # Turn 1 of p continues another conversation and is not compared.
    assert (agreement.compared, agreement.equal) == (2, 1)
    assert agreement.first_difference == {("p", 0): 1}


def test_agreement_without_ids_compares_nothing():
    agreement = token_agreement([reply([(0.1, 1)])], [reply([(0.1, 1)])])
    assert (agreement.compared, agreement.first_difference) == (0, {})
