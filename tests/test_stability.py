"""Subset stability, by hand."""

import argparse

import numpy as np
import pandas as pd
import pytest

from speedstudy import stability as stage
from speedstudy.stability import (
    disagreement,
    diverse_subsets,
    kendall_disagreement,
    relative_range,
    subset_lengths,
    uniform_subsets,
)
from speedstudy.tables import write_embeddings


def test_relative_range():
    assert relative_range([1.5, 2.0, 2.5]) == pytest.approx(0.5)
    assert relative_range([2.0, 2.0]) == 0


@pytest.mark.parametrize(
    ("second", "share"),
    [
        ([3, 2, 1], 0),  # the same order
        ([1, 2, 3], 1),  # reversed: all three pairs
        ([2, 3, 1], 1 / 3),  # the first two changed places
        ([2, 2, 1], 1 / 6),  # the first two are tied: half of one pair
    ],
)
def test_kendall_disagreement(second, share):
    assert kendall_disagreement([30, 20, 10], second) == pytest.approx(share)


def test_one_category_has_no_ranking():
    with pytest.raises(ValueError, match="two or more categories"):
        kendall_disagreement([1], [2])
    assert disagreement(pd.DataFrame([[1.0, 2.0]])) is None


PROMPTS = pd.DataFrame(
    [("a", 2, 2), ("b", 0, 2), ("c", 4, 2), ("d", 0, 4)],
    columns=["prompt_id", "accepted", "steps"],
)


def test_acceptance_is_pooled_over_a_set():
    subsets = [{"qa": ["a", "b"], "math": ["c"]}, {"qa": ["b"], "math": ["c", "d"]}]
    lengths = subset_lengths(PROMPTS, subsets)
    # 1 + 2/4, 1 + 0/2; 1 + 4/2, 1 + 4/6.
    assert lengths.loc["qa"].tolist() == [1.5, 1.0]
    assert lengths.loc["math"].tolist() == pytest.approx([3.0, 1 + 4 / 6])
    assert disagreement(lengths) == {"mean": 0.0, "max": 0.0}


def test_uniform_sets_are_drawn_without_replacement_and_repeatably():
    ids = {"qa": list("abcdef"), "math": list("uvwx")}
    subsets = uniform_subsets(ids, 3, 20, seed=1)
    assert subsets == uniform_subsets(ids, 3, 20, seed=1)
    assert all(len(set(one["qa"])) == 3 and set(one["math"]) < set("uvwx") for one in subsets)
    assert len({frozenset(one["qa"]) for one in subsets}) > 1
    with pytest.raises(ValueError, match="category math has 4 measured prompts, too few to draw 4"):
        uniform_subsets(ids, 4, 2, seed=1)


def test_diverse_sets_come_from_algorithm_1():
    # Two pairs of twins: a diverse choice of two takes one of each.
    twins = dict(zip("abcd", np.eye(2, dtype=np.float32)[[0, 0, 1, 1]], strict=True))
    subsets = diverse_subsets({"qa": list("abcd")}, twins, 2, 5, seed=0)
    assert all(len({"a", "b"} & set(one["qa"])) == 1 for one in subsets)


def test_the_command_reads_the_table_of_a_study(tmp_path):
    names = [f"{category}{i}" for category in ("qa", "math") for i in range(4)]
    rows = pd.DataFrame(
        {
            "cell_id": "cell",
            "method": "ngram",
            "ids": "real",
            "prompt_id": names,
            "category": ["qa"] * 4 + ["math"] * 4,
            "accepted": pd.array([1] * 4 + [3] * 4, dtype="Int64"),
            "steps": pd.array([2] * 8, dtype="Int64"),
        }
    )
    without = rows.assign(cell_id="baseline", method="none")
    pd.concat([without, rows]).to_parquet(tmp_path / "prompts.parquet")
    write_embeddings(tmp_path / "all.npz", names, np.eye(8, dtype=np.float32))
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    words = ["--prompts", str(tmp_path / "prompts.parquet"), "--out", str(tmp_path / "out.csv")]
    arguments = parser.parse_args([*words, "--embeddings", str(tmp_path / "all.npz")])
    # All prompts of a category are alike, so that no set differs from another.
    same = {"mean": 0.0, "max": 0.0}
    assert stage.run(arguments) == {
        "cells": {"cell": {"size": 2, "uniform": same, "diverse": same}}
    }
    table = pd.read_csv(tmp_path / "out.csv").set_index("category")
    assert table.loc["qa", "uniform_range_percent"] == 0
    assert 1 < table.loc["qa", "uniform_distinct"] <= 6  # pairs of four
    assert table.loc["qa", "paper_uniform_percent"] == 2.2


def test_a_missing_table_is_named(tmp_path):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    arguments = parser.parse_args(["--prompts", str(tmp_path / "prompts.parquet")])
    with pytest.raises(ValueError, match=r"prompts\.parquet: no such file; run a study first"):
        stage.run(arguments)
