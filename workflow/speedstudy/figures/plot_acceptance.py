"""Draw acceptance length by category, and how many tokens the verify steps accepted.

Needs ``cells.parquet``, ``prompts.parquet``, ``accepted.parquet`` and the figure's slice of the
study; leaves a .pdf and a .png.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from speedstudy.figures.estimates import acceptance_length
from speedstudy.figures.inputs import read_settings, read_table, with_labels
from speedstudy.figures.notes import STATUS_COLUMNS, is_doubtful, missing_notes
from speedstudy.figures.style import (
    Look,
    frame,
    legend_handles,
    looks,
    marker_of,
    new_figure,
    save,
    say_empty,
    theme,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

SERIES = ["engine", "target", "drafter", "method", "k"]
LOAD = ["load", "concurrency", "temperature"]
CELL_COLUMNS = (*dict.fromkeys((*STATUS_COLUMNS, *LOAD, "ids", "max_tokens", "al")),)
PROMPT_COLUMNS = (*SERIES, *LOAD, "ids", "prompt_id", "category", "accepted", "steps")
ACCEPTED_COLUMNS = (*SERIES, *LOAD, "ids", "accepted", "steps", "listed")
MACRO_MEAN = "macro mean"
SPREAD = 0.6  # of the space between two places on the x axis, shared by the series


@dataclass(frozen=True, kw_only=True)
class Point:
    """The load that a figure shows: the fewest requests in flight, the lowest temperature."""

    load: str
    concurrency: int
    temperature: float

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table's rows at this load."""
        return table[
            (table["load"] == self.load)
            & (table["concurrency"] == self.concurrency)
            & (table["temperature"] == self.temperature)
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the figure's slice, as JSON"
    )
    parser.add_argument("--cells", type=Path, required=True, help="cells.parquet")
    parser.add_argument("--prompts", type=Path, required=True, help="prompts.parquet")
    parser.add_argument("--accepted", type=Path, required=True, help="accepted.parquet")
    parser.add_argument("--out", type=Path, required=True, help=".pdf to write; .png beside it")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw and save the figure; returns the files and what is missing from it."""
    settings = read_settings(arguments.config)
    cells = read_table(arguments.cells, CELL_COLUMNS)
    prompts = read_table(arguments.prompts, PROMPT_COLUMNS)
    accepted = read_table(arguments.accepted, ACCEPTED_COLUMNS)
    styles = looks(cells)
    cells, prompts, accepted = (
        table[(table["ids"] == "real") & (table["method"] != "none")]
        for table in (cells, prompts, accepted)
    )
    point = choose_load(prompts)
    notes = missing_notes(considered(cells, prompts, point), ("al",))
    if point is not None:
        cells, prompts, accepted = (point.rows(table) for table in (cells, prompts, accepted))
    lengths, shares = category_lengths(prompts), step_shares(accepted)
    title, handles, definitions = "Acceptance by category", list[Any](), list[str]()
    with theme():
        figure = new_figure(settings)
        if point is None or lengths.empty:
            say_empty(figure)
        else:
            title = f"Acceptance by category: load {point.load}, batch {point.concurrency}"
            drawn = set(lengths["label"])
            engines = list(cells["engine"].unique())
            targets = list(cells["target"].unique())
            shown = {label: look for label, look in styles.items() if label in drawn}
            handles = _handles(shown, engines)
            definitions = _definitions(cells, prompts, shares)
            lengths, shares = (_mark_doubtful(table, cells) for table in (lengths, shares))
            grid = figure.subplots(2, len(targets), squeeze=False, sharey="row")
            for column, target in enumerate(targets):
                above, below = grid[0, column], grid[1, column]
                _draw_lengths(above, lengths[lengths["target"] == target], shown, engines)
                _draw_shares(below, shares[shares["target"] == target], shown, engines)
                above.set_title(f"{target}, {', '.join(engines)}")
            grid[0, 0].set_ylabel("acceptance length AL\n(tokens per verify step)")
            grid[1, 0].set_ylabel("share of verify steps")
        frame(figure, settings, title, handles, definitions, notes)
        written = save(figure, arguments.out, settings.dpi)
    return {"files": [str(path) for path in written], "notes": notes}


def choose_load(prompts: pd.DataFrame) -> Point | None:
    """Return the load with most categories, at its least concurrency and temperature.

    Ties go to the load that comes first in the table. None if there are no prompts.
    """
    if prompts.empty:
        return None
    categories = prompts.groupby("load", sort=False)["category"].nunique()
    load = str(categories.idxmax())
    rows = prompts[prompts["load"] == load]
    rows = rows[rows["concurrency"] == rows["concurrency"].min()]
    return Point(
        load=load,
        concurrency=int(rows["concurrency"].min()),
        temperature=float(rows["temperature"].min()),
    )


def considered(cells: pd.DataFrame, prompts: pd.DataFrame, point: Point | None) -> pd.DataFrame:
    """Return the cells that are shown, or would have been had they not failed.

    Those are the cells of the shown load up to its shown concurrency, and loads without a prompt.
    """
    lost = ~cells["load"].isin(prompts["load"])
    if point is None:
        return cells[lost]
    return cells[
        lost | ((cells["load"] == point.load) & (cells["concurrency"] <= point.concurrency))
    ]


def category_lengths(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return AL with its interval by series and category, and the macro mean over categories.

    Counts of a prompt's repeats are added up first, so that prompts stay the units of the
    bootstrap. Series keep the order of the table, categories are sorted, the macro mean is last.
    Where AL is undefined there is no row.

    Returns:
        Columns ``SERIES``, ``label``, ``category``, ``al``, ``low``, ``high``.
    """
    rows = []
    for _, group in prompts.groupby(SERIES, sort=False):
        key = group[SERIES].iloc[0]
        counts = group.groupby(["category", "prompt_id"])[["accepted", "steps"]].sum(skipna=False)
        by_category = {str(name): one for name, one in counts.groupby(level="category")}
        parts = {name: [one] for name, one in by_category.items()}
        for name, groups in {**parts, MACRO_MEAN: list(by_category.values())}.items():
            estimate = acceptance_length(groups)
            if estimate is not None:
                rows.append((*key, name, estimate.value, estimate.low, estimate.high))
    frame = pd.DataFrame(rows, columns=[*SERIES, "category", "al", "low", "high"])
    return with_labels(frame.astype({"al": float, "low": float, "high": float}))


def step_shares(accepted: pd.DataFrame) -> pd.DataFrame:
    """Return the share of a series' listed steps that accepted each number of tokens.

    Returns:
        Columns ``SERIES``, ``label``, ``accepted``, ``share``, ``listed``; from 0 to the most
        that any step accepted or k, zeros included. Series whose engine lists no steps have no row.
    """
    rows = []
    for _, group in accepted.groupby(SERIES, sort=False):
        key = group[SERIES].iloc[0]
        steps = group.groupby("accepted")["steps"].sum()
        listed = "all" if set(group["listed"]) == {"all"} else "drafted"
        for count in range(max(int(key["k"]), *steps.index) + 1):
            share = float(steps.get(count, 0)) / float(steps.sum())
            rows.append((*key, count, share, listed))
    return with_labels(pd.DataFrame(rows, columns=[*SERIES, "accepted", "share", "listed"]))


def _definitions(cells: pd.DataFrame, prompts: pd.DataFrame, shares: pd.DataFrame) -> list[str]:
    temperature = cells["temperature"].iloc[0]
    sampling = "greedy (T=0)" if temperature == 0 else f"T={temperature:g}"
    prompts_each = prompts.groupby([*SERIES, "category"])["prompt_id"].nunique()
    steps_each = prompts.groupby(SERIES)["steps"].sum()
    lines = [
        "AL = 1 + accepted / steps, pooled over verify steps; a step counts whether it drafted or "
        f"not. Steps counted per drafter: {_range(steps_each)}. Sampling: {sampling}, at most "
        f"{cells['max_tokens'].iloc[0]} tokens a turn.",
        f"Whiskers: 95% bootstrap over prompts, {_range(prompts_each)} a category (few prompts "
        f"give whiskers that are too short). {MACRO_MEAN.capitalize()}: mean over categories.",
    ]
    partial = shares[shares["listed"] == "drafted"]["label"].unique()
    if len(partial):
        lines.append(f"Shares of drafted steps only, as the engine lists: {', '.join(partial)}.")
    listed = shares.set_index(SERIES).index
    without = with_labels(prompts.drop_duplicates(SERIES))
    without = without[~without.set_index(SERIES).index.isin(listed)]
    if len(without):
        names = ", ".join(without["label"].unique())
        lines.append(f"No shares, the engine does not list its steps: {names}.")
    return lines


def _range(numbers: "pd.Series[int]") -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _handles(styles: Mapping[str, Look], engines: Sequence[str]) -> "list[Artist]":
    from matplotlib.lines import Line2D

    baseline = Line2D([], [], color="black", linestyle="--", linewidth=1, label="no drafter: AL 1")
    handles = legend_handles(styles, engines)
    for handle in handles[: len(styles)]:
        handle.set(linestyle="-")
    return [*handles, baseline]


def _mark_doubtful(table: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``doubtful``: whether any of the series' cells is."""
    doubtful = cells[is_doubtful(cells) & (cells["status"] == "ok")]
    keys = set(map(tuple, doubtful[SERIES].to_numpy()))
    return table.assign(doubtful=[tuple(row) in keys for row in table[SERIES].to_numpy()])


def _draw_lengths(
    axes: "Axes", lengths: pd.DataFrame, styles: Mapping[str, Look], engines: Sequence[str]
) -> None:
    names = [*sorted(set(lengths["category"]) - {MACRO_MEAN}), MACRO_MEAN]
    axes.axhline(1.0, color="black", linestyle="--", linewidth=1, zorder=1)
    axes.axvline(len(names) - 1.5, color="0.6", linewidth=0.8)
    for shift, look, marker, rows in _series(lengths, styles, engines):
        x = np.array([names.index(name) for name in rows["category"]]) + shift
        axes.vlines(x, rows["low"], rows["high"], color=look.colour, linewidth=1.3, zorder=2)
        _heads(axes, x, rows, "al", look, marker, edge=look.colour)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", rotation_mode="anchor")
    _tidy(axes, len(names))


def _draw_shares(
    axes: "Axes", shares: pd.DataFrame, styles: Mapping[str, Look], engines: Sequence[str]
) -> None:
    most = 0
    series = _series(shares, styles, engines)
    width = min(0.3, 0.8 * SPREAD / max(1, len(series)))
    for shift, look, marker, rows in series:
        x = rows["accepted"].to_numpy(dtype=float) + shift
        axes.bar(x, rows["share"], width, color=look.colour, linewidth=0, zorder=2)
        _heads(axes, x, rows, "share", look, marker, edge="white")
        most = max(most, int(rows["accepted"].max()))
    axes.set_xticks(range(most + 1))
    axes.set_xlabel("draft tokens accepted in a verify step")
    axes.set_ylim(bottom=0)
    _tidy(axes, most + 1)


def _series(
    table: pd.DataFrame, styles: Mapping[str, Look], engines: Sequence[str]
) -> "list[tuple[float, Look, str, pd.DataFrame]]":
    """Return shift along x, look, marker and rows of each series, side by side."""
    groups = [rows for _, rows in table.groupby(["engine", "label"], sort=False)]
    shifts = SPREAD * (np.arange(len(groups)) - (len(groups) - 1) / 2) / max(1, len(groups))
    series = []
    for shift, rows in zip(shifts, groups, strict=True):
        look = styles[rows["label"].iloc[0]]
        series.append((float(shift), look, marker_of(look, rows["engine"].iloc[0], engines), rows))
    return series


def _heads(
    axes: "Axes", x: Any, rows: pd.DataFrame, column: str, look: Look, marker: str, edge: str
) -> None:
    hollow = bool(rows["doubtful"].any())
    axes.plot(
        x, rows[column], linestyle="", marker=marker, markersize=6, zorder=3,
        markerfacecolor="white" if hollow else look.colour,
        markeredgecolor=look.colour if hollow else edge,
    )  # fmt: skip


def _tidy(axes: "Axes", places: int) -> None:
    import seaborn as sns

    axes.set_xlim(-0.6, places - 0.4)
    axes.grid(False, axis="x")
    sns.despine(ax=axes)
