"""Acceptance by hand; the project's list of vectors is in test_vectors.py."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_records import PREFILL, counters, drafter_cell, reply, stepped
from speedstudy.metrics.acceptance import acceptance, pool, request_counts
from speedstudy.metrics.conventions import chunk_rates, specdec_bench
from speedstudy.metrics.positions import al_full_draft, conditional_rates, unconditional_rates
from speedstudy.metrics.steps import StepCounts, resolve

approx = pytest.approx


def pooled(turns, cell=PREFILL):
    return acceptance(turns, cell)["pooled"]


def test_histogram_of_varying_drafts_gives_no_rates_by_position():
    turn = reply(
        completion_tokens=7,
        steps_drafted=3,
        drafted=7,  # not k * 3
        accepted=3,
        step_accepted=[3, 0, 0],
        acceptance_source="totals",
    )
    numbers = pooled([turn], drafter_cell("suffix", 3))
    assert numbers["al_drafted"] == 2.0
    assert numbers["conditional"] is None
    assert numbers["unconditional"] is None
    assert numbers["al_full_draft"] is None


def test_blog_histogram():
    # Emitted lengths of SPEED-Bench's published run (Llama-3.3-70B, EAGLE3, k = 3).
    histogram = {1: 57385, 2: 36968, 3: 24441, 4: 61182}
    pairs = Counter({(3, length - 1): steps for length, steps in histogram.items()})
    conditional = conditional_rates(pairs)
    assert conditional == approx([0.6812, 0.6984, 0.7146], abs=5e-5)
    # 449,372 tokens in 179,976 steps
    assert al_full_draft(conditional) == approx(449372 / 179976)
    assert al_full_draft(conditional) == approx(2.497, abs=5e-4)
    published, _ = chunk_rates(histogram)
    assert list(published.values()) == approx([1, 0.6812, 0.6984, 0.7146], abs=5e-5)


def test_23_tokens_of_a_merged_stream_are_not_guessed():
    # 1 + 14 in drafted steps + 8: 8 steps without a draft, or 9 and a cut last step? The merged
    # stream does not tell. In test_reply_lengths.py the same reply comes a chunk a step.
    turn = stepped([3] * 5, [3, 0, 2, 3, 1], tokens=23, sizes=[1, 10, 12])
    result = acceptance([turn], PREFILL)
    assert result["pooled"]["al"] is None
    assert result["pooled"]["al_drafted"] == approx(2.8)
    assert result["coverage"] == {"requests": 1, "accepted_known": 1, "steps_known": 0}
    assert any("al is unknown" in note for note in result["notes"])


def test_merged_stream_whose_last_step_accepted_nothing_is_exact():
    # 1 + (3+1) + (0+1) + 4 undrafted = 10; A = 3, so 6 steps.
    assert pooled([stepped([3, 3], [3, 0], tokens=10, sizes=[1, 9])])["steps"] == 6


def test_one_chunk_reply():
    # 8 = 1 + (3+1) + (2+1): A = 5 in 2 steps.
    numbers = pooled([stepped([3, 3], [3, 2], tokens=8, sizes=[8])])
    assert (numbers["steps"], numbers["al"]) == (2, 3.5)


def test_cut_at_the_length_limit_with_every_step_drafted():
    # Steps of 4 and 4, the limit 7 cuts the second to 2: 1 + 4 + 2, merged into two chunks.
    numbers = pooled([stepped([3, 3], [3, 3], tokens=7, sizes=[1, 6], finish_reason="length")])
    assert (numbers["steps"], numbers["al"], numbers["al_emitted"]) == (2, 4.0, 3.0)


def test_cut_at_the_length_limit_without_step_lists():
    # The same reply, one step a chunk, from an engine that tells totals: 7 - 1 - 6 = 0 falls
    # short of 2 drafted steps, and the stream has 2 chunks for them.
    turn = reply(
        [(0.1, 1), (0.2, 4), (0.3, 2)],
        steps_drafted=2,
        drafted=6,
        accepted=6,
        acceptance_source="totals",
    )
    assert pooled([turn])["steps"] == 2


@pytest.mark.parametrize(
    ("accepted", "tokens", "sizes"),
    [
        ([2, 0], 3, None),  # 1 + 3 + 1 tokens, and a step that accepted nothing is not cut
        ([0, 0, 2], 2, [1, 1]),  # three steps in one chunk of one token
    ],
)
def test_a_record_that_contradicts_itself_gives_no_steps(accepted, tokens, sizes):
    turn = stepped([3] * len(accepted), accepted, tokens=tokens, sizes=sizes)
    numbers = pooled([turn])
    assert numbers["steps"] is None
    assert numbers["al"] is None


def test_blocks_tell_accepted_but_not_drafted():
    # OpenVINO prompt lookup: every step is a block, what it drafted is not told.
    turn = reply(
        [(0.1, 1), (0.2, 3), (0.3, 1)],
        steps=2,
        accepted=2,
        step_accepted=[2, 0],
        acceptance_source="blocks",
    )
    result = acceptance([turn], drafter_cell("ngram", 3))
    assert result["source"] == "blocks"
    assert result["pooled"]["al"] == 2.0
    for name in ("al_drafted", "ar", "drafted", "steps_drafted", "conditional", "unconditional"):
        assert result["pooled"][name] is None
    assert result["per_request_mean"] == {"al": 2.0, "ar": None}


def test_totals_without_steps():
    # llama.cpp tells drafted and accepted; one token a chunk hides the steps. At the length
    # limit nothing is cut: 9 - 1 - 4 = 4 steps. At an EOS it is not known.
    def turn(finish):
        return reply(
            [(0.1 * i, 1) for i in range(1, 10)], drafted=6, accepted=4, finish_reason=finish
        )

    assert pooled([turn("length")])["al"] == 2.0
    assert pooled([turn("stop")])["al"] is None
    assert pooled([turn("stop")])["ar"] == approx(4 / 6)


def test_without_a_drafter_every_token_is_a_step():
    turns = [reply([(0.1, 1), (0.2, 1), (0.3, 1)]), reply([(0.1, 1)])]
    result = acceptance(turns, drafter_cell("none"))
    assert result["source"] == "definition"
    numbers = result["pooled"]
    assert (numbers["al"], numbers["al_emitted"], numbers["steps"]) == (1.0, 1.0, 2)
    assert (numbers["drafted"], numbers["accepted"], numbers["steps_drafted"]) == (0, 0, 0)
    assert numbers["ar"] is None
    assert numbers["al_drafted"] is None
    assert result["notes"] == []


def test_a_drafter_in_a_cell_that_names_none_is_noted():
    result = acceptance([stepped([3], [2], tokens=4)], drafter_cell("none"))
    assert any("names no drafter" in note for note in result["notes"])


def test_silent_engine_with_an_unknown_drafter_is_null():
    result = acceptance([reply([(0.1, 1), (0.2, 1)])], PREFILL)
    assert result["source"] is None
    assert result["pooled"]["al"] is None
    assert result["pooled"]["steps"] is None


def test_categories_are_pooled_apart_and_failed_requests_stay_out():
    turns = [
        stepped([3], [3], tokens=5, category="math"),
        stepped([3], [1], tokens=3, category="math"),
        stepped([3], [0], tokens=2, category="coding"),
        stepped([3], [3], tokens=5, category="coding", outcome="incomplete"),
    ]
    categories = acceptance(turns, PREFILL)["by_category"]
    assert list(categories) == ["coding", "math"]
    assert categories["math"]["al"] == 3.0  # 1 + (3 + 1) / 2
    assert categories["coding"]["al"] == 1.0
    assert categories["coding"].keys() == pooled(turns).keys()


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ({"before": counters(1, 1, 1, []), "after": {}, "error": None}, "num_drafts vanished"),
        ({"before": counters(1, 1, 1, []), "after": None, "error": "HTTP status 500"}, "500"),
    ],
)
def test_counters_that_are_of_no_use_say_why(recorded, words):
    result = acceptance([reply([(0.1, 1), (0.2, 1)])], {**PREFILL, "counters": recorded})
    assert result["source"] is None
    assert any(words in note for note in result["notes"])


def test_counters_of_varying_drafts_give_no_rates_by_position():
    # 3 steps drafted 7 tokens at k = 3: how many reached position 2 is not known.
    cell = {
        **drafter_cell("ngram", 3),
        "counters": {"before": None, "after": counters(3, 7, 4, [2, 1, 1])},
    }
    result = acceptance([reply([(0.1, 1), (0.2, 8)])], cell)
    assert result["pooled"]["unconditional"] is None
    assert result["pooled"]["conditional"] is None
    vllm = result["conventions"]["vllm"]
    assert vllm["spec_decode_per_position_acceptance_rates"] == approx([2 / 3, 1 / 3, 1 / 3])


def test_counters_include_failed_requests_so_steps_are_not_derived():
    cell = {**PREFILL, "counters": {"before": None, "after": counters(2, 4, 4, [2, 2])}}
    turns = [reply([(0.1, 1), (0.2, 3)]), reply([(0.1, 1)], outcome="incomplete")]
    result = acceptance(turns, cell)
    assert result["pooled"]["al_drafted"] == 3.0
    assert result["pooled"]["al"] is None
    assert any("did not end ok" in note for note in result["notes"])


def test_responses_and_counters_are_compared():
    turn = stepped([3], [2], tokens=4)
    agreeing = {**PREFILL, "counters": {"before": None, "after": counters(1, 3, 2, [1, 1, 0])}}
    check = acceptance([turn], agreeing)["cross_check"]
    assert check["agrees"] is True
    differing = {**PREFILL, "counters": {"before": None, "after": counters(1, 3, 3, [1, 1, 1])}}
    result = acceptance([turn], differing)
    assert result["cross_check"]["agrees"] is False
    assert result["cross_check"]["responses"]["accepted"] == 2
    assert result["cross_check"]["counters"]["accepted"] == 3
    assert result["pooled"]["al"] == 3.0  # the responses stand
    assert any("different totals" in note for note in result["notes"])


def test_counters_fill_the_steps_that_llama_cpp_does_not_tell():
    # 4 steps, all drafted: 9 - 1 - 4 = 4.
    turn = reply([(0.1 * i, 1) for i in range(1, 10)], drafted=8, accepted=4, finish_reason="stop")
    cell = {**PREFILL, "counters": {"before": None, "after": counters(4, 8, 4, [3, 1])}}
    numbers = pooled([turn], cell)
    assert (numbers["steps"], numbers["steps_drafted"], numbers["al"]) == (4, 4, 2.0)


def test_specdec_bench_takes_all_turns_of_a_prompt_as_one_request():
    # Chunks 1 3 and 1 1 of one prompt: 6/4. The other: 2/1. Mean 1.75 over prompts.
    turns = [
        reply([(0.1, 1), (0.2, 3)], prompt_id="a", turn=0, category="qa"),
        reply([(0.3, 1), (0.4, 1)], prompt_id="a", turn=1, category="qa"),
        reply([(0.1, 2)], prompt_id="b", category="rag"),
    ]
    numbers = specdec_bench(turns, devices=2)
    assert numbers["Average_AL"] == 1.75
    assert numbers["Category_AL"] == {"qa": 1.5, "rag": 2.0}
    assert numbers["Acceptance_Length_Histogram"] == {"1": 3, "2": 1, "3": 1}
    assert numbers["Output TPS"] == approx(8 / 0.4)
    assert numbers["Output TPS/gpu"] == approx(4 / 0.4)
    # (4 - 1) / 0.1 and (2 - 1) / 0.1; a reply in one chunk has none.
    assert numbers["Request Generation Tokens Per Second"] == approx(20.0)


STEPS = st.lists(
    st.integers(0, 4).flatmap(lambda length: st.tuples(st.just(length), st.integers(0, length))),
    min_size=1,
    max_size=12,
)


def vllm_turn(steps, sizes, tokens):
    drafted = [(length, j) for length, j in steps if length]
    return stepped([length for length, _ in drafted], [j for _, j in drafted], tokens=tokens,
                   sizes=sizes)  # fmt: skip


@settings(deadline=None)
@given(STEPS, st.data())
def test_a_stream_of_one_step_a_chunk_always_tells_the_steps(steps, data):
    sizes = [1, *(j + 1 for _, j in steps)]
    sizes[-1] -= data.draw(st.integers(0, sizes[-1] - 1), label="cut")
    count = resolve(vllm_turn(steps, sizes, sum(sizes)), PREFILL, None)
    assert count.steps == len(steps)


@settings(deadline=None)
@given(STEPS, st.data())
def test_a_merged_stream_without_a_cut_gives_the_steps_or_nothing(steps, data):
    sizes = [1]
    for _, j in steps:
        if data.draw(st.booleans(), label="merge"):
            sizes[-1] += j + 1
        else:
            sizes.append(j + 1)
    count = resolve(vllm_turn(steps, sizes, sum(sizes)), PREFILL, None)
    assert count.steps in (None, len(steps))


@settings(deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=6))
def test_pooled_length_lies_between_the_requests(requests):
    turns = [
        vllm_turn(steps, [1, *(j + 1 for _, j in steps)], 1 + sum(j + 1 for _, j in steps))
        for steps in requests
    ]
    counts = request_counts(turns, PREFILL)
    lengths = [1 + count.accepted / count.steps for count in counts]
    numbers = pool(counts, "prefill")
    assert min(lengths) - 1e-9 <= numbers["al"] <= max(lengths) + 1e-9
    assert numbers["al"] >= 1.0
    if numbers["al_drafted"] is not None:
        assert numbers["al_drafted"] >= numbers["al"]


@settings(deadline=None)
@given(STEPS)
def test_equation_1_holds_where_every_draft_has_the_same_length(steps):
    pairs = Counter((4, j) for _, j in steps)
    expected = 1 + sum(j for _, j in steps) / len(steps)
    assert al_full_draft(conditional_rates(pairs)) == approx(expected)
    rates = unconditional_rates(pairs)
    assert rates == sorted(rates, reverse=True)


def test_pool_of_nothing_is_null():
    numbers = pool([], "prefill")
    assert numbers["identity_gap"] == {"sum": None, "counts": {}}
    assert all(v is None for name, v in numbers.items() if name != "identity_gap")
    assert pool([StepCounts(tokens=None)], "prefill")["al"] is None


def test_requests_that_contradict_themselves_are_noted():
    turns = [
        stepped([3], [2], tokens=4, prompt_id="a", acceptance_conflict="steps counted as 1 and 2"),
        stepped([3], [2], tokens=4, sizes=[1, 2], prompt_id="b"),
    ]
    notes = acceptance(turns, PREFILL)["notes"]
    assert notes == [
        "1 of 2 requests contradict themselves; the first, a: steps counted as 1 and 2",
        "in 1 of 2 requests the engine counted other completion tokens than came in the stream",
    ]


def test_steps_of_an_engine_that_tells_all_of_them():
    # SGLang: 3 steps, 9 = 3 * 3 drafted, so that each one drafted; 6 are fewer than 3 a step.
    def turn(drafted):
        return reply(
            completion_tokens=7, steps=3, drafted=drafted, accepted=3, acceptance_source="totals"
        )

    assert pooled([turn(9)], drafter_cell("eagle3", 3))["al_drafted"] == 2.0
    assert pooled([turn(6)], drafter_cell("eagle3", 3))["al_drafted"] is None
    assert pooled([turn(6)], drafter_cell("eagle3", 3))["al"] == 2.0


def test_requests_of_which_only_the_steps_are_known_make_no_biased_choice():
    # TensorRT-LLM under load: one request's chunks are its steps, the other's are merged.
    proved = reply(completion_tokens=4, steps=1, accepted=2, acceptance_source="blocks")
    merged = reply(completion_tokens=8, steps=3, acceptance_source="totals")
    numbers = pooled([proved, merged])
    assert numbers["al"] is None
    assert (numbers["steps"], numbers["al_emitted"]) == (4, 2.5)  # (3 + 7) / 4
    # The counters know what was accepted: 2 + 4.
    cell = {**PREFILL, "counters": {"before": None, "after": {"num_accepted_tokens": 6}}}
    assert pooled([proved, merged], cell)["al"] == 2.5


def test_counters_by_position_of_drafts_of_any_length():
    # Drafts of 3, 1 and 2 tokens accept 2, 1 and 0: position 1 drafted 3 and accepted 2 times.
    after = {"num_draft_tokens_per_pos": [3, 2, 1], "num_accepted_tokens_per_pos": [2, 1]}
    cell = {**drafter_cell("ngram", 3), "counters": {"before": None, "after": after}}
    numbers = acceptance([reply([(0.1, 1), (0.2, 6)])], cell)["pooled"]
    assert (numbers["steps_drafted"], numbers["drafted"], numbers["accepted"]) == (3, 6, 3)
    assert numbers["unconditional"] == approx([2 / 3, 1 / 2, 0])
    assert numbers["conditional"] is None
    assert numbers["al_drafted"] == 2.0
