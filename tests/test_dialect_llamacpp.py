"""llama.cpp's /completion: one token an event, counts, timings; hand answers."""

import json

import pytest

from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Acceptance, Chunk, Sampling
from speedstudy.dialects.sse import Event

LLAMACPP = DIALECTS["llamacpp"]


def parse(*payloads):
    return LLAMACPP.parse(
        [Event(i, "", json.dumps(payload).encode()) for i, payload in enumerate(payloads)]
    )


def token(id_, count, text="x", **more):
    return {
        "content": text,
        "tokens": [id_],
        "stop": False,
        "tokens_predicted": count,
        "tokens_evaluated": 3,
        **more,
    }


def last(count, stop_type="limit", **timings):
    return {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": stop_type,
        "tokens_predicted": count,
        "tokens_evaluated": 3,
        "timings": {"cache_n": 0, "prompt_n": 3, "predicted_n": count, **timings},
    }


def test_body_holds_the_whitelist_in_the_engines_own_words():
    sampling = Sampling(max_tokens=8, temperature=0.5, seed=3, ignore_eos=True)
    assert LLAMACPP.body("m", (1, 2), sampling) == {
        "model": "m",
        "prompt": [1, 2],
        "stream": True,
        "return_tokens": True,
        "cache_prompt": False,
        "n_predict": 8,
        "temperature": 0.5,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 3,
        "ignore_eos": True,
    }
    assert "seed" not in LLAMACPP.body("m", (1,), Sampling(max_tokens=1))


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, 2**32])
def test_a_seed_that_the_server_would_change_is_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        LLAMACPP.body("m", (1,), Sampling(max_tokens=1, seed=seed))


def test_one_token_an_event_and_no_end_mark():
    reply = parse(
        token(7, 1), token(8, 2, text=""), last(2, draft_n=4, draft_n_accepted=1, cache_n=2)
    )
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 1)]
    assert reply.token_ids == [7, 8]
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (3, 2, 2)
    assert (reply.finish_reason, reply.terminated, reply.error) == ("limit", True, None)
    assert reply.acceptance == Acceptance(source="totals", drafted=4, accepted=1)


def test_a_token_inside_a_character_has_no_event_but_is_counted():
    reply = parse(token(7, 1), token(9, 3), last(3))
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 2)]
    assert (reply.completion_tokens, reply.token_ids) == (3, None)
    reply = parse(token(7, 1), last(2))  # the last token is the one without an event
    assert reply.chunks == [Chunk(0, 1), Chunk(1, 1)]
    assert reply.token_ids is None


def test_timings_without_drafts_say_that_nothing_was_drafted():
    assert parse(token(7, 1), last(1)).acceptance == Acceptance(
        source="totals", steps_drafted=0, drafted=0, accepted=0
    )
    assert parse(token(7, 1)).acceptance is None


def test_a_builds_events_without_a_count_are_counted_by_ids_and_text():
    reply = parse({"tokens": [7], "content": "a"}, {"tokens": [], "content": ""})
    assert (reply.chunks, reply.token_ids) == ([Chunk(0, 1)], [7])
    reply = parse({"content": "a"}, {"content": ""}, {"content": "b", "stop": True})
    assert (reply.chunks, reply.token_ids) == ([Chunk(0, 1), Chunk(2, 1)], None)
    assert (reply.assumed_chunks, reply.completion_tokens) == (2, None)


def test_progress_and_an_error_in_the_stream():
    progress = {"content": "", "tokens": [], "tokens_predicted": 0, "prompt_progress": {"total": 3}}
    reply = parse(progress, token(7, 1), {"error": {"code": 500, "message": "failed to decode"}})
    assert reply.chunks == [Chunk(1, 1)]
    assert "failed to decode" in (reply.error or "")
