"""The percentile bootstrap over prompts, and acceptance length with the intervals that it gives.

Prompts are drawn with replacement, as many as there are; the interval lies between percentiles of
the draws (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, section 13.3). The same
seed gives the same interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 2000

Floats = npt.NDArray[np.float64]
Counts = Sequence[tuple[int, int]] | Floats


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval; the interval is None for fewer than two prompts."""

    value: float
    low: float | None
    high: float | None


def draw_prompts(
    prompts: int, generator: np.random.Generator, resamples: int
) -> npt.NDArray[np.int64]:
    """Return positions of the drawn prompts, draw x prompt."""
    return generator.integers(prompts, size=(resamples, prompts))


def interval(draws: Floats) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a statistic's draws; NaN marks an undefined draw."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = (float(bound) for bound in np.nanpercentile(draws, [tail, 100 - tail]))
    return low, high


def mean_acceptance_length(
    groups: Sequence[Counts], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate | None:
    """Return the mean over groups of the AL pooled over a group's prompts.

    One group gives its AL = 1 + sum(accepted) / sum(steps), several give the macro mean. Prompts
    are drawn within each group.

    Args:
        groups: Accepted draft tokens and verify steps of each prompt, prompt x 2.
        seed: Of the bootstrap.
        resamples: Draws of the bootstrap.

    Returns:
        None without groups, or if one of them has no step.
    """
    tables = [_table(counts) for counts in groups]
    if not tables or not all(_has_steps(counts) for counts in tables):
        return None
    value = float(np.mean([_pooled(counts) for counts in tables]))
    if any(len(counts) < 2 for counts in tables):
        return Estimate(value=value, low=None, high=None)
    generator = np.random.default_rng(seed)
    drawn = [_pooled(counts[draw_prompts(len(counts), generator, resamples)]) for counts in tables]
    low, high = interval(np.mean(drawn, axis=0))
    return Estimate(value=value, low=low, high=high)


def acceptance_length_change(
    before: Mapping[str, tuple[int, int]],
    after: Mapping[str, tuple[int, int]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Estimate | None:
    """Return pooled AL of one cell minus that of another, over the prompts that both have.

    The bootstrap is paired: a draw takes the same prompts from both cells.

    Args:
        before: Accepted draft tokens and verify steps by prompt (``prompt_counts``).
        after: The same of the cell whose AL it is subtracted from.
        seed: Of the bootstrap.
        resamples: Draws of the bootstrap.

    Returns:
        None without a common prompt, or if a side has no step in them.
    """
    shared = sorted(before.keys() & after.keys())
    old, new = (_table([side[prompt] for prompt in shared]) for side in (before, after))
    if not (_has_steps(old) and _has_steps(new)):
        return None
    value = float(_pooled(new) - _pooled(old))
    if len(shared) < 2:
        return Estimate(value=value, low=None, high=None)
    draws = draw_prompts(len(shared), np.random.default_rng(seed), resamples)
    low, high = interval(_pooled(new[draws]) - _pooled(old[draws]))
    return Estimate(value=value, low=low, high=high)


def _table(counts: Counts) -> Floats:
    return np.asarray(counts, dtype=float).reshape(-1, 2)


def _has_steps(counts: Floats) -> bool:
    return bool(counts[:, 1].sum() > 0)


def _pooled(counts: Floats) -> Floats:
    """Return 1 + accepted / steps over the prompts; ``counts`` is [draw x] prompt x 2.

    A draw of prompts without a single step has no AL and is NaN.
    """
    accepted, steps = counts[..., 0].sum(axis=-1), counts[..., 1].sum(axis=-1)
    per_step: Floats = np.divide(
        accepted, steps, out=np.full(np.shape(steps), np.nan), where=steps > 0
    )
    return 1 + per_step
