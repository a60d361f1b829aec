"""Algorithm 1 against a naive float64 version, and its use category by category."""

import argparse
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy import select as stage
from speedstudy.diversity import select_diverse, summed_similarity
from speedstudy.tables import read_rows, write_embeddings


def unit_rows(seed, count, dimensions, dtype=np.float32):
    rows = np.random.default_rng(seed).standard_normal((count, dimensions)) + 0.5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


def loss(gram, chosen):
    return sum(gram[i, j] for i, j in itertools.permutations(chosen, 2))


def naive_algorithm_1(rows, size, seed, max_swaps=None):
    """Section 5 word by word, on the Gram matrix, in float64."""
    gram = rows.astype(np.float64) @ rows.astype(np.float64).T
    count = len(rows)
    chosen = [int(np.random.default_rng(seed).integers(count))]
    while len(chosen) < size:
        outside = [j for j in range(count) if j not in chosen]
        chosen.append(min(outside, key=lambda j: (sum(gram[i, j] for i in chosen), j)))
    swaps = 0
    while max_swaps is None or swaps < max_swaps:
        changes = []
        for leaves in sorted(chosen):
            rest = [i for i in chosen if i != leaves]
            for enters in set(range(count)) - set(chosen):
                change = sum(gram[i, enters] - gram[i, leaves] for i in rest)
                changes.append((round(change, 11), leaves, enters))
        if not changes or min(changes)[0] >= 0:
            break
        _, leaves, enters = min(changes)
        chosen[chosen.index(leaves)] = enters
        swaps += 1
    return tuple(chosen), loss(gram, chosen), swaps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(6))
def test_equals_the_naive_algorithm(seed, dtype):
    rows = unit_rows(seed, count=40, dimensions=6, dtype=dtype)
    for size, max_swaps in [(1, None), (2, None), (8, 0), (8, 1), (8, None)]:
        expected, objective, swaps = naive_algorithm_1(rows, size, seed, max_swaps)
        got = select_diverse(rows, size, seed, max_swaps)
        assert (got.indices, got.swaps) == (expected, swaps)
        assert got.objective == pytest.approx(objective, abs=1e-6)


def test_hand_worked_square():
    # Four unit vectors at 0, 90, 180 and 270 degrees. From any start the opposite one is the
    # least similar (-1), then the two others tie at 0 and the lower row wins.
    rows = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=np.float32)
    start = int(np.random.default_rng(3).integers(4))
    got = select_diverse(rows, 3, seed=3)
    opposite = (start + 2) % 4
    assert got.indices == (start, opposite, min({0, 1, 2, 3} - {start, opposite}))
    assert got.objective == -2.0  # one opposite pair, in both orders
    assert got.mean_similarity == pytest.approx(-2 / 6)
    assert got.swaps == 0


def test_no_swap_can_improve_the_result():
    rows = unit_rows(5, count=60, dimensions=8)
    gram = rows.astype(np.float64) @ rows.astype(np.float64).T
    chosen = select_diverse(rows, 10, seed=0).indices
    best = loss(gram, chosen)
    for leaves, enters in itertools.product(chosen, set(range(60)) - set(chosen)):
        swapped = [enters if i == leaves else i for i in chosen]
        assert loss(gram, swapped) >= best - 1e-9


def test_equal_rows_are_taken_from_the_lowest():
    # Every distinct row four times: whichever copy is least similar, the lowest must be chosen,
    # although float32 products of equal rows can differ in the last bit with their position.
    rows = np.tile(unit_rows(1, count=9, dimensions=33), (4, 1))
    assert select_diverse(rows, 7, seed=2).indices == naive_algorithm_1(rows, 7, 2)[0]
    rest = select_diverse(rows, 7, seed=2).indices[1:]
    assert all(index < 9 for index in rest)


def test_all_rows_equal_ends_and_takes_the_lowest():
    rows = np.ones((50, 4), dtype=np.float32) / 2
    start = int(np.random.default_rng(0).integers(50))
    got = select_diverse(rows, 3, seed=0)
    assert got.indices == (start, *[i for i in range(50) if i != start][:2])
    assert got.swaps == 0


def test_everything_selected():
    rows = unit_rows(0, count=12, dimensions=5)
    got = select_diverse(rows, 12, seed=0)
    assert sorted(got.indices) == list(range(12))
    assert got.objective == pytest.approx(summed_similarity(rows))
    assert got.swaps == 0


def test_same_seed_same_choice_and_rows_may_be_far_apart_in_length():
    rows = unit_rows(0, count=30, dimensions=4) * np.linspace(0.1, 30, 30)[:, None]
    rows = rows.astype(np.float32)
    assert select_diverse(rows, 6, seed=1) == select_diverse(rows, 6, seed=1)
    assert select_diverse(rows, 6, seed=1).indices == naive_algorithm_1(rows, 6, 1)[0]


@pytest.mark.parametrize(
    ("rows", "size", "message"),
    [
        (np.ones((3, 2)), 4, "cannot select 4 of 3 rows"),
        (np.ones((3, 2)), 0, "cannot select 0 of 3 rows"),
        (np.ones(3), 1, "shape"),
        (np.array([[1.0, 0.0], [np.nan, 1.0]]), 1, "row 1 is not finite"),
    ],
)
def test_unusable_input_is_named(rows, size, message):
    with pytest.raises(ValueError, match=message):
        select_diverse(rows, size, seed=0)


# ---- the stage: pools, quotas, duplicates, files


def candidate_table(count=30, categories=("math", "qa")):
    return [
        {
            "question_id": f"{category}-{index:03d}",
            "category": category,
            "turns": [f"{category} question {index}"],
            "source": f"source{index % 2}",
        }
        for category in categories
        for index in range(count)
    ]


def write_inputs(folder, rows, vectors):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "candidates.parquet")
    ids = [row["question_id"] for row in rows]
    write_embeddings(folder / "embeddings.npz", ids, np.stack([vectors[i] for i in ids]))


def run_stage(folder, config):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    report = stage.run(
        parser.parse_args(
            [
                *("--config", json.dumps(config)),
                *("--candidates", str(folder / "candidates.parquet")),
                *("--embeddings", str(folder / "embeddings.npz")),
                *("--out", str(folder / "selected.parquet")),
                *("--report", str(folder / "selection.json")),
            ]
        )
    )
    assert json.loads((folder / "selection.json").read_text())["categories"].keys() == (
        report["categories"].keys()
    )
    return report, pq.read_table(folder / "selected.parquet").to_pylist()


CONFIG = {"quota": 5, "seed": 7, "max_swaps": None, "categories": ["qa", "math"]}


def test_shuffled_rows_give_the_same_prompts(tmp_path):
    rows = candidate_table()
    vectors = dict(zip([r["question_id"] for r in rows], unit_rows(0, len(rows), 16), strict=True))
    write_inputs(tmp_path / "sorted", rows, vectors)
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    write_inputs(tmp_path / "shuffled", shuffled, vectors)
    report, selected = run_stage(tmp_path / "sorted", CONFIG)
    assert run_stage(tmp_path / "shuffled", CONFIG)[1] == selected
    assert [row["category"] for row in selected] == ["qa"] * 5 + ["math"] * 5
    assert set(selected[0]) == {"question_id", "category", "turns", "source"}
    assert report["categories"]["qa"]["pool"] == 30
    assert (
        report["categories"]["qa"]["mean_similarity"]
        < report["categories"]["qa"]["pool_mean_similarity"]
    )


def test_a_category_does_not_depend_on_the_others(tmp_path):
    rows = candidate_table()
    vectors = dict(zip([r["question_id"] for r in rows], unit_rows(0, len(rows), 16), strict=True))
    write_inputs(tmp_path, rows, vectors)
    both = run_stage(tmp_path, {**CONFIG, "quota": {"qa": 5, "math": 9}})[1]
    alone = run_stage(tmp_path, {**CONFIG, "categories": ["qa"]})[1]
    assert alone == [row for row in both if row["category"] == "qa"]


def test_duplicates_are_left_out_and_reported(tmp_path):
    rows = candidate_table(count=6, categories=["qa"])
    rows.append({**rows[0], "question_id": "zz", "turns": ["  QA question\n0 "]})
    vectors = dict(zip([r["question_id"] for r in rows], unit_rows(0, len(rows), 16), strict=True))
    write_inputs(tmp_path, rows, vectors)
    config = {**CONFIG, "categories": ["qa"], "quota": 6}
    report, selected = run_stage(tmp_path, config)
    assert report["categories"]["qa"]["duplicates"] == ("zz",)
    assert {row["question_id"] for row in selected} == {f"qa-{i:03d}" for i in range(6)}
    with pytest.raises(ValueError, match=r"category qa: 6 candidates \(1 dup.* quota of 7"):
        run_stage(tmp_path, {**config, "quota": 7})


def test_near_duplicates_of_another_source_are_left_out_and_reported(tmp_path):
    rows = candidate_table(count=6, categories=["qa"])
    long = "Once upon a time there lived a king who had three daughters and no son at all"
    for number, (name, source) in enumerate([("ya", "x"), ("yb", "y"), ("yc", "x")]):
        turns = [long + "!" * number, "Go on."]
        rows.append({**rows[0], "question_id": name, "turns": turns, "source": source})
    vectors = dict(zip([r["question_id"] for r in rows], unit_rows(0, len(rows), 16), strict=True))
    write_inputs(tmp_path, rows, vectors)
    report, selected = run_stage(tmp_path, {**CONFIG, "categories": ["qa"], "quota": 8})
    # The third is near the first too, but both are of one source.
    assert report["categories"]["qa"]["near_duplicates"] == {"yb": "ya"}
    assert report["categories"]["qa"]["duplicates"] == ()
    assert report["categories"]["qa"]["pool"] == 8
    assert {"ya", "yc"} < {row["question_id"] for row in selected}


def test_missing_embedding_and_repeated_id_are_named(tmp_path):
    rows = candidate_table(count=6, categories=["qa"])
    vectors = {row["question_id"]: unit_rows(0, 1, 4)[0] for row in rows}
    write_inputs(tmp_path, rows, vectors)
    table = read_rows([tmp_path / "candidates.parquet"], "question_id")
    config = {**CONFIG, "categories": ["qa"]}
    with pytest.raises(ValueError, match="'qa-000' has no embedding"):
        stage.select_prompts(table, {}, config)
    with pytest.raises(ValueError, match="'qa-000' occurs twice"):
        read_rows([tmp_path / "candidates.parquet"] * 2, "question_id")


def test_matrix_form_of_the_command(tmp_path):
    rows = unit_rows(4, count=20, dimensions=6)
    np.save(tmp_path / "x.npy", rows)
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    command = ["--embeddings", str(tmp_path / "x.npy"), "--size", "5", "--seed", "3"]
    answer = stage.run(parser.parse_args(command))
    expected, objective, swaps = naive_algorithm_1(rows, 5, 3)
    assert answer["ids"] == list(expected)
    assert answer["objective"] == pytest.approx(objective, abs=1e-6)
    assert answer["mean_similarity"] == pytest.approx(objective / 20, abs=1e-6)
    assert answer["swaps"] == swaps
    with pytest.raises(ValueError, match="needs --size and --seed"):
        stage.run(parser.parse_args(command[:2]))
