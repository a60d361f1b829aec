"""Acceptance length with its interval, from the table of prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

CONFIDENCE = 0.95
RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value and its 95 % interval; the interval is None for fewer than two prompts."""

    value: float
    low: float | None
    high: float | None


def acceptance_length(
    groups: Sequence[pd.DataFrame], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate | None:
    """Return the mean over groups of the AL pooled over a group's prompts.

    One group gives a category's AL = 1 + sum(accepted) / sum(steps), several give the macro mean
    over categories. The interval is the percentile bootstrap: prompts are drawn with replacement
    within each group. The same seed gives the same interval.

    Args:
        groups: Rows of the table of prompts, with ``accepted`` and ``steps``. Prompts whose
            ``accepted`` is unknown are left out, and so are groups without another prompt.
        seed: Of the bootstrap.
        resamples: Draws of the bootstrap.

    Returns:
        None if no acceptance is known, or if it is but some steps are not: AL is then undefined.
    """
    known = [rows.loc[rows["accepted"].notna(), ["accepted", "steps"]] for rows in groups]
    known = [rows for rows in known if len(rows)]
    if not known or any(rows["steps"].isna().any() or rows["steps"].sum() == 0 for rows in known):
        return None
    counts = [rows.to_numpy(dtype=float) for rows in known]
    value = float(np.mean([_pooled(rows[None])[0] for rows in counts]))
    if any(len(rows) < 2 for rows in counts):
        return Estimate(value=value, low=None, high=None)
    generator = np.random.default_rng(seed)
    drawn = np.mean(
        [
            _pooled(rows[generator.integers(len(rows), size=(resamples, len(rows)))])
            for rows in counts
        ],
        axis=0,
    )
    tail = 100 * (1 - CONFIDENCE) / 2
    # A draw of prompts without a single step has no AL.
    low, high = (float(bound) for bound in np.nanpercentile(drawn, [tail, 100 - tail]))
    return Estimate(value=value, low=low, high=high)


def _pooled(draws: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 + accepted / steps of each draw; ``draws`` is draw x prompt x (accepted, steps)."""
    accepted, steps = draws[..., 0].sum(axis=-1), draws[..., 1].sum(axis=-1)
    per_step: npt.NDArray[np.float64] = np.divide(
        accepted, steps, out=np.full_like(steps, np.nan), where=steps > 0
    )
    return 1 + per_step
