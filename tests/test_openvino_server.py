"""The OpenVINO server's pure parts: what it takes, what it refuses, what its events say."""

import json

import pytest
from prometheus_client import CollectorRegistry

from speedstudy.dialects.acceptance import read_acceptance
from speedstudy.engines.openvino_counters import Counters
from speedstudy.engines.openvino_protocol import (
    Completion,
    Limits,
    RequestError,
    parse_request,
    reserved_tokens,
)
from speedstudy.engines.openvino_server import build_parser, read_options
from speedstudy.engines.openvino_worker import read_facts

LIMITS = Limits(model="m", vocabulary=100, context_tokens=50, cache_tokens=64, draft_tokens=3)
BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}


def parse(**changes):
    return parse_request(json.dumps({**BODY, **changes}).encode(), LIMITS)


def test_a_request_of_our_client_is_taken_whole():
    request = parse(
        stream=True,
        stream_options={"include_usage": True},
        return_token_ids=True,
        ignore_eos=True,
        seed=7,
    )
    assert request.prompt == [1, 2, 3]
    assert request.temperature == 0
    assert request.seed == 7
    assert request.stream_options is not None
    assert request.stream_options.include_usage


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt": "text"}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 100]}, "token id 100"),
        ({"prompt": [-1]}, "token id -1"),
        ({"prompt": [1.5]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 48}, "context of 50"),
        ({"temperature": -1}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"top_p": 0.9}, "top_p"),
        ({"n": 2}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"continuous_usage_stats": True}}, "continuous_usage_stats"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(changes, named):
    with pytest.raises(RequestError, match=named) as caught:
        parse(**changes)
    assert caught.value.status == 400
    error = caught.value.body()["error"]
    assert (error["type"], error["code"]) == ("BadRequestError", 400)


def test_a_body_that_is_not_json_is_refused():
    with pytest.raises(RequestError, match="JSON"):
        parse_request(b"{", LIMITS)


def test_another_model_is_not_found():
    with pytest.raises(RequestError, match="`other` does not exist") as caught:
        parse(model="other")
    assert caught.value.status == 404


def test_a_request_must_fit_in_the_cache_with_its_draft():
    roomy = Limits(model="m", vocabulary=100, context_tokens=999, cache_tokens=64, draft_tokens=3)
    body = {**BODY, "prompt": [1] * 50}
    # 50 + 11 + 3 = 64 tokens are two blocks of 32; one more needs a third.
    assert parse_request(json.dumps({**body, "max_tokens": 11}).encode(), roomy).max_tokens == 11
    with pytest.raises(RequestError, match="--cache-gib"):
        parse_request(json.dumps({**body, "max_tokens": 12}).encode(), roomy)
    assert reserved_tokens(1, 0) == 32


def completion(draft_tokens, **changes):
    return Completion(
        reply_id="cmpl-0", created=0, request=parse(**changes), draft_tokens=draft_tokens
    )


def test_each_step_is_an_event_and_the_first_is_no_verify_step():
    reply = completion(3, return_token_ids=True)
    events = []
    for ids, reason in (([10], None), ([11, 12, 13], None), ([14], None), ([15, 16], "stop")):
        reply.add_step(ids, reason)
        events.append(reply.event(ids, ""))
    choices = [event["choices"][0] for event in events]
    assert [choice["token_ids"] for choice in choices] == [[10], [11, 12, 13], [14], [15, 16]]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert [choice["prompt_token_ids"] for choice in choices] == [[1, 2, 3], None, None, None]
    last = reply.usage_event()
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}
    # Three verify steps accepted 2, 0 and 1 drafts: N = 1 + steps + A = 1 + 3 + 3.
    assert last["metrics"]["speculative_decoding"] == {
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": None,
        "acceptance_histogram": [1, 1, 1, 0],
        "num_spec_steps": 3,
        "num_accepted_draft_tokens": 3,
        "num_draft_tokens": None,
        "num_spec_tokens": 3,
        "per_step_accepted": [2, 0, 1],
        "per_step_drafted": None,
    }


def test_our_dialect_reads_every_verify_step():
    reply = completion(3)
    for ids, reason in (([10], None), ([11, 12], None), ([13], "length")):
        reply.add_step(ids, reason)
    acceptance = read_acceptance(reply.usage_event()["metrics"]["speculative_decoding"])
    assert acceptance is not None
    assert (acceptance.steps, acceptance.steps_drafted) == (2, None)
    assert (acceptance.accepted, acceptance.drafted) == (1, None)
    assert acceptance.step_accepted == [1, 0]


def test_without_a_drafter_there_are_no_metrics():
    reply = completion(None)
    reply.add_step([10], "length")
    assert reply.usage_event()["metrics"] is None
    assert "token_ids" not in reply.event([10], "x")["choices"][0]
    assert reply.whole("x")["choices"][0]["text"] == "x"


def test_one_token_has_no_verify_step_and_no_mean():
    reply = completion(3)
    reply.add_step([10], "length")
    metrics = reply.usage_event()["metrics"]["speculative_decoding"]
    assert metrics["num_spec_steps"] == 0
    assert metrics["mean_acceptance_length"] is None


def test_counters_count_verify_steps_and_positions():
    registry = CollectorRegistry()
    counters = Counters(registry, "m", 2)
    counters.prompt(5)
    for index, tokens in enumerate((1, 3, 1, 2)):
        counters.step(tokens, first=index == 0)
    counters.finished("length")

    def value(name, **labels):
        return registry.get_sample_value(f"vllm:{name}_total", {"model_name": "m", **labels})

    assert value("prompt_tokens") == 5
    assert value("generation_tokens") == 7
    assert value("request_success", finished_reason="length") == 1
    assert value("spec_decode_num_drafts") == 3
    assert value("spec_decode_num_accepted_tokens") == 3
    assert value("spec_decode_num_accepted_tokens_per_pos", position="0") == 2
    assert value("spec_decode_num_accepted_tokens_per_pos", position="1") == 1
    assert value("spec_decode_num_draft_tokens") is None


def options(*more):
    required = ("--model", "x", "--served-model-name", "m", "--port", "1")
    return read_options(build_parser().parse_args([*required, *more]))


def test_without_a_method_nothing_is_drafted():
    assert options().draft_tokens == 0
    assert options("--method", "ngram", "--num-draft-tokens", "5").draft_tokens == 5


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--num-draft-tokens", "0"), "--num-draft-tokens"),
        (("--cache-gib", "0"), "--cache-gib"),
        (("--precision", "bf16"), "--kv-cache-precision f32"),
    ],
)
def test_bad_options_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        options(*arguments)


def test_the_cache_is_counted_in_whole_blocks(tmp_path):
    for name, value in (
        (
            "config.json",
            {
                "vocab_size": 100,
                "max_position_embeddings": 50,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "num_hidden_layers": 8,
            },
        ),
        ("generation_config.json", {"eos_token_id": [2, 5]}),
        ("openvino_model.xml", {}),
    ):
        (tmp_path / name).write_text(json.dumps(value))
    facts = read_facts(options("--model", str(tmp_path), "--cache-gib", "0.001"))
    # A token: key and value of 8 layers x 2 heads x 16 numbers x 4 bytes = 2,048 bytes; a block
    # of 32 tokens: 65,536 bytes; 0.001 GiB = 1,073,741 bytes hold 16 of them.
    assert facts.cache_tokens == 16 * 32
    assert facts.end_token_ids == {2, 5}


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="convert the model first"):
        read_facts(options("--model", str(tmp_path)))
