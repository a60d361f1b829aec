"""SGLang's /generate: cumulative and incremental streams, meta_info; hand answers."""

import json

import pytest

from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Acceptance, Chunk, Sampling
from speedstudy.dialects.sse import Event

SGLANG = DIALECTS["sglang"]


def parse(*payloads, end=True):
    events = [Event(i, "", json.dumps(payload).encode()) for i, payload in enumerate(payloads)]
    if end:
        events.append(Event(len(events), "", b"[DONE]"))
    return SGLANG.parse(events)


def event(ids, count, finish=None, text="", **meta):
    known = {"finish_reason": finish, "prompt_tokens": 3, "completion_tokens": count, **meta}
    return {"text": text, "output_ids": ids, "meta_info": known}


LENGTH = {"type": "length", "length": 4}


def test_body_holds_the_whitelist_in_the_engines_own_words():
    sampling = Sampling(max_tokens=8, temperature=0.5, seed=3, ignore_eos=True)
    assert SGLANG.body("m", (1, 2), sampling) == {
        "input_ids": [1, 2],
        "sampling_params": {
            "max_new_tokens": 8,
            "temperature": 0.5,
            "ignore_eos": True,
            "sampling_seed": 3,
        },
        "stream": True,
    }
    assert "sampling_seed" not in SGLANG.body("m", (1,), Sampling(max_tokens=1))["sampling_params"]


def test_cumulative_events_are_told_apart():
    reply = parse(
        event([7], 1), event([7, 8, 9], 3), event([7, 8, 9, 7], 4, LENGTH, cached_tokens=2)
    )
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 2), Chunk(2, 1)]
    assert reply.token_ids == [7, 8, 9, 7]
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (3, 4, 2)
    assert (reply.finish_reason, reply.terminated, reply.error) == ("length", True, None)


def test_incremental_events_add_up_also_where_a_token_repeats():
    reply = parse(event([7], 1), event([7], 2), event([7, 8], 4, LENGTH))
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 1), Chunk(2, 2)]
    assert reply.token_ids == [7, 7, 7, 8]


def test_a_last_event_without_a_new_token_is_no_chunk():
    for last in ([7, 8], []):
        reply = parse(event([7], 1), event([7, 8] if last else [8], 2), event(last, 2, LENGTH))
        assert reply.chunks == [Chunk(0, 1), Chunk(1, 1)]
        assert reply.token_ids == [7, 8]


def test_cumulative_ids_may_run_ahead_of_their_events_count():
    reply = parse(event([7, 8], 1), event([7, 8, 9], 2), event([7, 8, 9], 3, LENGTH))
    assert reply.chunks == [Chunk(0, 2), Chunk(1, 1)]
    assert reply.token_ids == [7, 8, 9]


def test_without_ids_the_count_tells_and_without_a_count_the_growing_text():
    reply = parse(
        *({"text": t, "meta_info": {"completion_tokens": n}} for t, n in (("a", 1), ("", 3)))
    )
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 2)]
    assert (reply.token_ids, reply.completion_tokens, reply.assumed_chunks) == (None, 3, 0)
    reply = parse(*({"text": text} for text in ("a", "a", "ab")))
    assert reply.chunks == [Chunk(0, 1), Chunk(2, 1)]
    assert (reply.token_ids, reply.completion_tokens, reply.assumed_chunks) == (None, None, 2)


def test_without_a_count_repeated_ids_are_cumulative():
    reply = parse(*({"output_ids": ids} for ids in ([7], [7, 8], [7, 8, 9])))
    assert reply.token_ids == [7, 8, 9]
    reply = parse(*({"output_ids": ids} for ids in ([7], [8], [9])))
    assert reply.token_ids == [7, 8, 9]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long"),
        (event([7], 1, {"type": "abort", "message": "out of memory"}), "out of memory"),
        ({"output_ids": 5, "meta_info": {}}, "cannot be read"),
    ],
)
def test_an_error_keeps_what_came_before(bad, text):
    reply = parse(event([7], 1), bad, end=False)
    assert text in (reply.error or "")
    assert reply.token_ids == [7]
    assert not reply.terminated


def acceptance(**spec):
    return parse(event([7], 1), event([7, 8], 2, LENGTH, **spec))


def test_totals_and_histogram():
    # 20 steps: 8 accepted none, 6 two, 6 three; 30 of 60 drafted.
    reply = acceptance(
        spec_accept_rate=0.5,
        spec_accept_length=2.55,
        spec_num_correct_drafts=30,
        spec_num_proposed_drafts=60,
        spec_verify_ct=20,
        spec_correct_drafts_histogram=[8, 0, 6, 6],
    )
    assert reply.acceptance == Acceptance(
        source="totals",
        steps=20,
        drafted=60,
        accepted=30,
        step_accepted=[0] * 8 + [2] * 6 + [3] * 6,
    )
    assert reply.acceptance_conflict is None


def test_names_of_older_releases():
    reply = acceptance(spec_accept_token_num=3, spec_draft_token_num=8, spec_verify_ct=2)
    assert reply.acceptance == Acceptance(source="totals", steps=2, drafted=8, accepted=3)
    assert acceptance(spec_verify_ct=2).acceptance == Acceptance(source="totals", steps=2)


def test_a_varying_verify_window_makes_the_proposed_drafts_unknown():
    reply = acceptance(
        spec_verify_ct=2, spec_num_correct_drafts=3, spec_num_proposed_drafts=8, spec_cap_length=2.5
    )
    assert reply.acceptance == Acceptance(source="totals", steps=2, accepted=3)


def test_a_reply_without_a_verify_step_tells_nothing():
    assert acceptance().acceptance is None


def test_totals_that_contradict_the_histogram():
    reply = acceptance(
        spec_verify_ct=3, spec_num_correct_drafts=2, spec_correct_drafts_histogram=[1, 1]
    )
    assert reply.acceptance_conflict == (
        "accepted drafts counted as 1 and 2; verify steps counted as 2 and 3"
    )
