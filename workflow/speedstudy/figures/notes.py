"""The small print of a figure: what is missing and what is doubtful, cell by cell."""

from collections.abc import Sequence

import pandas as pd

from speedstudy.figures.inputs import with_labels

REASON_WORDS = 12
STATUS_COLUMNS = (
    "engine", "target", "drafter", "method", "k", "load", "concurrency", "status", "reason",
    "verdict", "coverage",
)  # fmt: skip


def missing_notes(cells: pd.DataFrame, needed: Sequence[str] = ()) -> list[str]:
    """Return what a figure of these cells lacks, a note a reason, in the table's order.

    Failed cells are counted and named with the first words of their reason. Cells that succeeded
    but have no value in one of the ``needed`` columns are named with that column. Cells whose
    client self-check is not ``valid`` are named with its verdict: they are drawn hollow. Prompts
    that lack a source which could not be had are named first.

    Args:
        cells: Rows of the table of cells, with ``STATUS_COLUMNS`` and those of ``needed``.
        needed: Columns that the figure draws.
    """
    several = len(cells[["engine", "target"]].drop_duplicates()) > 1
    failed = cells["status"] != "ok"
    notes = [f"Coverage: {words}." for words in cells["coverage"].dropna().unique()]
    lost = cells[failed]
    for reason, group in lost.groupby(lost["reason"].map(first_words), sort=False):
        notes.append(f"Missing, {len(group)} failed ({reason}): {_names(group, several)}.")
    for column in needed:
        unknown = cells[~failed & cells[column].isna()]
        if not unknown.empty:
            notes.append(f"Missing, no {column}: {_names(unknown, several)}.")
    doubtful = cells[~failed & is_doubtful(cells)]
    for verdict, group in doubtful.groupby(_verdict(doubtful), sort=False):
        notes.append(f"Hollow, the client's self-check says {verdict}: {_names(group, several)}.")
    return notes


def is_doubtful(cells: pd.DataFrame) -> "pd.Series[bool]":
    """Return which cells the client's self-check does not call ``valid``."""
    return _verdict(cells) != "valid"


def first_words(reason: object) -> str:
    """Return the first words of a failure's reason, with an ellipsis where it was cut."""
    words = reason.split() if isinstance(reason, str) else []
    if not words:
        return "no reason recorded"
    return " ".join(words[:REASON_WORDS]) + (" …" if len(words) > REASON_WORDS else "")


def _verdict(cells: pd.DataFrame) -> "pd.Series[str]":
    return cells["verdict"].astype(object).where(cells["verdict"].notna(), "unchecked")


def _names(cells: pd.DataFrame, several: bool) -> str:
    """Name cells, the batches of one drafter and load together."""
    parts = []
    keys = ["engine", "target", "load", "label"]
    for (engine, target, load, label), rows in with_labels(cells).groupby(keys, sort=False):
        batches = ", ".join(str(batch) for batch in sorted(rows["concurrency"].unique()))
        where = f" ({engine}, {target})" if several else ""
        parts.append(f"{load}, {label}, batch {batches}{where}")
    return "; ".join(parts)
