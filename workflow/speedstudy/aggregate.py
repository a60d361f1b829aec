"""Many cells' records to the tables of a study.

Needs finished cell directories; leaves ``cells.parquet`` (and ``.csv``), ``prompts.parquet``,
``categories.parquet`` and ``accepted.parquet``.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from speedstudy.cell_rows import (
    ACCEPTED_COLUMNS,
    CATEGORY_COLUMNS,
    CELL_COLUMNS,
    PROMPT_COLUMNS,
    PromptCounts,
    Row,
    accepted_rows,
    al_change,
    al_interval,
    category_rows,
    cell_row,
    comparison,
    prompt_rows,
)
from speedstudy.cells import Cell, by_concurrency, comparable, names, read_cells
from speedstudy.metrics.acceptance import prompt_counts
from speedstudy.records import TurnRecord, read_requests
from speedstudy.tables import write_csv
from speedstudy.workload import digest, read_workload

LOG = logging.getLogger(__name__)
COLUMNS = {
    "cells": CELL_COLUMNS,
    "prompts": PROMPT_COLUMNS,
    "categories": CATEGORY_COLUMNS,
    "accepted": ACCEPTED_COLUMNS,
}
DIGEST_DIGITS = 12  # of a workload's digest in a message


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The study's tables; every row repeats the identity columns of its cell.

    Attributes:
        cells: One row a cell, in the given order; numbers of a failed cell are null.
        prompts: One row a cell and prompt, over the prompt's ``ok`` turns.
        categories: One row a cell and category.
        accepted: Verify steps by accepted length, a cell and category.
    """

    cells: pd.DataFrame
    prompts: pd.DataFrame
    categories: pd.DataFrame
    accepted: pd.DataFrame


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="hashes of the cells' ids, a JSON list"
    )
    parser.add_argument("--cells", type=Path, required=True, help="folder of the cells' folders")
    parser.add_argument(
        "--workloads", type=Path, nargs="+", required=True, help="the study's workload files"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the tables; returns how many cells there are and which failed."""
    digests = {path.stem: digest(read_workload(path)) for path in arguments.workloads}
    tables = aggregate(read_cells(arguments.cells, arguments.config), digests)
    write_tables(arguments.out, tables)
    failed = tables.cells[tables.cells["status"] != "ok"]
    for cell_id, reason in zip(failed["cell_id"], failed["reason"], strict=True):
        LOG.warning("%s failed: %s", cell_id, reason)
    return {"cells": len(tables.cells), "failed": failed["cell_id"].tolist()}


def aggregate(cells: Sequence[Cell], workload_digests: Mapping[str, str]) -> Tables:
    """Build the tables of a study.

    A cell is compared with the one without a drafter at the same engine, target, load, sampling
    and repeat; where that one is missing or failed, the comparison is null. Its AL is compared
    with that of the cell which has the fewest requests in flight, of those that differ in nothing
    else and did not fail.

    Args:
        cells: Finished cells, failed ones included.
        workload_digests: Digest of each current workload file, by the file's name without suffix.

    Raises:
        ValueError: A cell was measured with other prompts than the current ones, a cell comes
            twice, or a directory holds no finished cell; the message names cells and the mend.
    """
    check_digests(cells, workload_digests)
    rows: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    counts: dict[str, PromptCounts] = {}
    for group in comparable(cells):
        counts |= _add_group(rows, group)
    _add_changes(rows["cells"], cells, counts)
    order = {cell.cell_id: position for position, cell in enumerate(cells)}
    for table in rows.values():
        table.sort(key=lambda row: order[row["cell_id"]])
    return Tables(**{name: _frame(rows[name], COLUMNS[name]) for name in COLUMNS})


def check_digests(cells: Sequence[Cell], workload_digests: Mapping[str, str]) -> None:
    """Refuse cells that were measured with other prompts than those of the current files.

    Raises:
        ValueError: Names the workload, the cells and the mend.
    """
    for name in sorted({cell.workload for cell in cells}):
        group = [cell for cell in cells if cell.workload == name]
        if name not in workload_digests:
            raise ValueError(
                f"workload {name}: no such file among the workloads, needed by "
                f"{names(group)}; give its file too"
            )
        current = workload_digests[name]
        stale = [cell for cell in group if cell.digest != current]
        if stale:
            digests = ", ".join(sorted({cell.digest[:DIGEST_DIGITS] for cell in stale}))
            raise ValueError(
                f"workload {name}: {names(stale)} used prompts of digest {digests}, the file "
                f"now has {current[:DIGEST_DIGITS]}; remove the folders of these cells and "
                "measure them again"
            )


def write_tables(directory: Path, tables: Tables) -> None:
    """Write every table as parquet, and the cells as CSV too; each appears whole or not at all.

    In the CSV null is an empty field.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in vars(tables).items():
        temporary = directory / f"{name}.parquet.tmp"
        table.to_parquet(temporary, index=False)
        temporary.replace(directory / f"{name}.parquet")
    write_csv(directory / "cells.csv", tables.cells)


def _add_group(rows: Mapping[str, list[Row]], group: Sequence[Cell]) -> dict[str, PromptCounts]:
    """Add the rows of comparable cells; returns the counts by prompt of each, by its id.

    Only the baseline's turns are held beside a cell's own. Failed cells have no counts.
    """
    counts: dict[str, PromptCounts] = {}
    baseline: tuple[Row, list[TurnRecord]] | None = None
    for cell in group:
        if cell.failed:
            rows["cells"].append(cell_row(cell, None))
            continue
        turns = read_requests(cell.directory / "requests.parquet")
        counts[cell.cell_id] = prompt_counts(turns, cell.record)
        row = cell_row(cell, turns) | al_interval(counts[cell.cell_id])
        if not cell.has_drafter:
            baseline = (row, turns)
        elif baseline is not None:
            row |= comparison(*baseline, row, turns)
        rows["cells"].append(row)
        rows["prompts"] += prompt_rows(cell, turns)
        rows["categories"] += category_rows(cell, turns)
        rows["accepted"] += accepted_rows(cell, turns)
    return counts


def _add_changes(
    rows: Sequence[Row], cells: Sequence[Cell], counts: Mapping[str, PromptCounts]
) -> None:
    """Add to the rows of cells with a drafter how AL changes with the requests in flight."""
    by_id = {row["cell_id"]: row for row in rows}
    drafted = [cell for cell in cells if cell.has_drafter and cell.cell_id in counts]
    for fewest, *more in by_concurrency(drafted):
        for cell in more:
            by_id[cell.cell_id] |= al_change(counts[fewest.cell_id], counts[cell.cell_id])


def _frame(rows: Sequence[Row], columns: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with exactly these columns and types; what a row lacks is null."""
    frame = pd.DataFrame([[row.get(name) for name in columns] for row in rows], columns=[*columns])
    return frame.astype(dict(columns))
