"""The paper's Algorithm 1 (section 5): choose rows of low mutual similarity.

How it is fast: the running score m = X (x_a + x_b + ...) over the chosen rows and the block P of
similarities between chosen and all rows are kept, so that each row that enters the choice costs
one read of the embeddings and no Gram matrix exists. How it is exact: the scores come from
products in the embeddings' own precision, but whatever is within their rounding error of the best
is compared again in float64, so that the choice is that of Algorithm 1 in float64.
This module imports nothing of ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_CHUNK_ROWS = 4096
_TIE = 1e-12

Float = np.float32 | np.float64
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What Algorithm 1 chose.

    Attributes:
        indices: Chosen rows in the order of choice; a row that was swapped in stands at the place
            of the one it replaced. A prefix is therefore itself a spread choice.
        objective: L(S), the sum of x_i . x_j over ordered pairs i != j of the chosen rows.
        mean_similarity: ``objective`` / (k (k - 1)); None for a single row.
        swaps: Swaps made.
    """

    indices: tuple[int, ...]
    objective: float
    mean_similarity: float | None
    swaps: int


def select_diverse(
    embeddings: npt.NDArray[Any], size: int, seed: int, max_swaps: int | None = None
) -> Selection:
    """Choose ``size`` rows of low mutual similarity: Algorithm 1 of the paper.

    A random first row, then greedily the row of least summed similarity to those chosen, then the
    best swap of a chosen for another row as long as one lowers L(S). Ties go to the lowest row;
    among swaps to the lowest row that leaves, then the lowest that enters. The rows are taken as
    they are: similarity is the dot product, the cosine if the rows have unit length.

    Time is about (size + swaps) reads of the embeddings; memory is theirs plus O(size * N).

    Args:
        embeddings: Shape (N, d); float32 and float64 are used as they are, others as float32.
        size: Rows to choose, 1 to N.
        seed: Of the random first row.
        max_swaps: At most so many swaps; None for no limit.

    Raises:
        ValueError: The shape, a value that is not finite, or ``size`` is unusable.
    """
    rows = _checked(embeddings, size)
    state = _Choice(rows, size)
    state.add(int(np.random.default_rng(seed).integers(len(rows))))
    while state.count < size:
        state.add(state.least_similar())
    swaps = 0
    while max_swaps is None or swaps < max_swaps:
        best = state.best_swap()
        if best is None:
            break
        state.swap(*best)
        swaps += 1
    objective = summed_similarity(rows[state.chosen])
    return Selection(
        indices=tuple(state.chosen.tolist()),
        objective=objective,
        mean_similarity=objective / (size * (size - 1)) if size > 1 else None,
        swaps=swaps,
    )


def summed_similarity(rows: npt.NDArray[Any]) -> float:
    """Return L of the rows: the sum of x_i . x_j over ordered pairs i != j, in float64."""
    exact = rows.astype(np.float64)
    total = exact.sum(axis=0)
    return float(total @ total - np.einsum("ij,ij->", exact, exact))


class _Choice:
    """The growing choice: which rows are in, their score m and similarity block P."""

    def __init__(self, rows: npt.NDArray[Float], size: int) -> None:
        count, dimensions = rows.shape
        self._rows = rows
        self._positions = np.empty(size, dtype=np.intp)
        self._similar = np.empty((size, count), dtype=rows.dtype)
        self._score = np.zeros(count)
        # An upper bound of every row's similarity to any chosen row: never lowered, so cheap.
        self._ceiling = np.full(count, -np.inf)
        self._outside = np.ones(count, dtype=bool)
        self._total = np.zeros(dimensions)
        self.count = 0
        # No similarity is larger than the largest squared length (1 for embeddings). The errors of
        # a sum of size * dimensions products behave like a random walk; eight of its standard
        # deviations cover the difference of two such sums.
        largest = float(np.einsum("ij,ij->i", rows, rows).max())
        self._doubt = 8 * largest * float(np.finfo(rows.dtype).eps * np.sqrt(size * dimensions))
        # Float64's own error is far below this. A swap has to gain more, so that L(S) falls with
        # each one and the search ends.
        self._tie = _TIE * size * largest

    @property
    def chosen(self) -> Indices:
        return self._positions[: self.count]

    def add(self, row: int) -> None:
        """Put a row into the next place: one read of the embeddings."""
        self._place(self.count, row)
        self.count += 1

    def swap(self, place: int, row: int) -> None:
        """Put a row into the place of another: one read of the embeddings."""
        self._score -= self._similar[place]
        self._total -= self._rows[self._positions[place]]
        self._outside[self._positions[place]] = True
        self._place(place, row)

    def _place(self, place: int, row: int) -> None:
        similar = self._similar[place]
        np.matmul(self._rows, self._rows[row], out=similar)
        self._score += similar
        np.maximum(self._ceiling, similar, out=self._ceiling)
        self._total += self._rows[row]
        self._outside[row] = False
        self._positions[place] = row

    def least_similar(self) -> int:
        """Return the outside row of least score, the lowest of equals."""
        score = np.where(self._outside, self._score, np.inf)
        near = np.flatnonzero(score <= score.min() + self._doubt)
        if len(near) == 1:
            return int(near[0])
        exact = np.concatenate([rows @ self._total for rows in self._float64(near)])
        return int(near[np.flatnonzero(exact <= exact.min() + self._tie)[0]])

    def best_swap(self) -> tuple[int, int] | None:
        """Return (place that leaves, row that enters) of the largest gain; None if none gains.

        Replacing ``out`` by ``in`` changes half of L(S) by
        D = (m_in - x_in . x_out) - (m_out - x_out . x_out).
        """
        if not self._outside.any():
            return None
        cost = self._score[self.chosen] - self._similar[np.arange(self.count), self.chosen]
        # The best entry for the costliest place bounds D from above and each row's ceiling bounds
        # it from below: only the rows between are looked at.
        worst = int(cost.argmax())
        score = np.where(self._outside, self._score, np.inf)
        bound = float((score - self._similar[worst]).min())
        entrants = np.flatnonzero(score - self._ceiling <= bound + self._doubt)
        gains = np.concatenate(
            [
                (self._score[chunk] - self._similar[:, chunk] - cost[:, None]).min(axis=0)
                for chunk in _chunks(entrants)
            ]
        )
        if gains.min() > self._doubt:
            return None
        return self._best_exact_swap(entrants[gains <= gains.min() + self._doubt])

    def _best_exact_swap(self, entrants: Indices) -> tuple[int, int] | None:
        places = np.argsort(self.chosen)
        leaving = self._rows[self.chosen[places]].astype(np.float64)
        cost = leaving @ self._total - np.einsum("ij,ij->i", leaving, leaving)
        change = np.concatenate(
            [
                rows @ self._total - leaving @ rows.T - cost[:, None]
                for rows in self._float64(entrants)
            ],
            axis=1,
        )
        if change.min() >= -self._tie:
            return None
        place, entrant = np.argwhere(change <= change.min() + self._tie)[0]
        return int(places[place]), int(entrants[entrant])

    def _float64(self, indices: Indices) -> Iterator[npt.NDArray[np.float64]]:
        for chunk in _chunks(indices):
            yield self._rows[chunk].astype(np.float64)


def _chunks(indices: Indices) -> Iterator[Indices]:
    for start in range(0, len(indices), _CHUNK_ROWS):
        yield indices[start : start + _CHUNK_ROWS]


def _checked(embeddings: npt.NDArray[Any], size: int) -> npt.NDArray[Float]:
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(
            f"embeddings must have the shape (rows, dimensions), not {embeddings.shape}"
        )
    if not 1 <= size <= len(embeddings):
        raise ValueError(f"cannot select {size} of {len(embeddings)} rows; give 1 to that many")
    dtype = embeddings.dtype if embeddings.dtype in (np.float32, np.float64) else np.float32
    rows = np.ascontiguousarray(embeddings, dtype=dtype)
    finite = np.isfinite(np.einsum("ij->i", rows))
    if not finite.all():
        raise ValueError(f"embedding of row {int(finite.argmin())} is not finite; embed it again")
    return rows
