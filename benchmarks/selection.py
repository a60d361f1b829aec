"""Selection against the memory it must read, and against its peers, in one run.

    python -m venv apricot && apricot/bin/pip install apricot-select scikit-learn
    python benchmarks/selection.py --apricot-python apricot/bin/python

Prints ratios: our time over the time of (k + swaps) matrix-vector products at this machine's speed,
and the peers' times over ours, with the objective that each reaches from the same first row.

apricot-select stays out of our environment. Of its functions SumRedundancySelection is ours: it
maximises a constant less the sum of similarities in the choice (its other functions reward
likeness to what is *not* chosen, which is another aim). It takes no negative similarities, so it is
given (1 + cosine) / 2, which moves every choice of k rows by the same amount; it makes no swaps.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

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


def plain_algorithm_1(matrix: np.ndarray, size: int, start: int) -> np.ndarray:
    """Algorithm 1 as the paper writes it: the whole similarity matrix, every pair every pass."""
    similarity = matrix @ matrix.T
    chosen = [start]
    scores = similarity[start].copy()
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


def apricot(python: Path, matrix: np.ndarray, size: int, start: int) -> tuple[float, np.ndarray]:
    """Return apricot's seconds, without its start, and its choice."""
    script = Path(__file__).with_name("selection_apricot.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.npy"
        np.save(path, matrix)
        command = [python, script, path, str(size), str(start)]
        answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return answer["seconds"], np.array(answer["chosen"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=1024)
    parser.add_argument("--peer-rows", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=80)
    parser.add_argument("--apricot-python", type=Path, help="Python that has apricot-select")
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
    start = int(np.random.default_rng(0).integers(len(matrix)))  # our first row, for seed 0
    plain_s, chosen = timed(plain_algorithm_1, matrix, arguments.size, start)
    report("plain NumPy", plain_s / ours_s, objective(matrix, chosen))
    if arguments.apricot_python is None:
        print("apricot-select: not installed (--apricot-python)")
    else:
        peer_s, chosen = apricot(arguments.apricot_python, matrix, arguments.size, start)
        report("apricot-select", peer_s / ours_s, objective(matrix, chosen))


def report(name: str, ratio: float, reached: float) -> None:
    print(f"{name}: {ratio:.1f} x our time, objective {reached:.3f}")


if __name__ == "__main__":
    main()
