"""TensorRT-LLM's completions: ids, average per iteration, stream blocks; hand answers."""

import json

from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Acceptance, Sampling
from speedstudy.dialects.sse import Event

TRTLLM = DIALECTS["trtllm"]


def parse(blocks, average=None, usage=None, **choice):
    """A reply of these blocks; the average and the rest are on the last choice."""
    payloads = []
    for index, block in enumerate(blocks):
        last = index == len(blocks) - 1
        more = {"avg_decoded_tokens_per_iter": average, "finish_reason": "length", **choice}
        payloads.append({"choices": [{"text": "", "token_ids": block, **(more if last else {})}]})
    if usage is not None:
        payloads.append({"choices": [], "usage": usage})
    events = [Event(i, "", json.dumps(payload).encode()) for i, payload in enumerate(payloads)]
    return TRTLLM.parse([*events, Event(len(events), "", b"[DONE]")])


def test_body_holds_the_whitelist_and_nothing_else():
    # The server's request model forbids unknown fields: no return_token_ids of vLLM's here.
    sampling = Sampling(max_tokens=8, temperature=0.5, seed=3, ignore_eos=True)
    assert TRTLLM.body("m", (1, 2), sampling) == {
        "model": "m",
        "prompt": [1, 2],
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": False},
        "detokenize": False,
        "max_tokens": 8,
        "temperature": 0.5,
        "seed": 3,
        "ignore_eos": True,
    }


def test_one_chunk_an_iteration_tells_the_steps():
    # 1 + 3 steps of 3 tokens: 10 tokens in 4 iterations.
    usage = {
        "prompt_tokens": 2,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    reply = parse([[1], [2, 3, 4], [5, 6, 7], [8, 9, 10]], average=2.5, usage=usage)
    assert reply.token_ids == list(range(1, 11))
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (2, 10, 1)
    assert reply.acceptance == Acceptance(
        source="blocks", steps=3, accepted=6, step_accepted=[2, 2, 2]
    )


def test_usage_on_every_event_and_text_only():
    payloads = [
        {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 2, "completion_tokens": n}}
        for n in (1, 4, 4, 6)
    ]
    reply = TRTLLM.parse([Event(i, "", json.dumps(p).encode()) for i, p in enumerate(payloads)])
    assert [chunk.tokens for chunk in reply.chunks] == [1, 3, 2]
    assert (reply.completion_tokens, reply.token_ids) == (6, None)


def test_merged_chunks_tell_only_how_many_steps():
    reply = parse([[1], [2, 3, 4, 5, 6, 7], [8, 9, 10]], average=2.5)
    assert reply.acceptance == Acceptance(source="totals", steps=3)


def test_an_average_of_single_precision_still_gives_whole_iterations():
    # 23 tokens in 14 iterations, 23/14 as a 32-bit float.
    reply = parse([[i] for i in range(13)] + [[0] * 10], average=1.6428571939468384)
    assert reply.acceptance is not None
    assert reply.acceptance.steps == 13


def test_an_average_that_gives_no_whole_iterations_tells_nothing():
    assert parse([[1], [2, 3]], average=1.7).acceptance is None
    assert parse([[1], [2, 3]], average=None).acceptance is None
    assert parse([[1], [2, 3]], average=0.0).acceptance is None


def test_histogram_of_the_choice():
    # A field that newer releases put on the choice: 20 drafted steps, 30 of 60 accepted; 51
    # tokens in 21 iterations.
    stats = {
        "acceptance_rate": 0.5,
        "total_accepted_draft_tokens": 30,
        "total_draft_tokens": 60,
        "num_spec_steps": 20,
        "acceptance_histogram": [8, 0, 6, 6],
        "num_spec_tokens": 3,
    }
    reply = parse([list(range(51))], average=51 / 21, speculative_decoding=stats)
    assert reply.acceptance == Acceptance(
        source="totals",
        steps=20,
        steps_drafted=20,
        drafted=60,
        accepted=30,
        step_accepted=[0] * 8 + [2] * 6 + [3] * 6,
    )
    assert reply.acceptance_conflict is None
    other = parse([[1]], speculative_decoding={**stats, "total_accepted_draft_tokens": 29})
    assert other.acceptance_conflict == "accepted drafts counted as 29 and 30"


def test_without_speculation_every_iteration_gives_one_token():
    reply = parse([[1], [2], [3]], average=1.0)
    assert reply.acceptance == Acceptance(
        source="blocks", steps=2, accepted=0, step_accepted=[0, 0]
    )
