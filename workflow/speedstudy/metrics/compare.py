"""A drafter's cell against the cell without a drafter: speed and losslessness.

Both cells have the same engine, target, load and sampling; the caller pairs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speedstudy.metrics.bootstrap import RESAMPLES, draw_prompts, interval
from speedstudy.metrics.ratios import divide, mean
from speedstudy.metrics.steps import completion_tokens
from speedstudy.metrics.timing import user_tok_per_s
from speedstudy.records import TurnRecord


@dataclass(frozen=True, kw_only=True)
class UserSpeedup:
    """Ratio of mean ``user_tok_per_s`` over the same prompts.

    Attributes:
        ratio: Mean of the drafter's prompts over mean of the baseline's.
        low: Lower end of the 95 % bootstrap interval; None for fewer than two prompts.
        high: Upper end, as ``low``.
        prompts: Prompts with a rate in both cells.
    """

    ratio: float
    low: float | None
    high: float | None
    prompts: int


@dataclass(frozen=True, kw_only=True)
class TokenAgreement:
    """Whether two cells produced the same tokens.

    Attributes:
        compared: Turns whose token ids both cells have, up to each prompt's first difference.
        equal: How many of them are equal, token by token.
        first_difference: For each other turn, by (prompt_id, turn), the position of the first
            token that differs, or the shorter length where one reply continues the other.
    """

    compared: int
    equal: int
    first_difference: dict[tuple[str, int], int]


def speedup_user(
    baseline: Sequence[TurnRecord],
    drafter: Sequence[TurnRecord],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> UserSpeedup | None:
    """Return the ratio of mean user rates with a paired bootstrap over prompts, or None.

    A prompt's rate is the mean over its ``ok`` turns; prompts with a rate in only one of the
    cells are left out. The interval is the percentile bootstrap: prompts are drawn with
    replacement, the same draw for both cells. The same seed gives the same interval.
    """
    before, after = prompt_rates(baseline), prompt_rates(drafter)
    shared = sorted(before.keys() & after.keys())
    if not shared:
        return None
    base = np.array([before[prompt] for prompt in shared])
    ours = np.array([after[prompt] for prompt in shared])
    low = high = None
    if len(shared) > 1:
        draws = draw_prompts(len(shared), np.random.default_rng(seed), resamples)
        low, high = interval(ours[draws].sum(axis=1) / base[draws].sum(axis=1))
    return UserSpeedup(
        ratio=float(ours.sum() / base.sum()), low=low, high=high, prompts=len(shared)
    )


def speedup_output(baseline: float | None, drafter: float | None) -> float | None:
    """Return the ratio of the cells' ``output_tok_per_s``, or None where one is unknown."""
    return divide(drafter, baseline)


def output_length_drift(
    baseline: Sequence[TurnRecord], drafter: Sequence[TurnRecord]
) -> float | None:
    """Return mean completion tokens of the drafter's cell over the baseline's.

    Over the turns that ended ``ok`` in both. 1.0 is no drift; a speedup beside another value
    compares replies of different length.
    """
    before, after = _tokens(baseline), _tokens(drafter)
    shared = sorted(before.keys() & after.keys())
    return divide(sum(after[key] for key in shared), sum(before[key] for key in shared))


def projected_speedup(t_ar_ms: float, al: float, t_sd_ms: float) -> float:
    """Return t_ar * AL / t_sd (SPEED-Bench, appendix H).

    Args:
        t_ar_ms: Mean time of a decoding step without a drafter, at the batch size of interest.
        al: Acceptance length, tokens per verify step.
        t_sd_ms: Mean time of a step (draft and verify) with the drafter, at that batch size.
    """
    return t_ar_ms * al / t_sd_ms


def token_agreement(
    baseline: Sequence[TurnRecord], drafter: Sequence[TurnRecord]
) -> TokenAgreement:
    """Compare token ids turn by turn, over ``ok`` turns that have them in both cells.

    A prompt is compared up to its first difference: a later turn then continues another
    conversation. Of a prompt sent more than once the first reply counts.
    """
    before, after = _token_ids(baseline), _token_ids(drafter)
    equal = 0
    differences: dict[tuple[str, int], int] = {}
    parted: set[str] = set()
    for key in sorted(before.keys() & after.keys()):
        if key[0] in parted:
            continue
        position = first_difference(before[key], after[key])
        if position is None:
            equal += 1
        else:
            differences[key] = position
            parted.add(key[0])
    return TokenAgreement(
        compared=equal + len(differences), equal=equal, first_difference=differences
    )


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index where the sequences differ, or None if they are equal."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def prompt_rates(turns: Sequence[TurnRecord]) -> dict[str, float]:
    """Return each prompt's mean ``user_tok_per_s`` over its ``ok`` turns that have one."""
    rates: dict[str, list[float | None]] = {}
    for turn in turns:
        if turn.outcome == "ok":
            rates.setdefault(turn.prompt_id, []).append(user_tok_per_s(turn))
    means = {prompt: mean(values) for prompt, values in rates.items()}
    return {prompt: value for prompt, value in means.items() if value is not None}


def _tokens(turns: Sequence[TurnRecord]) -> dict[tuple[str, int], float]:
    """Return mean completion tokens by (prompt_id, turn)."""
    groups: dict[tuple[str, int], list[float | None]] = {}
    for turn in turns:
        if turn.outcome == "ok":
            groups.setdefault((turn.prompt_id, turn.turn), []).append(completion_tokens(turn))
    means = {key: mean(values) for key, values in groups.items()}
    return {key: value for key, value in means.items() if value is not None}


def _token_ids(turns: Sequence[TurnRecord]) -> dict[tuple[str, int], list[int]]:
    ids: dict[tuple[str, int], list[int]] = {}
    for turn in turns:
        if turn.outcome == "ok" and turn.token_ids is not None:
            ids.setdefault((turn.prompt_id, turn.turn), turn.token_ids)
    return ids
