"""apricot-select's choice, for selection.py: run by a Python that has it, which ours has not.

Arguments: a .npy of unit rows, the number of rows to choose, the first row.
"""

import json
import sys
import time

import numpy as np
from apricot import SumRedundancySelection


def choose(matrix: np.ndarray, size: int, start: int) -> list[int]:
    similarity = (1 + matrix @ matrix.T) / 2
    selector = SumRedundancySelection(
        size - 1, metric="precomputed", initial_subset=[start], optimizer="lazy"
    )
    return [start, *selector.fit(similarity).ranking.tolist()]


matrix = np.load(sys.argv[1])
size, start = int(sys.argv[2]), int(sys.argv[3])
choose(matrix[:200], min(size, 20), 0)  # the first call compiles
begin = time.perf_counter()
chosen = choose(matrix, size, start)
print(json.dumps({"seconds": time.perf_counter() - begin, "chosen": chosen}))
