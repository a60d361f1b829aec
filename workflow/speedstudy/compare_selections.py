"""Compare the selection with what else could have been chosen, category by category.

Needs the candidates, their embeddings, the selected prompts and the report of ``select``; leaves a
table of mean pairwise similarities: of the selected prompts, of the greedy choice before any swap,
of random choices, of Spec-Bench's own rows (of sources that give ``comparison``), and the least
that any choice could have, with the paper's Table 8 beside it.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from speedstudy import paper
from speedstudy.coverage import in_words, read_note
from speedstudy.diversity import select_diverse, summed_similarity
from speedstudy.relaxation import similarity_bound
from speedstudy.tables import read_embeddings, read_rows, read_rows_in_order, write_csv

LOG = logging.getLogger(__name__)

DRAWS = 20
COLUMNS = {
    "category": "string",
    "pool": "Int64",
    "selected": "Int64",
    "ours": "float64",
    "greedy": "float64",
    "random": "float64",
    "random_low": "float64",
    "random_high": "float64",
    "spec_bench": "float64",
    "spec_bench_rows": "Int64",
    "bound": "float64",
    "gap": "float64",
    "paper_random": "float64",
    "paper_ours": "float64",
    "paper_qp": "float64",
    "coverage": "string",
}
Vectors = npt.NDArray[np.float32]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy compare-selections``."""
    parser.add_argument(
        "--candidates", type=Path, nargs="+", required=True, help="of all sources (parquet)"
    )
    parser.add_argument(
        "--compared", type=Path, nargs="*", default=[], help="rows of Spec-Bench itself (parquet)"
    )
    parser.add_argument(
        "--embeddings", type=Path, nargs="+", required=True, help="of all these rows (npz of embed)"
    )
    parser.add_argument("--prompts", type=Path, required=True, help="selected prompts (parquet)")
    parser.add_argument("--report", type=Path, required=True, help="report of select (JSON)")
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the table; returns its rows."""
    candidates = read_rows(arguments.candidates, "question_id", ("category",))
    compared = [
        row
        for path in arguments.compared
        for row in read_rows_in_order(path, ("question_id", "category"))
    ]
    selected = read_rows_in_order(arguments.prompts, ("question_id", "category"))
    report = json.loads(arguments.report.read_text(encoding="utf-8"))
    order = [name for name in report["config"]["categories"] if name in report["categories"]]
    table = compare(
        candidates.select(["question_id", "category"]).to_pylist(),
        read_embeddings(arguments.embeddings),
        selected,
        {name: report["categories"][name] for name in order},
        compared,
        in_words(read_note(arguments.prompts)),
    )
    write_csv(arguments.out, table)
    means = table.mean(numeric_only=True)
    overall = {
        "ours": means["ours"],
        "spec_bench": means["spec_bench"],
        "paper_ours": paper.SIMILARITY_OVERALL[0],
        "paper_spec_bench": paper.SIMILARITY_OVERALL[1],
    }
    overall = {name: None if pd.isna(value) else float(value) for name, value in overall.items()}
    shown = table.drop(columns=["pool", "random_low", "random_high", "gap", "coverage"]).round(3)
    LOG.info("mean pairwise similarity\n%s", shown.to_string(index=False, na_rep=""))
    LOG.info("mean of the categories: %s", overall)
    return {"categories": json.loads(table.to_json(orient="records")), "overall": overall}


def compare(
    candidates: Sequence[Mapping[str, Any]],
    embeddings: Mapping[str, Vectors],
    selected: Sequence[Mapping[str, Any]],
    reports: Mapping[str, Mapping[str, Any]],
    compared: Sequence[Mapping[str, Any]] = (),
    coverage: str | None = None,
) -> pd.DataFrame:
    """Return a row a category, in the order of the reports.

    Args:
        candidates: ``question_id`` and ``category``, sorted by id.
        embeddings: Row of every candidate by its id.
        selected: ``question_id`` and ``category`` of the selected prompts.
        reports: By category the report of ``select``; its ``duplicates`` and ``near_duplicates``
            are not in the pool and its ``seed`` starts the greedy choice.
        compared: ``question_id`` and ``category`` of Spec-Bench's own rows, if they are there.
        coverage: What the prompts lack, repeated in every row.

    Returns:
        ``COLUMNS``; similarities are means over pairs. ``random`` is the mean of 20 draws, with
        the least and the largest of them beside; ``bound`` is that of ``similarity_bound`` and
        ``gap`` what ``ours`` is above it. Where there is no pair the value is null.
    """
    rows = []
    for category, report in reports.items():
        members = [row for row in candidates if row["category"] == category]
        left_out = {*report["duplicates"], *report["near_duplicates"]}
        pool = _rows(embeddings, [row for row in members if row["question_id"] not in left_out])
        ours = _rows(embeddings, [row for row in selected if row["category"] == category])
        theirs = _rows(embeddings, [row for row in compared if row["category"] == category])
        size, seed = len(ours), report["seed"]
        draws = [
            mean_similarity(pool[np.random.default_rng((seed, draw)).permutation(len(pool))[:size]])
            for draw in range(DRAWS)
        ]
        known = [value for value in draws if value is not None]
        bound, similarity = similarity_bound(pool, size), mean_similarity(ours)
        published = paper.SIMILARITY.get(category, (None, None, None))
        rows.append(
            {
                "category": category,
                "pool": len(pool),
                "selected": size,
                "ours": similarity,
                "greedy": select_diverse(pool, size, seed, 0).mean_similarity,
                "random": float(np.mean(known)) if known else None,
                "random_low": min(known, default=None),
                "random_high": max(known, default=None),
                "spec_bench": mean_similarity(theirs),
                "spec_bench_rows": len(theirs) if compared else None,
                "bound": bound,
                "gap": None if bound is None or similarity is None else similarity - bound,
                "paper_random": published[0],
                "paper_ours": published[1],
                "paper_qp": published[2],
                "coverage": coverage,
            }
        )
    return pd.DataFrame(rows, columns=[*COLUMNS]).astype(COLUMNS)


def mean_similarity(rows: Vectors) -> float | None:
    """Return the mean of x_i . x_j over the pairs of the rows; None without a pair."""
    pairs = len(rows) * (len(rows) - 1)
    return summed_similarity(rows) / pairs if pairs else None


def _rows(embeddings: Mapping[str, Vectors], rows: Sequence[Mapping[str, Any]]) -> Vectors:
    vectors = [embeddings[row["question_id"]] for row in rows]
    return np.stack(vectors) if vectors else np.empty((0, 0), dtype=np.float32)
