"""Other tools' numbers from the same record, under those tools' own names.

They differ from ours on purpose: a published number can then be set beside ours. Formulas:
SPEED-Bench's ``specdec_bench`` (chunk = step, first chunk counted), SGLang's ``meta_info``
(completion tokens / verify calls) and ``vllm bench serve`` (drafted steps only).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.steps import StepCounts
from speedstudy.metrics.throughput import span_s
from speedstudy.records import TurnRecord


def conventions(
    turns: Sequence[TurnRecord],
    counts: Sequence[StepCounts],
    pooled: Mapping[str, Any],
    *,
    at_least: Sequence[int] | None,
    devices: int | None,
) -> dict[str, dict[str, Any]]:
    """Return the numbers of ``specdec_bench``, ``sglang`` and ``vllm``.

    Args:
        turns: The ``ok`` requests.
        counts: Their step counts, in the same order.
        pooled: The pooled acceptance of the cell.
        at_least: Steps that accepted at least k + 1 tokens, at index k, from the server's
            counters; None to count them in the requests' step lists.
        devices: Number of devices the engine ran on, or None if unknown.
    """
    return {
        "specdec_bench": specdec_bench(turns, devices),
        "sglang": sglang(counts),
        "vllm": vllm(pooled, accepted_at_least(turns) if at_least is None else at_least),
    }


def specdec_bench(turns: Sequence[TurnRecord], devices: int | None) -> dict[str, Any]:
    """Return the numbers of SPEED-Bench's own harness, NVIDIA Model Optimizer ``specdec_bench``.

    Every chunk counts as one step, the prefill's included, so that an engine which merges steps
    under load raises the lengths. A request's length is the mean over the chunks of all turns of
    its prompt, the average is over prompts. An EOS stays in its chunk, as that harness does for
    TensorRT-LLM. Keys of the three tables are chunk lengths, as text.
    """
    chunks: dict[str, list[int]] = {}
    category: dict[str, str] = {}
    for turn in turns:
        chunks.setdefault(turn.prompt_id, []).extend(turn.chunk_tokens)
        if turn.category is not None:
            category[turn.prompt_id] = turn.category
    lengths = {prompt: divide(sum(sizes), len(sizes)) for prompt, sizes in chunks.items()}
    histogram = Counter(size for sizes in chunks.values() for size in sizes)
    conditional, joint = chunk_rates(histogram)
    output_tps = divide(sum(sum(sizes) for sizes in chunks.values()), span_s(turns))
    return {
        "Average_AL": mean(list(lengths.values())),
        "Category_AL": {
            name: mean([lengths[prompt] for prompt in category if category[prompt] == name])
            for name in sorted(set(category.values()))
        },
        "Acceptance_Length_Histogram": _text_keys(histogram),
        "Conditional_Acceptance_Rate": _text_keys(conditional),
        "Joint_Acceptance_Rate": _text_keys(joint),
        "Output TPS": output_tps,
        "Output TPS/gpu": divide(output_tps, devices),
        "Request Generation Tokens Per Second": mean([_generation_tps(turn) for turn in turns]),
    }


def chunk_rates(histogram: Mapping[int, int]) -> tuple[dict[int, float], dict[int, float]]:
    """Return P(l >= k) / P(l >= previous observed length), and P(l >= k), for each observed k.

    The first key is always 1.0 and a length that never occurred has no key: conditional rate k
    is that of draft position k - 1 only if every shorter length occurred.
    """
    conditional: dict[int, float] = {}
    joint: dict[int, float] = {}
    total = remaining = previous = sum(histogram.values())
    for length in sorted(histogram):
        conditional[length] = remaining / previous
        joint[length] = remaining / total
        previous = remaining
        remaining -= histogram[length]
    return conditional, joint


def sglang(counts: Sequence[StepCounts]) -> dict[str, float | None]:
    """Return means over requests of SGLang's per-request fields.

    ``spec_accept_length`` is completion tokens / verify steps: it counts the prefill token and
    is cut by an EOS. ``spec_accept_rate`` is accepted / drafted.
    """
    return {
        "spec_accept_length": mean([divide(count.tokens, count.steps) for count in counts]),
        "spec_accept_rate": mean([divide(count.accepted, count.drafted) for count in counts]),
    }


def vllm(pooled: Mapping[str, Any], at_least: Sequence[int] | None) -> dict[str, Any]:
    """Return the fields of ``vllm bench serve``: drafted steps only, the rate in percent.

    Its per-position rates divide by all drafted steps, also by those too short for the position.
    """
    rate, steps = pooled["ar"], pooled["steps_drafted"]
    return {
        "spec_decode_acceptance_length": pooled["al_drafted"],
        "spec_decode_acceptance_rate": None if rate is None else 100.0 * rate,
        "spec_decode_num_drafts": pooled["steps_drafted"],
        "spec_decode_draft_tokens": pooled["drafted"],
        "spec_decode_accepted_tokens": pooled["accepted"],
        "spec_decode_per_position_acceptance_rates": None
        if at_least is None or steps is None
        else [divide(number, steps) for number in at_least],
    }


def accepted_at_least(turns: Sequence[TurnRecord]) -> list[int] | None:
    """Return the steps that accepted at least k + 1 tokens, at index k.

    None unless every request with accepted tokens lists its steps.
    """
    lists = [turn.step_accepted for turn in turns if turn.step_accepted is not None]
    if not lists or any(turn.accepted and turn.step_accepted is None for turn in turns):
        return None
    histogram = Counter(accepted for steps in lists for accepted in steps)
    return [
        sum(number for accepted, number in histogram.items() if accepted > k)
        for k in range(max(histogram, default=0))
    ]


def _generation_tps(turn: TurnRecord) -> float | None:
    """Return (tokens - 1) / (last - first chunk), which takes the first chunk for one token."""
    if len(turn.chunk_s) < 2:
        return None
    return divide(sum(turn.chunk_tokens) - 1, turn.chunk_s[-1] - turn.chunk_s[0])


def _text_keys(table: Mapping[int, Any]) -> dict[str, Any]:
    return {str(key): table[key] for key in sorted(table)}
