"""Acceptance length with its interval, from the table of prompts."""

from collections.abc import Sequence

import pandas as pd

from speedstudy.metrics.bootstrap import Estimate, mean_acceptance_length


def acceptance_length(groups: Sequence[pd.DataFrame]) -> Estimate | None:
    """Return the mean over groups of the AL pooled over a group's prompts.

    One group gives a category's AL, several give the macro mean over categories; the interval is
    that of ``mean_acceptance_length``.

    Args:
        groups: Rows of the table of prompts, with ``accepted`` and ``steps``. Prompts whose
            ``accepted`` is unknown are left out, and so are groups without another prompt.

    Returns:
        None if no acceptance is known, or if it is but some steps are not: AL is then undefined.
    """
    known = [rows.loc[rows["accepted"].notna(), ["accepted", "steps"]] for rows in groups]
    if any(rows["steps"].isna().any() for rows in known):
        return None
    return mean_acceptance_length([rows.to_numpy(dtype=float) for rows in known if len(rows)])
