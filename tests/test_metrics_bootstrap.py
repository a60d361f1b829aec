"""Intervals of acceptance length whose draws can be counted by hand."""

import pytest

from metric_records import drafter_cell, stepped
from speedstudy.metrics.acceptance import prompt_counts
from speedstudy.metrics.bootstrap import (
    Estimate,
    acceptance_length_change,
    mean_acceptance_length,
)

approx = pytest.approx


def bounds(estimate):
    return estimate.value, estimate.low, estimate.high


def test_interval_of_two_prompts_ends_at_their_own_lengths():
    # Draws are aa, ab, ba, bb: AL 2, 1.5, 1.5, 1; a quarter of them lies at either end.
    assert bounds(mean_acceptance_length([[(10, 10), (0, 10)]])) == (1.5, 1.0, 2.0)


def test_equal_counts_do_not_change():
    counts = {"a": (9, 10), "b": (0, 90), "c": (4, 4)}
    assert bounds(acceptance_length_change(counts, dict(counts))) == (0.0, 0.0, 0.0)


def test_a_drop_by_hand():
    before = {"a": (4, 4), "b": (4, 4)}
    after = {"a": (2, 4), "b": (0, 4)}
    # 1 + 2/8 - (1 + 8/8); of the draws aa changes by -0.5, bb by -1.
    assert bounds(acceptance_length_change(before, after)) == (-0.75, -1.0, -0.5)


def test_a_draw_takes_the_same_prompts_from_both_cells():
    before = {str(i): (10 * i, 10) for i in range(8)}
    after = {prompt: (accepted + 5, steps) for prompt, (accepted, steps) in before.items()}
    # However different the prompts are, each gains half a token a step: no spread.
    assert bounds(acceptance_length_change(before, after)) == approx((0.5, 0.5, 0.5))


def test_change_is_over_the_common_prompts():
    before = {"a": (4, 4), "b": (4, 4), "only before": (0, 1000)}
    after = {"only after": (3000, 1000), "b": (2, 4), "a": (2, 4)}
    assert bounds(acceptance_length_change(before, after)) == (-0.5, -0.5, -0.5)
    assert acceptance_length_change(before, {"only after": (3, 1)}) is None


def test_without_steps_there_is_no_change_and_with_one_prompt_no_interval():
    assert acceptance_length_change({}, {"a": (1, 2)}) is None
    assert acceptance_length_change({"a": (1, 2)}, {"a": (0, 0)}) is None
    one = acceptance_length_change({"a": (2, 2)}, {"a": (1, 2)})
    assert one == Estimate(value=-0.5, low=None, high=None)


def test_draws_without_a_step_are_left_out():
    # bb has no AL; aa, ab and ba have that of a.
    assert bounds(mean_acceptance_length([[(3, 4), (0, 0)]])) == (1.75, 1.75, 1.75)
    assert mean_acceptance_length([[(0, 0), (0, 0)]]) is None
    assert mean_acceptance_length([[]]) is None
    assert mean_acceptance_length([]) is None


class TestPromptCounts:
    cell = drafter_cell("ngram", 3)

    def test_turns_of_a_prompt_are_added_up_and_failed_ones_left_out(self):
        turns = [
            stepped([3, 3], [2, 0], tokens=5, steps=2, prompt_id="q"),
            stepped([3], [3], tokens=5, steps=1, prompt_id="p"),
            stepped([3], [1], tokens=3, steps=1, prompt_id="q", turn=1),
            stepped([3], [3], tokens=5, steps=1, prompt_id="p", turn=1, outcome="timeout"),
        ]
        counts = prompt_counts(turns, self.cell)
        assert list(counts.items()) == [("p", (3, 1)), ("q", (3, 3))]

    def test_one_turn_of_unknown_steps_makes_all_unknown(self):
        known = stepped([3, 3], [2, 0], tokens=5, steps=2, prompt_id="p")
        # 8 tokens of which 2 steps explain 5: undrafted steps ran, or not, if the last was cut.
        unknown = stepped([3, 3], [2, 1], tokens=8, prompt_id="q")
        assert prompt_counts([known, unknown], self.cell) == {}
