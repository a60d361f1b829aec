"""Choose diverse prompts, category by category: the paper's Algorithm 1 (section 5).

Needs the candidates of all sources (parquet) and their embeddings; leaves the selected rows and a
report.
"""

import argparse
import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from speedstudy.coverage import coverage, in_words, read_missing, short_categories, with_note
from speedstudy.diversity import select_diverse, summed_similarity
from speedstudy.near_duplicates import near_duplicates
from speedstudy.records import write_json
from speedstudy.tables import joined_turns, read_embeddings, read_rows, write_rows

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CategoryReport:
    """How the rows of one category were chosen.

    Attributes:
        pool: Candidates of all sources, duplicates left out.
        duplicates: Ids left out because an earlier id has the same text.
        near_duplicates: Ids left out because a row of another source has nearly the same text,
            with the id of that row.
        selected: Rows chosen.
        seed: Of this category.
        objective: As in ``Selection``.
        mean_similarity: As in ``Selection``.
        pool_mean_similarity: Mean similarity of all pairs in the pool, which is what a random
            choice has on average; None for a pool of one.
        swaps: As in ``Selection``.
    """

    pool: int
    duplicates: tuple[str, ...]
    near_duplicates: Mapping[str, str]
    selected: int
    seed: int
    objective: float
    mean_similarity: float | None
    pool_mean_similarity: float | None
    swaps: int


def category_seed(seed: int, category: str) -> int:
    """Return the seed of one category; it depends on no other category."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{category}".encode()).digest()[:8])


def select_prompts(
    candidates: pa.Table,
    embeddings: Mapping[str, npt.NDArray[np.float32]],
    config: Mapping[str, Any],
    short: Collection[str] = (),
) -> tuple[pa.Table, dict[str, CategoryReport]]:
    """Select every category's quota over the candidates of all sources.

    Args:
        candidates: Columns ``question_id``, ``category``, ``turns``, ``source``, sorted by
            ``question_id``.
        embeddings: Row of every candidate by its id.
        config: ``quota`` (a number for every category, or one by category), ``seed``,
            ``max_swaps`` (or null), ``categories`` (in the order of the output).
        short: Categories that lack a source: where the pool is smaller than the quota, all of it
            is chosen instead of an error, and one without a candidate is left out.

    Returns:
        The selected rows with all their columns, by category in the order of choice, and the
        report by category. A category's choice depends on no other category.

    Raises:
        ValueError: A pool is smaller than its quota, or a candidate has no embedding.
    """
    pools: dict[str, list[dict[str, Any]]] = {name: [] for name in config["categories"]}
    for position, row in enumerate(
        candidates.select(["question_id", "category", "turns", "source"]).to_pylist()
    ):
        if row["category"] in pools:
            pools[row["category"]].append({**row, "position": position})
    positions: list[int] = []
    reports: dict[str, CategoryReport] = {}
    for category, pool in pools.items():
        unique, duplicates = _without_duplicates(pool)
        unique, near = _without_near_duplicates(unique)
        quota = _quota(config, category)
        if category in short:
            quota = min(quota, len(unique))
            if quota == 0:
                continue
        if len(unique) < quota:
            raise ValueError(
                f"category {category}: {len(unique)} candidates ({len(duplicates)} duplicates and "
                f"{len(near)} near ones left out) for a quota of {quota}; lower select.quota or "
                "add a source for it"
            )
        seed = category_seed(config["seed"], category)
        rows = np.stack([_embedding(embeddings, row["question_id"]) for row in unique])
        chosen = select_diverse(rows, quota, seed, config.get("max_swaps"))
        positions.extend(unique[index]["position"] for index in chosen.indices)
        pairs = len(rows) * (len(rows) - 1)
        reports[category] = CategoryReport(
            pool=len(unique),
            duplicates=tuple(duplicates),
            near_duplicates=near,
            selected=quota,
            seed=seed,
            objective=chosen.objective,
            mean_similarity=chosen.mean_similarity,
            pool_mean_similarity=summed_similarity(rows) / pairs if pairs else None,
            swaps=chosen.swaps,
        )
        LOG.info(
            "%s: %d of %d (%d duplicates, %d near ones left out), %d swaps",
            *(category, quota, len(unique), len(duplicates), len(near), chosen.swaps),
        )
    return candidates.take(positions), reports


def _quota(config: Mapping[str, Any], category: str) -> int:
    quota = config["quota"]
    return int(quota if isinstance(quota, int) else quota[category])


def _without_duplicates(
    pool: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Keep the first of rows whose texts differ in case and white space only."""
    seen: set[str] = set()
    unique, duplicates = [], []
    for row in pool:
        text = " ".join(joined_turns(row).casefold().split())
        if text in seen:
            duplicates.append(row["question_id"])
        else:
            seen.add(text)
            unique.append(row)
    return unique, duplicates


def _without_near_duplicates(
    pool: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    near = near_duplicates(
        [row["question_id"] for row in pool],
        [joined_turns(row) for row in pool],
        [row["source"] for row in pool],
    )
    return [row for row in pool if row["question_id"] not in near], near


def _embedding(
    embeddings: Mapping[str, npt.NDArray[np.float32]], question_id: str
) -> npt.NDArray[np.float32]:
    if question_id not in embeddings:
        raise ValueError(f"candidate {question_id!r} has no embedding; run embed on its source")
    return embeddings[question_id]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy select``: of one matrix, or of the rule."""
    matrix = parser.add_argument_group("rows of one matrix")
    matrix.add_argument("--size", type=int, help="rows to choose")
    matrix.add_argument("--seed", type=int, help="seed of the random first row")
    matrix.add_argument("--max-swaps", type=int, help="at most so many swaps (default: no limit)")
    rule = parser.add_argument_group("prompts of a study")
    rule.add_argument("--config", type=json.loads, help="the study's select slice, as JSON")
    rule.add_argument("--candidates", type=Path, nargs="+", help="candidates (parquet)")
    rule.add_argument("--out", type=Path, help="selected rows (parquet)")
    rule.add_argument("--report", type=Path, help="report by category (JSON)")
    parser.add_argument(
        "--embeddings", type=Path, nargs="+", required=True, help="one .npy, or .npz of embed"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy select``; returns the contract's answer, or the report by category."""
    if arguments.config is None:
        return _run_matrix(arguments)
    if not (arguments.candidates and arguments.out and arguments.report):
        raise ValueError("select --config needs --candidates, --out and --report")
    candidates = read_rows(arguments.candidates, "question_id", ("category", "turns", "source"))
    embeddings = read_embeddings(arguments.embeddings)
    missing = read_missing(arguments.candidates)
    short = short_categories(missing)
    selected, reports = select_prompts(candidates, embeddings, arguments.config, short)
    note = coverage(
        missing,
        wanted={name: _quota(arguments.config, name) for name in arguments.config["categories"]},
        pool={name: category.pool for name, category in reports.items()},
        selected={name: category.selected for name, category in reports.items()},
    )
    if note is not None:
        LOG.warning("coverage: %s", in_words(note))
    report = {
        "config": arguments.config,
        "categories": {name: asdict(category) for name, category in reports.items()},
        "coverage": note,
    }
    write_json(arguments.report, report)
    write_rows(arguments.out, with_note(selected, note))
    return report


def _run_matrix(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.size is None or arguments.seed is None:
        raise ValueError("select needs --size and --seed (or --config for a study's prompts)")
    if len(arguments.embeddings) != 1:
        raise ValueError("select --size takes one matrix; give one .npy to --embeddings")
    path = arguments.embeddings[0]
    try:
        embeddings = np.load(path)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"--embeddings {path}: not a readable .npy file ({error})") from error
    if not isinstance(embeddings, np.ndarray):
        raise ValueError(f"--embeddings {path}: holds several arrays; give a .npy of one matrix")
    length = np.sqrt(np.einsum("ij,ij->i", embeddings, embeddings)) if embeddings.ndim == 2 else 1
    if np.any(abs(length - 1) > 1e-2):
        LOG.warning("rows are not of unit length: the objective is of dot products, not cosines")
    chosen = select_diverse(embeddings, arguments.size, arguments.seed, arguments.max_swaps)
    return {
        "ids": list(chosen.indices),
        "objective": chosen.objective,
        "mean_similarity": chosen.mean_similarity,
        "swaps": chosen.swaps,
    }
