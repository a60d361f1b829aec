"""Where to write the labels of points so that they hide neither each other nor the data."""

import numpy as np
import numpy.typing as npt

# Unit directions from the point to the label's centre, in order of preference.
DIRECTIONS = np.array(
    [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)], dtype=float
)
GAPS_PT = (6.0, 11.0)  # from the point to the label's near edge
LABEL_COST, DATA_COST, OUTSIDE_COST, LATER_COST = 50.0, 1.0, 200.0, 0.05


def place_labels(
    points: npt.NDArray[np.float64],
    sizes: npt.NDArray[np.float64],
    data: npt.NDArray[np.float64],
    bounds: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the centre of each point's label, greedily in the given order.

    A label takes the first of the candidate places that costs least: overlaps with labels that
    already stand cost most but for leaving the bounds, then data under the label.

    Args:
        points: Points to label, n x 2, in the unit of all lengths here (typographic points).
        sizes: Width and height of each label, n x 2.
        data: What labels should not hide, as points along it, m x 2.
        bounds: Left, bottom, right, top of the panel.
    """
    placed: list[npt.NDArray[np.float64]] = []
    taken: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
    low, high = bounds[:2], bounds[2:]
    for point, size in zip(points, sizes, strict=True):
        half = size / 2
        candidates = np.concatenate([point + DIRECTIONS * (gap + half) for gap in GAPS_PT])
        costs = LATER_COST * np.arange(len(candidates))
        for position, centre in enumerate(candidates):
            hits = sum(
                bool(np.all(np.abs(centre - other) < half + other_half))
                for other, other_half in taken
            )
            hidden = int(np.all(np.abs(data - centre) < half + 1.0, axis=1).sum())
            outside = bool(np.any(centre - half < low) or np.any(centre + half > high))
            costs[position] += LABEL_COST * hits + DATA_COST * hidden + OUTSIDE_COST * outside
        best = candidates[int(np.argmin(costs))]
        placed.append(best)
        taken.append((best, half))
    return np.array(placed).reshape(-1, 2)
