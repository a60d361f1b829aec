"""Draft acceptance from vLLM's per-request ``metrics.speculative_decoding`` object.

The object reports its own kind of step. An engine that tells how much it drafted (vLLM) lists
the steps that drafted; one that reports null for the drafted counts (our OpenVINO server, where
prompt lookup does not tell) lists every verify step. The first kind goes to ``steps_drafted``, the
second to ``steps``; the other one stays None, and ``metrics`` derives it where the stream allows.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from speedstudy.dialects.reply import Acceptance


def read_acceptance(metrics: Mapping[str, Any]) -> Acceptance | None:
    """Return what the object tells, or None if it tells nothing of ours.

    Any field may be missing or null. A list goes before a total, a total before what the
    histogram adds up to. Without per-step lists the histogram (dense, or sparse as
    ``{"0": 39, "3": 3}``) fills ``step_accepted`` in rising order, source ``totals``: how many
    steps accepted how much is known, their order is not. The ratios in the object are not read:
    vLLM gives 1.0 and 0.0 for "no steps".

    Args:
        metrics: The ``speculative_decoding`` object.

    Raises:
        ValueError: The two per-step lists differ in length.
    """
    listed: list[int] | None = metrics.get("per_step_accepted")
    step_drafted: list[int] | None = metrics.get("per_step_drafted")
    if listed is not None and step_drafted is not None and len(listed) != len(step_drafted):
        raise ValueError(
            f"per_step_accepted has {len(listed)} entries, per_step_drafted {len(step_drafted)}"
        )
    step_accepted = listed
    if listed is None:
        step_accepted = _expand(metrics.get("acceptance_histogram"))
    accepted: int | None = metrics.get("num_accepted_draft_tokens")
    if step_accepted is not None and (listed is not None or accepted is None):
        accepted = sum(step_accepted)
    drafted: int | None = metrics.get("num_draft_tokens")
    reported: int | None = metrics.get("num_spec_steps")
    if step_drafted is not None:
        drafted = sum(step_drafted)
        reported = sum(length > 0 for length in step_drafted)
    elif step_accepted is not None and (listed is not None or reported is None):
        reported = len(step_accepted)
    if accepted is None and drafted is None and reported is None:
        return None
    return Acceptance(
        source="totals" if listed is None else "steps",
        steps=reported if drafted is None else None,
        steps_drafted=None if drafted is None else reported,
        drafted=drafted,
        accepted=accepted,
        step_drafted=None if listed is None else step_drafted,
        step_accepted=step_accepted,
    )


def _expand(histogram: Any) -> list[int] | None:
    """The accepted count of every step of a histogram, in rising order."""
    if isinstance(histogram, Mapping):
        counts = Counter({int(accepted): int(steps) for accepted, steps in histogram.items()})
    elif isinstance(histogram, list):
        counts = Counter(dict(enumerate(histogram)))
    else:
        return None
    return sorted(counts.elements())
