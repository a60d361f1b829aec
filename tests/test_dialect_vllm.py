"""vLLM's and the plain completion dialect: request bodies, events, acceptance; hand answers."""

import json

import pytest

from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Acceptance, Chunk, Sampling
from speedstudy.dialects.sse import Event

VLLM = DIALECTS["vllm"]
OPENAI = DIALECTS["openai"]


def events(*payloads):
    return [
        Event(index, "", payload if isinstance(payload, bytes) else json.dumps(payload).encode())
        for index, payload in enumerate(payloads)
    ]


def content(ids=None, text="", finish=None, **more):
    choice = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return {"choices": [choice], **more}


def usage(prompt=3, completion=2, **more):
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}}


def test_bodies_hold_the_whitelist_and_nothing_else():
    sampling = Sampling(max_tokens=8, temperature=0.5, seed=3, ignore_eos=True)
    assert VLLM.body("m", (1, 2), sampling) == {
        "model": "m",
        "prompt": [1, 2],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "max_tokens": 8,
        "temperature": 0.5,
        "seed": 3,
        "ignore_eos": True,
    }
    assert "seed" not in VLLM.body("m", (1,), Sampling(max_tokens=1))
    plain = OPENAI.body("m", (1, 2), Sampling(max_tokens=8, seed=3))
    assert set(plain) == {
        *("model", "prompt", "stream", "stream_options", "max_tokens", "temperature", "seed")
    }
    with pytest.raises(ValueError, match="ignore_eos"):
        OPENAI.body("m", (1,), sampling)


def test_usage_alone_ids_echo_and_cached_tokens():
    first = content([5])
    first["choices"][0]["prompt_token_ids"] = [7, 8, 9]
    reply = VLLM.parse(
        events(
            first,
            content([6], finish="length"),
            {"choices": [], **usage(prompt_tokens_details={"cached_tokens": 2})},
            b"[DONE]",
        )
    )
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 1)]
    assert reply.token_ids == [5, 6]
    assert reply.echoed_prompt_ids == [7, 8, 9]
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (3, 2, 2)
    assert (reply.finish_reason, reply.terminated, reply.error) == ("length", True, None)
    assert reply.acceptance is None


def test_usage_in_the_last_content_event():
    reply = VLLM.parse(events(content([5]), content([6], finish="stop", **usage())))
    assert (reply.completion_tokens, reply.prompt_tokens) == (2, 3)
    assert [chunk.tokens for chunk in reply.chunks] == [1, 1]
    assert not reply.terminated


def test_without_usage_the_ids_are_counted():
    reply = VLLM.parse(events(content([5]), content([6, 7], finish="stop"), b"[DONE]"))
    assert reply.completion_tokens == 3
    assert reply.prompt_tokens is None


def test_role_only_and_empty_events_are_no_chunks_and_empty_text_with_ids_is():
    role = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
    reply = VLLM.parse(events(role, content([], text=""), content([5], text=""), content([])))
    assert reply.chunks == [Chunk(2, 1)]
    assert reply.token_ids == [5]


def test_null_fields_are_no_error():
    nothing = content([5], error=None, usage=None, metrics=None)
    reply = VLLM.parse(events(nothing, {"choices": None}, {}))
    assert reply.error is None
    assert reply.completion_tokens == 1


def test_text_without_ids_counts_by_growing_usage():
    reply = OPENAI.parse(
        events(
            content(text="a", **usage(completion=1)),
            content(text="", **usage(completion=3)),
            content(text="b", finish="length", **usage(completion=4)),
        )
    )
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 2), Chunk(2, 1)]
    assert (reply.token_ids, reply.completion_tokens, reply.assumed_chunks) == (None, 4, 0)


def test_text_without_ids_or_usage_has_no_count():
    reply = OPENAI.parse(events(content(text="a"), content(text=""), content(text="bc")))
    assert reply.chunks == [Chunk(0, 1), Chunk(2, 1)]
    assert (reply.token_ids, reply.completion_tokens, reply.assumed_chunks) == (None, None, 2)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"error": {"message": "engine died"}}, "engine died"),
        ({"error": "engine died"}, "engine died"),
        ({"object": "error", "message": "engine died"}, "engine died"),
        (b"{cut", "not JSON: {cut"),
        (b"[1]", "not an object"),
        ({"choices": [{"token_ids": 5}]}, "cannot be read"),
    ],
)
def test_an_error_in_the_stream_ends_the_reply_and_keeps_what_came_before(bad, text):
    reply = VLLM.parse(events(content([5]), bad, content([6])))
    assert reply.error is not None
    assert text in reply.error
    assert reply.token_ids == [5]


def test_error_event_by_name_and_broken_off_reply():
    named = VLLM.parse([Event(0, "error", b'{"message": "engine died"}')])
    assert "engine died" in (named.error or "")
    assert "abort" in (VLLM.parse(events(content([5], finish="abort"))).error or "")


def acceptance(**metrics):
    tail = {"choices": [], **usage(), "metrics": {"speculative_decoding": metrics}}
    reply = VLLM.parse(events(content([5]), content([6], finish="stop"), tail))
    assert reply.error is None
    return reply.acceptance


def test_step_lists_with_drafts_count_drafted_steps():
    assert acceptance(
        per_step_accepted=[3, 1, 0, 0],
        per_step_drafted=[3, 1, 0, 3],
        num_spec_steps=4,
        num_accepted_draft_tokens=4,
        num_draft_tokens=7,
        mean_acceptance_length=2.0,
    ) == Acceptance(
        source="steps",
        steps_drafted=3,
        drafted=7,
        accepted=4,
        step_drafted=[3, 1, 0, 3],
        step_accepted=[3, 1, 0, 0],
    )


def test_step_list_with_null_drafts_counts_every_step():
    assert acceptance(
        per_step_accepted=[2, 0, 0], per_step_drafted=None, num_draft_tokens=None
    ) == Acceptance(source="steps", steps=3, accepted=2, step_accepted=[2, 0, 0])


@pytest.mark.parametrize("histogram", [[39, 1, 0, 3], {"0": 39, "1": 1, "3": 3}])
def test_histogram_dense_and_sparse(histogram):
    assert acceptance(acceptance_histogram=histogram, num_draft_tokens=129) == Acceptance(
        source="totals",
        steps_drafted=43,
        drafted=129,
        accepted=10,
        step_accepted=[0] * 39 + [1, 3, 3, 3],
    )


def test_totals_alone_and_no_steps_at_all():
    assert acceptance(
        num_spec_steps=10, num_accepted_draft_tokens=4, num_draft_tokens=30, per_step_accepted=None
    ) == Acceptance(source="totals", steps_drafted=10, drafted=30, accepted=4)
    # vLLM's own ratios for "no steps" are 1.0 and 0.0; ours stay out of the record.
    assert acceptance(
        num_spec_steps=0,
        num_accepted_draft_tokens=0,
        num_draft_tokens=0,
        mean_acceptance_length=1.0,
        draft_acceptance_rate=0.0,
    ) == Acceptance(source="totals", steps_drafted=0, drafted=0, accepted=0)


def test_another_engines_object_is_not_taken_for_vllms():
    other = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 5, "total_draft_tokens": 10}
    assert acceptance(**other) is None
    assert acceptance(per_step_accepted=None, num_spec_steps=None) is None


def test_what_cannot_be_read_of_the_acceptance_costs_no_token():
    for told, text in (
        ({"per_step_accepted": [1], "per_step_drafted": [1, 2]}, "per_step_drafted 2"),
        ({"num_spec_steps": 1.5}, "1.5 is not a whole number"),
        ({"per_step_accepted": [None]}, "None is not a whole number"),
    ):
        metrics = {"speculative_decoding": told}
        reply = VLLM.parse(events(content([5], finish="stop", metrics=metrics)))
        assert (reply.token_ids, reply.error, reply.acceptance) == ([5], None, None)
        assert text in (reply.acceptance_conflict or "")


def test_sources_of_one_reply_that_differ_are_a_conflict_and_the_finer_one_counts():
    told = {
        "per_step_accepted": [3, 1],
        "per_step_drafted": [3, 3],
        "acceptance_histogram": [0, 1, 1, 0],
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 6,
        "num_spec_steps": 2,
    }
    metrics = {"speculative_decoding": told}
    reply = VLLM.parse(events(content([5], finish="stop", metrics=metrics)))
    assert reply.acceptance is not None
    assert reply.acceptance.accepted == 4
    assert reply.acceptance_conflict == "accepted drafts counted as 3 and 4 and 5"
