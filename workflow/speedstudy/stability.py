"""How much AL depends on which prompts were selected: the paper's Tables 6 and 7.

Needs the table of prompts of a finished study; draws smaller sets of each category's prompts, as if
the benchmark had been made again and again, and compares their AL. With the prompts' embeddings
(files of ``embed``) the same is done with sets that Algorithm 1 chooses from different starts; it
often ends at the same set, which says nothing about AL, so the number of distinct ones stands
beside. The paper draws 80 of whole pools; here the pool is what was measured, so a set must be
smaller than a category, and the spread is that of sets of its size.
"""

import argparse
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from speedstudy import paper
from speedstudy.diversity import select_diverse
from speedstudy.tables import read_embeddings, write_csv

LOG = logging.getLogger(__name__)

NEEDED = ("cell_id", "method", "ids", "prompt_id", "category", "accepted", "steps")
Subset = Mapping[str, Sequence[str]]
"""Prompt ids by category."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy stability``."""
    parser.add_argument(
        "--prompts",
        type=Path,
        default=Path("results/tables/prompts.parquet"),
        help="table of prompts that aggregate wrote (default %(default)s)",
    )
    parser.add_argument(
        "--embeddings", type=Path, nargs="+", default=[], help="npz of embed, for diverse sets"
    )
    parser.add_argument("--subsets", type=int, default=10, help="sets to draw (10 in the paper)")
    parser.add_argument(
        "--size", type=int, help="prompts per category (default: half of the smallest category)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--out", type=Path, help="CSV to write besides")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy stability``: print a table a cell; returns the disagreements by cell."""
    if not arguments.prompts.is_file():
        raise ValueError(f"--prompts {arguments.prompts}: no such file; run a study first")
    table = pd.read_parquet(arguments.prompts, columns=[*NEEDED])
    table = table[(table["ids"] == "real") & (table["method"] != "none") & table["steps"].notna()]
    if table.empty:
        raise ValueError(f"{arguments.prompts}: no cell with a drafter on real prompts")
    embeddings = read_embeddings(arguments.embeddings)
    cells: dict[str, Any] = {}
    parts = []
    for cell_id, prompts in table.groupby("cell_id", sort=False):
        ids = {str(name): sorted(rows["prompt_id"]) for name, rows in prompts.groupby("category")}
        size = arguments.size or max(1, min(map(len, ids.values())) // 2)
        kinds = {"uniform": uniform_subsets(ids, size, arguments.subsets, arguments.seed)}
        if embeddings and all(one in embeddings for ones in ids.values() for one in ones):
            kinds["diverse"] = diverse_subsets(
                ids, embeddings, size, arguments.subsets, arguments.seed
            )
        part = pd.DataFrame({"cell_id": cell_id, "category": [*ids], "size": size})
        cells[str(cell_id)] = {"size": size}
        for kind, subsets in kinds.items():
            lengths = subset_lengths(prompts, subsets)
            part[f"{kind}_range_percent"] = [
                100 * relative_range(values) for values in lengths.to_numpy()
            ]
            part[f"{kind}_distinct"] = [
                len({frozenset(subset[category]) for subset in subsets}) for category in ids
            ]
            cells[str(cell_id)][kind] = disagreement(lengths)
        for place, kind in enumerate(("paper_uniform_percent", "paper_diverse_percent")):
            part[kind] = [paper.RELATIVE_RANGE.get(one, (None, None))[place] for one in ids]
        LOG.info("%s: %s\n%s", cell_id, cells[str(cell_id)], part.iloc[:, 1:].round(1).to_string())
        parts.append(part)
    if arguments.out is not None:
        write_csv(arguments.out, pd.concat(parts))
    return {"cells": cells}


def uniform_subsets(
    ids: Mapping[str, Sequence[str]], size: int, count: int, seed: int
) -> list[Subset]:
    """Return ``count`` sets of ``size`` prompts a category, drawn without replacement.

    Raises:
        ValueError: A category has no more than ``size`` prompts, so that all sets would be equal.
    """
    _check_size(ids, size)
    generator = np.random.default_rng(seed)
    return [
        {
            category: [members[i] for i in generator.choice(len(members), size, replace=False)]
            for category, members in ids.items()
        }
        for _ in range(count)
    ]


def diverse_subsets(
    ids: Mapping[str, Sequence[str]],
    embeddings: Mapping[str, npt.NDArray[np.float32]],
    size: int,
    count: int,
    seed: int,
) -> list[Subset]:
    """Return ``count`` sets that Algorithm 1 chooses, each from another first prompt.

    Raises:
        ValueError: As ``uniform_subsets``.
    """
    _check_size(ids, size)
    vectors = {
        category: np.stack([embeddings[one] for one in members])
        for category, members in ids.items()
    }
    return [
        {
            category: [
                members[i] for i in select_diverse(vectors[category], size, seed + draw).indices
            ]
            for category, members in ids.items()
        }
        for draw in range(count)
    ]


def subset_lengths(prompts: pd.DataFrame, subsets: Sequence[Subset]) -> pd.DataFrame:
    """Return AL = 1 + accepted / steps, pooled over a set's prompts.

    Args:
        prompts: One row a prompt with ``prompt_id``, ``accepted`` and ``steps``.
        subsets: Sets with the same categories.

    Returns:
        A row a category, a column a set; NaN for a set without a verify step.
    """
    counts = prompts.groupby("prompt_id")[["accepted", "steps"]].sum().astype(float)
    columns = []
    for subset in subsets:
        sums = {category: counts.loc[list(ids)].sum() for category, ids in subset.items()}
        columns.append(
            {
                category: 1 + one["accepted"] / one["steps"] if one["steps"] else np.nan
                for category, one in sums.items()
            }
        )
    return pd.DataFrame(columns).T


def relative_range(values: npt.ArrayLike) -> float:
    """Return (max - min) / mean of the values (paper, Table 6)."""
    array = np.asarray(values, dtype=float)
    return float((array.max() - array.min()) / array.mean())


def kendall_disagreement(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the share of pairs of categories that two rankings put in opposite orders.

    This is the normalised Kendall tau distance (paper, Table 7): 0 for equal rankings, 1 for
    reversed ones. A pair that is tied in one ranking only counts one half.

    Args:
        first: A value a category.
        second: Those of the other ranking, in the same order.

    Raises:
        ValueError: There are not two categories.
    """
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if len(one) < 2 or len(one) != len(other):
        raise ValueError("two rankings of the same two or more categories are needed")
    left, right = np.triu_indices(len(one), k=1)
    orders = np.abs(np.sign(one[left] - one[right]) - np.sign(other[left] - other[right]))
    return float(orders.mean() / 2)


def disagreement(lengths: pd.DataFrame) -> dict[str, float] | None:
    """Return mean and largest ``kendall_disagreement`` over all pairs of sets.

    None with fewer than two categories or sets.
    """
    if min(lengths.shape) < 2:
        return None
    pairs = itertools.combinations(lengths.to_numpy().T, 2)
    values = [kendall_disagreement(first, second) for first, second in pairs]
    return {"mean": float(np.mean(values)), "max": float(np.max(values))}


def _check_size(ids: Mapping[str, Sequence[str]], size: int) -> None:
    category = min(ids, key=lambda name: len(ids[name]))
    if not 1 <= size < len(ids[category]):
        raise ValueError(
            f"category {category} has {len(ids[category])} measured prompts, too few to draw "
            f"{size} of them in several ways; lower --size or measure more prompts"
        )
