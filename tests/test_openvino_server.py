"""The OpenVINO server's pure parts: what it takes, what it refuses, what its events say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from speedstudy.dialects.acceptance import read_vllm
from speedstudy.engines.kind import LaunchRequest
from speedstudy.engines.openvino import OPENVINO, SERVER
from speedstudy.engines.openvino_counters import Counters
from speedstudy.engines.openvino_options import read_facts
from speedstudy.engines.openvino_protocol import (
    Completion,
    Limits,
    RequestError,
    Verify,
    draft_length,
    parse_request,
    reserved_tokens,
)
from speedstudy.engines.openvino_server import build_parser, read_options
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Limits(
    model="m",
    vocabulary=100,
    context_tokens=50,
    cache_tokens=64,
    draft_tokens=3,
    drafted_known=False,
    greedy_only=False,
)
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
    roomy = replace(LIMITS, context_tokens=999)
    body = {**BODY, "prompt": [1] * 50}
    # 50 + 11 + 3 = 64 tokens are two blocks of 32; one more needs a third.
    assert parse_request(json.dumps({**body, "max_tokens": 11}).encode(), roomy).max_tokens == 11
    with pytest.raises(RequestError, match="--cache-gib"):
        parse_request(json.dumps({**body, "max_tokens": 12}).encode(), roomy)
    assert reserved_tokens(1, 0) == 32


def test_sampling_is_refused_where_the_drafter_would_change_the_text():
    greedy = replace(LIMITS, greedy_only=True)
    assert parse_request(json.dumps(BODY).encode(), greedy).temperature == 0
    with pytest.raises(RequestError, match="temperature: with an EAGLE-3 head"):
        parse_request(json.dumps({**BODY, "temperature": 0.8}).encode(), greedy)


def looked_up(accepted):
    return Verify(drafted=None, accepted=accepted)


def completion(draft_tokens, **changes):
    return Completion(
        reply_id="cmpl-0", created=0, request=parse(**changes), draft_tokens=draft_tokens
    )


def test_each_step_is_an_event_and_the_first_is_no_verify_step():
    reply = completion(3, return_token_ids=True)
    events = []
    for ids, reason, verify in (
        ([10], None, None),
        ([11, 12, 13], None, looked_up(2)),
        ([14], None, looked_up(0)),
        ([15, 16], "stop", looked_up(1)),
    ):
        reply.add_step(ids, reason, verify)
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
    for ids, reason, verify in (
        ([10], None, None),
        ([11, 12], None, looked_up(1)),
        ([13], "length", looked_up(0)),
    ):
        reply.add_step(ids, reason, verify)
    acceptance, conflict = read_vllm(reply.usage_event()["metrics"]["speculative_decoding"])
    assert acceptance is not None
    assert conflict is None
    assert (acceptance.steps, acceptance.steps_drafted) == (2, None)
    assert (acceptance.accepted, acceptance.drafted) == (1, None)
    assert acceptance.step_accepted == [1, 0]


def test_without_a_drafter_there_are_no_metrics():
    reply = completion(None)
    reply.add_step([10], "length", None)
    assert reply.usage_event()["metrics"] is None
    assert "token_ids" not in reply.event([10], "x")["choices"][0]
    assert reply.whole("x")["choices"][0]["text"] == "x"


def test_one_token_has_no_verify_step_and_no_mean():
    reply = completion(3)
    reply.add_step([10], "length", None)
    metrics = reply.usage_event()["metrics"]["speculative_decoding"]
    assert metrics["num_spec_steps"] == 0
    assert metrics["mean_acceptance_length"] is None


def test_nothing_is_drafted_past_the_length():
    # A reply of 12 tokens, k = 5, 1 token before the first step: it may give 11, so draft 5 (gives
    # 4), then 7 are left, so 5 again (gives 5), then 2, so 1, and the target adds the last one.
    assert [draft_length(5, 12, emitted) for emitted in (1, 5, 10)] == [5, 5, 1]
    assert draft_length(5, 12, 11) == 0
    assert draft_length(3, 5, 1) == 3


def drafted(drafted_tokens, accepted):
    return Verify(drafted=drafted_tokens, accepted=accepted)


def test_known_drafts_are_told_as_vllm_tells_them():
    """The step that drafted nothing is left out; one cut by the end of text counts whole."""
    reply = completion(3)
    for ids, reason, verify in (
        ([10], None, None),
        ([11, 12, 13], None, drafted(3, 2)),
        ([14], None, drafted(0, 0)),
        ([15, 2], "stop", drafted(3, 3)),
    ):
        reply.add_step(ids, reason, verify)
    told = reply.usage_event()["metrics"]["speculative_decoding"]
    assert told == {
        "mean_acceptance_length": 3.5,
        "draft_acceptance_rate": 5 / 6,
        "acceptance_histogram": [0, 0, 1, 1],
        "num_spec_steps": 2,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 6,
        "num_spec_tokens": 3,
        "per_step_accepted": [2, 3],
        "per_step_drafted": [3, 3],
    }


def test_our_dialect_reads_known_drafts():
    reply = completion(3)
    reply.add_step([10], None, None)
    reply.add_step([11, 12], None, drafted(3, 1))
    reply.add_step([13], "length", drafted(0, 0))
    acceptance, conflict = read_vllm(reply.usage_event()["metrics"]["speculative_decoding"])
    assert acceptance is not None
    assert conflict is None
    assert (acceptance.steps, acceptance.steps_drafted) == (None, 1)
    assert (acceptance.accepted, acceptance.drafted) == (1, 3)
    assert (acceptance.step_accepted, acceptance.step_drafted) == ([1], [3])


def counted(registry, name, **labels):
    return registry.get_sample_value(f"vllm:{name}_total", {"model_name": "m", **labels})


def test_known_drafts_are_counted_as_vllm_counts_them():
    registry = CollectorRegistry()
    counters = Counters(registry, "m", 3, drafted_known=True)
    for tokens, verify in ((1, None), (3, drafted(3, 2)), (1, drafted(0, 0)), (2, drafted(1, 1))):
        counters.step(tokens, verify)
    assert counted(registry, "generation_tokens") == 7
    assert counted(registry, "spec_decode_num_drafts") == 2
    assert counted(registry, "spec_decode_num_draft_tokens") == 4
    assert counted(registry, "spec_decode_num_accepted_tokens") == 3
    at = [
        counted(registry, "spec_decode_num_accepted_tokens_per_pos", position=position)
        for position in "012"
    ]
    assert at == [2, 1, 0]


def test_counters_count_verify_steps_and_positions():
    registry = CollectorRegistry()
    counters = Counters(registry, "m", 2, drafted_known=False)
    counters.prompt(5)
    counters.step(1, None)
    for accepted in (2, 0, 1):
        counters.step(accepted + 1, looked_up(accepted))
    counters.finished("length")

    def value(name, **labels):
        return counted(registry, name, **labels)

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
    head = options("--method", "eagle3", "--draft-model", "y", "--num-draft-tokens", "4")
    assert (head.draft_tokens, str(head.draft_model)) == (4, "y")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--num-draft-tokens", "0"), "--num-draft-tokens"),
        (("--cache-gib", "0"), "--cache-gib"),
        (("--precision", "bf16"), "--kv-cache-precision f32"),
        (("--method", "eagle3"), "--draft-model goes with"),
        (("--method", "draft_model"), "--draft-model goes with"),
        (("--draft-model", "y"), "--draft-model goes with"),
    ],
)
def test_bad_options_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        options(*arguments)


def launch_request(drafter_key, **changes):
    settings = yaml.safe_load((ROOT / "config" / "engine" / "openvino.yaml").read_text())
    drafter = yaml.safe_load((ROOT / f"config/drafter/{drafter_key}.yaml").read_text())
    for name, value in changes.items():
        (settings if name in settings else drafter)[name] = value
    return LaunchRequest(
        engine=Engine(**settings),
        drafter=Drafter(**drafter),
        model=Path("target"),
        draft_model=Path("head") if "artifact" in drafter else None,
        folder=Path(),
        context_length=100,
        served_model_name="m",
        port=1,
        max_concurrency=4,
    )


@pytest.mark.parametrize(
    ("key", "changes", "named"),
    [
        ("none", {"precision": "f16"}, "engine openvino: .* not in f16"),
        ("none", {"kv_cache_gib": None}, "needs kv_cache_gib"),
        ("ngram_k3", {"min_ngram_size": 2}, "down to one token"),
        ("eagle3_smollm2", {"tree": {"top_k": 2, "nodes": 6}}, "chains only"),
        ("eagle3_smollm2", {"synthetic_al": 2.0}, "can't pretend"),
    ],
)
def test_what_this_engine_cannot_do_is_refused_before_it_starts(key, changes, named):
    with pytest.raises(ValueError, match=named):
        OPENVINO.launch(launch_request(key, **changes))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("none", ("none", 0, None)),
        ("ngram_k5", ("ngram", 5, None)),
        ("eagle3_smollm2", ("eagle3", 3, Path("head"))),
    ],
)
def test_the_server_takes_the_command_line_of_each_drafter(key, expected):
    request = launch_request(key)
    argv = OPENVINO.launch(request).argv
    assert request.drafter.method in OPENVINO.methods
    taken = read_options(build_parser().parse_args(argv[len(SERVER) :]))
    assert (taken.method, taken.draft_tokens, taken.draft_model) == expected
    assert taken.max_num_seqs == 4


def write_model(folder, layers):
    config = {
        "vocab_size": 100,
        "max_position_embeddings": 50,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": layers,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}))
    (folder / "openvino_model.xml").write_text("")


def test_the_cache_is_counted_in_whole_blocks(tmp_path):
    write_model(tmp_path / "target", layers=8)
    target = ("--model", str(tmp_path / "target"), "--cache-gib", "0.001")
    facts = read_facts(options(*target))
    # A token: key and value of 8 layers x 2 heads x 16 numbers x 4 bytes = 2,048 bytes; a block
    # of 32 tokens: 65,536 bytes; 0.001 GiB = 1,073,741 bytes hold 16 of them.
    assert facts.cache_tokens == 16 * 32
    assert facts.end_token_ids == {2, 5}
    # With a head of one layer a block is 9 / 8 as large: 73,728 bytes, of which 14 fit.
    write_model(tmp_path / "head", layers=1)
    head = ("--method", "eagle3", "--draft-model", str(tmp_path / "head"))
    assert read_facts(options(*target, *head)).cache_tokens == 14 * 32


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="convert the model first"):
        read_facts(options("--model", str(tmp_path)))
