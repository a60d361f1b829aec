"""Division and mean where a side may be unknown: undefined is None, never 0 and never NaN."""

from collections.abc import Sequence


def divide(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient, or None where a side is unknown or the denominator is 0."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values, or None if there is none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
