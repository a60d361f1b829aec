"""Selection against the memory it must read, and against its peers, in one run.

    pip install apricot-select      # a peer, not a part of the product
    python benchmarks/select.py

Prints ratios: our time over the time of (k + swaps) matrix-vector products at this machine's speed,
and the peers' times over ours, with the objective that each reaches.
"""

import argparse
import time

import numpy as np

from speedstudy.diversity import select_diverse


def unit_rows(rows: int, dimensions: int, clusters: int = 200) -> np.ndarray:
    """Clustered unit vectors, as embeddings are."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((clusters, dimensions), dtype=np.float32)
    points = centres[random.integers(clusters, size=rows)]
    points += 1.5 * random.standard_normal((rows, dimensions), dtype=np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def timed(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def one_read_s(matrix: np.ndarray) -> float:
    vector = matrix[0]
    return min(timed(np.dot, matrix, vector)[0] for _ in range(5))


def objective(matrix: np.ndarray, chosen: np.ndarray) -> float:
    rows = matrix[chosen].astype(np.float64)
    return float((rows.sum(axis=0) ** 2).sum() - (rows**2).sum())


def plain_algorithm_1(matrix: np.ndarray, size: int) -> np.ndarray:
    """Algorithm 1 as the paper writes it: the whole similarity matrix, every pair every pass."""
    similarity = matrix @ matrix.T
    chosen = [0]
    scores = similarity[0].copy()
    while len(chosen) < size:
        scores[chosen] = np.inf
        chosen.append(int(scores.argmin()))
        scores = similarity[chosen].sum(axis=0)
    while True:
        sums = similarity[chosen].sum(axis=0)
        gains = sums[None, :] - similarity[chosen] - (sums[chosen] - 1)[:, None]
        gains[:, chosen] = np.inf
        out, new = np.unravel_index(gains.argmin(), gains.shape)
        if gains[out, new] >= -1e-6:
            return np.array(chosen)
        chosen[out] = int(new)


def apricot(matrix: np.ndarray, size: int) -> np.ndarray:
    """apricot's greedy for a sum of similarities, made small by the graph cut's redundancy term."""
    from apricot import GraphCutSelection

    selector = GraphCutSelection(size, metric="precomputed", alpha=1.0, optimizer="lazy")
    return selector.fit(1 - matrix @ matrix.T).ranking


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--peer-rows", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=80)
    arguments = parser.parse_args()

    matrix = unit_rows(arguments.rows, arguments.dimensions)
    read_s = one_read_s(matrix)
    ours_s, ours = timed(select_diverse, matrix, arguments.size, 0)
    reads = arguments.size + ours.swaps
    print(
        f"{arguments.rows} x {arguments.dimensions}, k={arguments.size}: {ours_s:.2f} s, ", end=""
    )
    print(f"{ours.swaps} swaps, {ours_s / (reads * read_s):.2f} x {reads} reads of the matrix")

    matrix = unit_rows(arguments.peer_rows, arguments.dimensions)
    ours_s, ours = timed(select_diverse, matrix, arguments.size, 0)
    print(f"{arguments.peer_rows} rows: ours {ours_s:.2f} s, objective {ours.objective:.3f}")
    for name, peer in (("plain NumPy", plain_algorithm_1), ("apricot-select", apricot)):
        try:
            peer_s, chosen = timed(peer, matrix, arguments.size)
        except ImportError:
            print(f"{name}: not installed")
            continue
        print(
            f"{name}: {peer_s / ours_s:.1f} x our time, objective {objective(matrix, chosen):.3f}"
        )


if __name__ == "__main__":
    main()
