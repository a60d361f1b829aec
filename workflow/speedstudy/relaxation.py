"""How low mean similarity could be at most: the paper's QP relaxation as a proven bound.

This module imports nothing of ours.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_CHECK_EVERY = 10
_BISECTIONS = 60


def similarity_bound(
    rows: npt.NDArray[Any], size: int, *, tolerance: float = 1e-4, max_iterations: int = 2000
) -> float | None:
    """Return a lower bound of the mean pairwise similarity of any ``size`` of the rows.

    Derivation. For a choice S let w be its indicator, d_i = x_i . x_i and G = X X^T. Then
    ``L(S) = w^T G w - d . w``, because w^T G w sums x_i . x_j over all ordered pairs of S and d . w
    takes those with i = j away. Let w be any vector of [0, 1]^N with sum k: the minimum of
    ``f(w) = w^T G w - d . w`` over these is at most that over the indicators among them, so
    ``min f <= L(S)`` for every S, and ``min f / (k (k - 1))`` bounds the mean similarity. For rows
    of unit length d . w = k is constant, and this is the paper's QP, min w^T G w, less k.

    f is convex, so its minimum is found by accelerated projected gradient. No minimum need be
    reached for the bound to hold: at any w, ``f(v) >= f(w) + f'(w) . (v - w)`` for all v, and the
    right side is least for the v that has ones at the k lowest entries of the gradient. The best
    such value is returned; the search ends when f(w) is within ``tolerance`` of it.

    Args:
        rows: Shape (N, d).
        size: k, from 1 to N.
        tolerance: In units of mean similarity.
        max_iterations: At most so many gradient steps; the bound then is only looser.

    Returns:
        The bound; None for ``size`` 1, which has no pairs.

    Raises:
        ValueError: There are fewer rows than ``size``.
    """
    if not 1 <= size <= len(rows):
        raise ValueError(f"cannot bound a choice of {size} from {len(rows)} rows")
    if size == 1:
        return None
    exact = rows.astype(np.float64)
    own = np.einsum("ij,ij->i", exact, exact)
    step = 1 / _steepest(exact)
    pairs = size * (size - 1)
    weights = np.full(len(exact), size / len(exact))
    ahead, momentum, bound = weights, 1.0, -np.inf
    for iteration in range(max_iterations):
        if iteration % _CHECK_EVERY == 0:
            value, slope = _value_and_slope(exact, own, weights)
            lowest = np.partition(slope, size - 1)[:size].sum()
            bound = max(bound, value + float(lowest - slope @ weights))
            if value - bound <= tolerance * pairs:
                break
        _, slope = _value_and_slope(exact, own, ahead)
        following = _project(ahead - step * slope, size)
        if (ahead - following) @ (following - weights) > 0:  # the momentum points uphill
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + (momentum - 1) / faster * (following - weights)
        weights, momentum = following, faster
    return bound / pairs


def _value_and_slope(rows: Vector, own: Vector, weights: Vector) -> tuple[float, Vector]:
    total = weights @ rows
    return float(total @ total - own @ weights), 2 * (rows @ total) - own


def _steepest(rows: Vector) -> float:
    """Return the Lipschitz constant of the slope: twice the largest eigenvalue of G."""
    gram = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T
    return max(2 * float(np.linalg.eigvalsh(gram)[-1]), np.finfo(float).tiny)


def _project(point: Vector, size: int) -> Vector:
    """Return the nearest vector of [0, 1]^N with sum ``size``: the point moved and clipped."""
    low, high = float(point.min()) - 1, float(point.max())
    for _ in range(_BISECTIONS):
        shift = (low + high) / 2
        if np.clip(point - shift, 0, 1).sum() > size:
            low = shift
        else:
            high = shift
    return np.clip(point - (low + high) / 2, 0, 1)
