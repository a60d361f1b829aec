"""Draft acceptance out of the objects that engines put into a reply.

Two or more sources in one object (lists, histogram, totals) are compared; where they differ, the
finer one counts and the difference is returned as a conflict.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from speedstudy.dialects.reply import Acceptance, Chunk

Told = tuple[Acceptance | None, str | None]

# Relative; TensorRT-LLM computes the average as a 32-bit float.
ITERATIONS_TOLERANCE = 1e-5


def read_vllm(metrics: Mapping[str, Any]) -> Told:
    """Return what vLLM's ``metrics.speculative_decoding`` tells, and its conflict.

    Any field may be missing or null. A list goes before the histogram, that before a total.
    Without per-step lists the histogram (dense, or sparse as ``{"0": 39, "3": 3}``) fills
    ``step_accepted`` in rising order, source ``totals``: how many steps accepted how much is
    known, their order is not. The ratios in the object are not read: vLLM gives 1.0 and 0.0 for
    "no steps".

    The object reports its own kind of step. An engine that tells how much it drafted (vLLM)
    lists the steps that drafted: ``steps_drafted``. One that reports null for the drafted counts
    (our OpenVINO server, where prompt lookup does not tell) lists every verify step: ``steps``.
    The other one stays None, and ``metrics`` derives it where the stream allows.

    Raises:
        TypeError: A count is not a whole number.
        ValueError: The two per-step lists differ in length.
    """
    if not metrics:
        return None, None
    listed = _counts(metrics.get("per_step_accepted"))
    step_drafted = _counts(metrics.get("per_step_drafted"))
    if listed is not None and step_drafted is not None and len(listed) != len(step_drafted):
        raise ValueError(
            f"per_step_accepted has {len(listed)} entries, per_step_drafted {len(step_drafted)}"
        )
    histogram = _expand(metrics.get("acceptance_histogram"))
    step_accepted = histogram if listed is None else listed
    accepted = _count(metrics.get("num_accepted_draft_tokens"))
    drafted = _count(metrics.get("num_draft_tokens"))
    steps = _count(metrics.get("num_spec_steps"))
    steps_of_lists = None
    if step_drafted is not None:
        steps_of_lists = sum(length > 0 for length in step_drafted)
    elif step_accepted is not None:
        steps_of_lists = len(step_accepted)
    conflict = _conflict(
        ("accepted drafts", (_sum(listed), _sum(histogram), accepted)),
        ("drafted tokens", (_sum(step_drafted), drafted)),
        # Lists may hold steps that drafted nothing, which the total leaves out.
        ("steps", (steps_of_lists, steps if steps != _length(listed) else steps_of_lists)),
    )
    accepted = _first(_sum(step_accepted), accepted)
    drafted = _first(_sum(step_drafted), drafted)
    reported = _first(steps_of_lists, steps)
    if accepted is None and drafted is None and reported is None:
        return None, conflict
    told = Acceptance(
        source="totals" if listed is None else "steps",
        steps=reported if drafted is None else None,
        steps_drafted=None if drafted is None else reported,
        drafted=drafted,
        accepted=accepted,
        step_drafted=None if listed is None else step_drafted,
        step_accepted=step_accepted,
    )
    return told, conflict


def read_sglang(meta: Mapping[str, Any]) -> Told:
    """Return what SGLang's ``meta_info`` tells at the end of a reply, and its conflict.

    ``spec_verify_ct`` counts every verify step. ``spec_num_proposed_drafts`` is a formula of the
    engine's (verify steps times draft tokens a step; nodes, for a tree), not a count, and is
    wrong where the verify window varies (``spec_cap_length``): None then.
    ``spec_accept_length`` is not read, it counts the prefill token. Names of older releases
    (``spec_accept_token_num``, ``spec_draft_token_num``, ``spec_accept_histogram``) are read too.

    Raises:
        TypeError: A count is not a whole number.
    """
    steps = _count(meta.get("spec_verify_ct"))
    accepted = _count(
        _first(meta.get("spec_num_correct_drafts"), meta.get("spec_accept_token_num"))
    )
    drafted = _count(_first(meta.get("spec_num_proposed_drafts"), meta.get("spec_draft_token_num")))
    histogram = _expand(
        _first(meta.get("spec_correct_drafts_histogram"), meta.get("spec_accept_histogram"))
    )
    if meta.get("spec_cap_length") is not None:
        drafted = None
    conflict = _conflict(
        ("accepted drafts", (_sum(histogram), accepted)),
        ("verify steps", (_length(histogram), steps)),
    )
    accepted = _first(_sum(histogram), accepted)
    steps = _first(_length(histogram), steps)
    if steps is None and accepted is None:
        return None, conflict
    told = Acceptance(
        source="totals", steps=steps, drafted=drafted, accepted=accepted, step_accepted=histogram
    )
    return told, conflict


def read_llamacpp(timings: Mapping[str, Any]) -> Told:
    """Return what llama.cpp's ``timings`` tell at the end of a reply.

    The server writes ``draft_n`` and ``draft_n_accepted`` only where it drafted something:
    timings without them say that it did not. Steps are in its counters only.

    Raises:
        TypeError: A count is not a whole number.
    """
    if "predicted_n" not in timings:
        return None, None
    drafted = _count(timings.get("draft_n")) or 0
    accepted = _count(timings.get("draft_n_accepted")) or 0
    told = Acceptance(
        source="totals",
        steps_drafted=0 if drafted == 0 else None,
        drafted=drafted,
        accepted=accepted,
    )
    return told, None


def read_trtllm(choice: Mapping[str, Any], chunks: Sequence[Chunk], tokens: int | None) -> Told:
    """Return what TensorRT-LLM's last choice tells, and its conflict.

    ``avg_decoded_tokens_per_iter`` is completion tokens over iterations, and the prefill is one
    of them, so that verify steps = tokens / average - 1. Where just as many chunks as iterations
    came, each chunk is one iteration and its size tells what the step gave (source ``blocks``;
    what a cut took off the last step is not seen). Otherwise only ``steps`` is known.
    ``speculative_decoding`` on the choice, where a release has it, has totals and a histogram of
    the steps that drafted.

    Args:
        choice: The last choice of the stream.
        chunks: The chunks of the reply.
        tokens: Its completion tokens.

    Raises:
        TypeError: A count is not a whole number.
    """
    steps = _verify_steps(choice.get("avg_decoded_tokens_per_iter"), tokens)
    sizes = [chunk.tokens for chunk in chunks]
    block_accepted = None
    if steps is not None and len(sizes) == steps + 1 and sizes[0] == 1 and sum(sizes) == tokens:
        block_accepted = [size - 1 for size in sizes[1:]]
    stats = choice.get("speculative_decoding")
    if stats:
        return _read_trtllm_stats(stats, steps)
    if steps is None:
        return None, None
    told = Acceptance(
        source="totals" if block_accepted is None else "blocks",
        steps=steps,
        accepted=_sum(block_accepted),
        step_accepted=block_accepted,
    )
    return told, None


def _read_trtllm_stats(stats: Mapping[str, Any], steps: int | None) -> Told:
    histogram = _expand(stats.get("acceptance_histogram"))
    accepted = _count(stats.get("total_accepted_draft_tokens"))
    drafted = _count(stats.get("total_draft_tokens"))
    steps_drafted = _count(stats.get("num_spec_steps"))
    conflict = _conflict(
        ("accepted drafts", (_sum(histogram), accepted)),
        ("drafted steps", (_length(histogram), steps_drafted)),
    )
    told = Acceptance(
        source="totals",
        steps=steps,
        steps_drafted=_first(_length(histogram), steps_drafted),
        drafted=drafted,
        accepted=_first(_sum(histogram), accepted),
        step_accepted=histogram,
    )
    return told, conflict


def _verify_steps(average: float | None, tokens: int | None) -> int | None:
    """Tokens / average - 1 if that is a whole number, else None."""
    if not average or not tokens:
        return None
    iterations = tokens / average
    whole = round(iterations)
    if whole < 1 or abs(iterations - whole) > ITERATIONS_TOLERANCE * whole:
        return None
    return whole - 1


def _expand(histogram: Any) -> list[int] | None:
    """The accepted count of every step of a histogram, dense or sparse, in rising order."""
    if isinstance(histogram, Mapping):
        counts = {int(accepted): steps for accepted, steps in histogram.items()}
    elif isinstance(histogram, list):
        counts = dict(enumerate(histogram))
    else:
        return None
    return sorted(Counter(counts).elements())


def _counts(values: Any) -> list[int] | None:
    return None if values is None else [_whole(value) for value in values]


def _count(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError(f"{value!r} is not a whole number")
    return int(value)


def _sum(values: Iterable[int] | None) -> int | None:
    return None if values is None else sum(values)


def _length(values: Sequence[int] | None) -> int | None:
    return None if values is None else len(values)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _conflict(*counted: tuple[str, Iterable[int | None]]) -> str | None:
    """Name the quantities that sources of one reply count differently."""
    texts = []
    for name, values in counted:
        known = {value for value in values if value is not None}
        if len(known) > 1:
            texts.append(f"{name} counted as {' and '.join(map(str, sorted(known)))}")
    return "; ".join(texts) or None
