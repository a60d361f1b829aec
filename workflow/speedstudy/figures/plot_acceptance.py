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
    from matplotlib.figure import Figure

SERIES = ["engine", "target", "drafter", "method", "k"]
LOAD = ["load", "concurrency", "temperature"]
RUN = [*SERIES, "seed", "repeat"]  # what cells that differ in the requests in flight share
ALS = ("al", "al_change", "al_change_low", "al_change_high")
CELL_COLUMNS = (*dict.fromkeys((*STATUS_COLUMNS, *LOAD, *RUN, "ids", "max_tokens", *ALS)),)
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

    def batches(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table's rows at this load, however many requests were in flight."""
        return table[(table["load"] == self.load) & (table["temperature"] == self.temperature)]

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table's rows at this load and concurrency."""
        return self.batches(table[table["concurrency"] == self.concurrency])


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
    changes = batch_changes(cells if point is None else point.batches(cells))
    notes = [*change_notes(changes), *notes]
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
            shown = {label: look for label, look in styles.items() if label in drawn}
            handles = _handles(shown, engines)
            definitions = _definitions(cells, prompts, shares) + change_definitions(changes)
            lengths, shares = (_mark_doubtful(table, cells) for table in (lengths, shares))
            _draw(figure, lengths, shares, shown, engines)
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


def batch_changes(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that have a cell with fewer requests in flight to be compared with.

    Args:
        cells: Rows of the table of cells at one load and temperature; failed ones are left out.

    Returns:
        The columns of the cells, ``label``, and of the cell with the fewest requests in flight
        ``concurrency_least`` and ``al_least``.
    """
    ok = cells[cells["status"] == "ok"].sort_values("concurrency", kind="stable")
    least = ok.drop_duplicates(RUN)[[*RUN, "concurrency", "al"]]
    pairs = ok.merge(least, on=RUN, suffixes=("", "_least"))
    return with_labels(pairs[pairs["concurrency"] > pairs["concurrency_least"]])


def change_notes(changes: pd.DataFrame) -> list[str]:
    """Return a note on AL that changes with the requests in flight, and one where none can tell.

    A change counts if its interval excludes 0. Of each engine, target and drafter the largest is
    named, over its draft lengths and batches, the largest of all first. Series without an
    interval are named with their AL, where it is known, at the least and the largest batch.

    Args:
        changes: What ``batch_changes`` returns.

    Returns:
        Up to two notes.
    """
    found = changes[_excludes_zero(changes)]
    order = found["al_change"].abs().sort_values(ascending=False, kind="stable").index
    largest = found.loc[order].drop_duplicates(["engine", "target", "drafter"])
    notes = []
    if not largest.empty:
        parts = [
            f"{words} (change {low:.2g} to {high:.2g})"
            for words, low, high in zip(
                _in_words(largest), largest["al_change_low"], largest["al_change_high"], strict=True
            )
        ]
        notes.append(f"AL changes with batch: {'; '.join(parts)}.")
    unknown = changes[_has_no_interval(changes)].drop_duplicates(SERIES, keep="last")
    if not unknown.empty:
        words = "; ".join(_in_words(unknown))
        notes.append(f"AL by batch without an interval of its change: {words}.")
    return notes


def change_definitions(changes: pd.DataFrame) -> list[str]:
    """Return one line that AL is the same at all batches, or none where that is not so or unknown.

    Args:
        changes: What ``batch_changes`` returns.
    """
    known = changes[~_has_no_interval(changes)]
    if known.empty or _excludes_zero(known).any():
        return []
    batches = sorted({*known["concurrency"], *known["concurrency_least"]})
    return [
        f"AL is the same at batch {', '.join(map(str, batches))} within the 95% interval of its "
        f"change ({known['al_change_low'].min():.2g} to {known['al_change_high'].max():.2g})."
    ]


def _excludes_zero(changes: pd.DataFrame) -> "pd.Series[bool]":
    return (changes["al_change_low"] > 0) | (changes["al_change_high"] < 0)


def _has_no_interval(changes: pd.DataFrame) -> "pd.Series[bool]":
    return changes["al_change_low"].isna() | changes["al_change_high"].isna()


def _in_words(changes: pd.DataFrame) -> list[str]:
    """Return drafter and engine of each row, the target where there are several, and AL twice."""
    names = ["label", "engine", *(["target"] if changes["target"].nunique() > 1 else [])]
    sides = changes[["al_least", "concurrency_least", "al", "concurrency"]]
    words = []
    for name, (before, least, after, batch) in zip(
        changes[names].to_numpy(), sides.to_numpy(dtype=object), strict=True
    ):
        known = pd.notna(before) and pd.notna(after)
        lengths = f"{before:.2f} at {least}, {after:.2f} at {batch}" if known else "unknown"
        words.append(f"{', '.join(name)}: {lengths}")
    return words


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


def _draw(
    figure: "Figure",
    lengths: pd.DataFrame,
    shares: pd.DataFrame,
    styles: Mapping[str, Look],
    engines: Sequence[str],
) -> None:
    """Draw a column a target: lengths, and below them the shares if any engine lists its steps."""
    targets = list(lengths["target"].unique())
    rows = 1 if shares.empty else 2
    grid = figure.subplots(rows, len(targets), squeeze=False, sharey="row")
    for column, target in zip(grid.T, targets, strict=True):
        column[0].set_title(f"{target}, {', '.join(engines)}")
        _draw_lengths(column[0], lengths[lengths["target"] == target], styles, engines)
        if not shares.empty:
            _draw_shares(column[1], shares[shares["target"] == target], styles, engines)
    grid[0, 0].set_ylabel("acceptance length AL\n(tokens per verify step)")
    if not shares.empty:
        grid[1, 0].set_ylabel("share of verify steps")


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
