"""The bound of the relaxation and the table of compared selections, by hand."""

import argparse
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from speedstudy.compare_selections import compare, mean_similarity
from speedstudy.diversity import select_diverse
from speedstudy.figures import plot_diversity
from speedstudy.relaxation import similarity_bound

TRIANGLE = np.array([[1, 0], [-0.5, np.sqrt(0.75)], [-0.5, -np.sqrt(0.75)]])


def test_three_vectors_at_120_degrees():
    # w = (2/3, 2/3, 2/3) makes the weighted sum zero, so the least of w'Gw - sum(w) is -2 and the
    # bound -2 / (2 * 1); any two of them have the cosine -1/2.
    assert similarity_bound(TRIANGLE, 2, tolerance=1e-9) == pytest.approx(-1, abs=1e-6)
    assert mean_similarity(TRIANGLE[:2]) == pytest.approx(-0.5)


def test_a_bound_that_is_reached():
    # Twins and a third at a right angle: with a = w1 + w2, a^2 + (2 - a)^2 - 2 is least at a = 1,
    # which one of the twins and the third reach.
    rows = np.array([[1, 0], [1, 0], [0, 1]])
    assert similarity_bound(rows, 2, tolerance=1e-9) == pytest.approx(0, abs=1e-6)


def test_all_rows_are_bounded_by_themselves_whatever_their_length():
    rows = np.array([[2.0, 0], [1, 1], [0, 3]])
    # Pairs: 2, 0, 3; their mean is 5/3.
    assert similarity_bound(rows, 3) == pytest.approx(5 / 3)
    assert similarity_bound(rows, 1) is None
    with pytest.raises(ValueError, match="cannot bound a choice of 4 from 3"):
        similarity_bound(rows, 4)


@pytest.mark.parametrize("steps", [1, 2000])
def test_no_choice_is_below_the_bound_even_if_the_search_was_cut_short(steps):
    rows = np.random.default_rng(0).normal(size=(12, 3)) + 0.3
    best = min(mean_similarity(rows[list(s)]) for s in itertools.combinations(range(12), 4))
    bound = similarity_bound(rows, 4, max_iterations=steps)
    assert bound <= best + 1e-12
    if steps > 1:
        assert similarity_bound(rows, 4, max_iterations=1) < bound


def candidates(count, category="qa"):
    return [{"question_id": f"{category}{i}", "category": category} for i in range(count)]


def test_the_table_by_hand():
    rows = [*candidates(4), *candidates(2, "math")]
    vectors = dict(
        zip(
            (row["question_id"] for row in rows),
            [*TRIANGLE, TRIANGLE[1], *TRIANGLE[:2]],
            strict=True,
        )
    )
    vectors["qa2"] = vectors["qa1"]  # its twin and its near twin, left out by select
    selected = [row for row in rows if row["question_id"] not in ("qa2", "qa3")]
    reports = {
        "qa": {"duplicates": ["qa2"], "near_duplicates": {"qa3": "qa1"}, "seed": 1},
        "math": {"duplicates": [], "near_duplicates": {}, "seed": 2},
    }
    theirs = [{"question_id": f"theirs{i}", "category": "math"} for i in range(3)]
    vectors |= {f"theirs{i}": row for i, row in enumerate(TRIANGLE)}
    table = compare(rows, vectors, selected, reports, theirs).set_index("category")
    assert table["pool"].to_dict() == {"qa": 2, "math": 2}
    for name in ("ours", "greedy", "random", "random_low", "random_high", "bound"):
        assert table.loc["qa", name] == pytest.approx(-0.5), name
    assert table.loc["qa", "gap"] == pytest.approx(0)
    assert pd.isna(table.loc["qa", "spec_bench"])
    assert table.loc["math", "spec_bench"] == pytest.approx(-0.5)
    assert table["spec_bench_rows"].to_dict() == {"qa": 0, "math": 3}
    alone = compare(rows, vectors, selected, reports)
    assert alone["spec_bench_rows"].isna().all()


def test_ours_is_between_the_bound_and_greedy():
    rows = candidates(60, "writing")
    points = np.random.default_rng(3).normal(size=(60, 5))
    points = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    vectors = {row["question_id"]: point for row, point in zip(rows, points, strict=True)}
    selected = [rows[i] for i in select_diverse(points, 8, 5).indices]
    reports = {"writing": {"duplicates": [], "near_duplicates": {}, "seed": 5}}
    (row,) = compare(rows, vectors, selected, reports, (), "without hle").to_dict("records")
    assert row["bound"] <= row["ours"] <= row["greedy"] < row["random"]
    assert row["random_low"] < row["random"] < row["random_high"]
    assert (row["paper_random"], row["paper_ours"], row["coverage"]) == (0.29, 0.18, "without hle")


@pytest.mark.parametrize("rows", ["some", "none"])
def test_the_figure_is_drawn_and_says_what_is_missing(tmp_path, rows):
    table = compare([], {}, [], {})
    if rows == "some":
        reports = {"qa": {"duplicates": [], "near_duplicates": {}, "seed": 1}}
        words = "without hle: qa 2 of 80"
        one = compare(candidates(3), _unit(3), candidates(3)[:2], reports, (), words)
        single = one.assign(category="math", ours=None)
        table = pd.concat([one, single])
    table.to_csv(tmp_path / "diversity.csv", index=False)
    config = {"figure": {"width_in": 9, "height_in": 4}, "dpi": 50, "title": "A study"}
    parser = argparse.ArgumentParser()
    plot_diversity.add_arguments(parser)
    words = ["--config", json.dumps(config), "--table", tmp_path / "diversity.csv"]
    words += ["--out", tmp_path / "diversity.pdf"]
    report = plot_diversity.run(parser.parse_args([str(word) for word in words]))
    assert (tmp_path / "diversity.pdf").read_bytes().startswith(b"%PDF")
    if rows == "some":
        assert report["notes"] == [
            "Coverage: without hle: qa 2 of 80.",
            "Missing, fewer than two prompts: math.",
        ]


def _unit(count):
    return {f"qa{i}": row for i, row in enumerate(np.eye(count, dtype=np.float32))}
