"""Draw user tokens/s against output tokens/s per device, a line a drafter, a panel a load.

Needs ``cells.parquet`` and the figure's slice of the study; leaves a .pdf and a .png.
"""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from speedstudy.figures.inputs import read_settings, read_table, with_labels
from speedstudy.figures.notes import STATUS_COLUMNS, is_doubtful, missing_notes
from speedstudy.figures.point_labels import place_labels
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

X, Y = "user_tok_per_s", "output_tok_per_s_per_device"
PANEL = ["target", "load", "workload", "max_tokens", "temperature"]
SETTING = ["engine", "drafter", "method", "k"]
COLUMNS = tuple(
    dict.fromkeys(
        (
            *(*STATUS_COLUMNS, *PANEL, *SETTING, "ids", "concurrency", "repeat", X, Y),
            *("requests", "requests_ok", "completion_tokens"),
        )
    )
)
X_LABEL = "user tokens/s (mean over requests of 1000 / TPOT in ms)"
Y_LABEL = "output tokens/s per device\n(tokens of ok requests / span / devices)"
FRONT_COLOUR = "0.82"
LABEL_PT, MARKER_PT = 7.5, 6.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the figure's slice, as JSON"
    )
    parser.add_argument("--cells", type=Path, required=True, help="cells.parquet")
    parser.add_argument("--out", type=Path, required=True, help=".pdf to write; .png beside it")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw and save the figure; returns the files and what is missing from it."""
    from matplotlib.lines import Line2D

    settings = read_settings(arguments.config)
    cells = read_table(arguments.cells, COLUMNS)
    styles = looks(cells)
    cells = cells[cells["ids"] == "real"]
    points = pareto_points(cells)
    notes = missing_notes(cells, (X, Y))
    if (repeats := cells["repeat"].nunique()) > 1:
        notes.insert(0, f"A point is the mean of its repeats, at most {repeats}.")
    engines = list(cells["engine"].unique())
    with theme():
        figure = new_figure(settings)
        handles: list[Artist] = []
        panels: list[tuple[Axes, pd.DataFrame]] = []
        if points.empty:
            say_empty(figure)
        else:
            drawn = {label: styles[label] for label in styles if label in set(points["label"])}
            front = Line2D([], [], color=FRONT_COLOUR, linewidth=8, label="Pareto front")
            handles = [*legend_handles(drawn, engines), front]
            groups = [group for _, group in points.groupby(PANEL, sort=False)]
            columns = len(groups) if len(groups) <= 3 else math.ceil(math.sqrt(len(groups)))
            grid = figure.subplots(math.ceil(len(groups) / columns), columns, squeeze=False)
            for axes in grid.flat[len(groups) :]:
                axes.remove()
            panels = list(zip(grid.flat, groups, strict=False))
            for axes, group in panels:
                _draw_panel(axes, group, styles, engines)
            for place, (axes, _) in enumerate(panels):
                if place + columns >= len(panels):
                    axes.set_xlabel(X_LABEL)
            figure.supylabel(Y_LABEL, fontsize=8, linespacing=1.3)
        title = "Speed of one user against that of the device; numbers: batch (requests in flight)"
        frame(figure, settings, title, handles, [], notes)
        figure.draw_without_rendering()  # the labels need the panels' final size
        for axes, group in panels:
            _label_points(axes, group)
        written = save(figure, arguments.out, settings.dpi)
    return {"files": [str(path) for path in written], "notes": notes}


def pareto_points(cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row a panel, setting and concurrency: the mean over repeats and seeds.

    Cells that failed or lack a coordinate are left out. ``doubtful`` holds if any of the repeats
    is. Panels and settings keep the order of the table; concurrencies ascend within a setting.
    """
    drawn = cells[(cells["status"] == "ok") & cells[X].notna() & cells[Y].notna()]
    drawn = drawn.assign(
        doubtful=is_doubtful(drawn),
        panel_order=drawn.groupby(PANEL, sort=False).ngroup(),
        setting_order=drawn.groupby(SETTING, sort=False).ngroup(),
    )
    order = ["panel_order", "setting_order", "concurrency"]
    points = drawn.groupby([*order, *PANEL, *SETTING], as_index=False).agg(
        {
            X: "mean",
            Y: "mean",
            "doubtful": "any",
            "requests": "max",
            "requests_ok": "sum",
            "completion_tokens": "sum",
        }
    )
    return with_labels(points.sort_values(order, ignore_index=True))


def pareto_front(x: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which points are on the Pareto front, where more is better in both coordinates.

    A point is on it if no other is at least as good in both coordinates and better in one. Of
    equal points all or none are. A point with a NaN coordinate is not on the front and beats none.
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    at_least = (xs[None, :] >= xs[:, None]) & (ys[None, :] >= ys[:, None])
    better = (xs[None, :] > xs[:, None]) | (ys[None, :] > ys[:, None])
    beaten = np.any(at_least & better, axis=1)
    front: npt.NDArray[np.bool_] = ~beaten & ~np.isnan(xs) & ~np.isnan(ys)
    return front


def describe_load(points: pd.DataFrame) -> str:
    """Return a panel's load in words: input length, requests, length of the replies, sampling."""
    first = points.iloc[0]
    isl = "" if first["workload"] == "qualitative" else f"ISL {first['workload']}, "
    replies = points["requests_ok"].sum()
    mean_osl = f"{points['completion_tokens'].sum() / replies:.0f}" if replies else "unknown"
    sampling = "greedy" if first["temperature"] == 0 else f"T={first['temperature']:g}"
    return (
        f"{isl}{points['requests'].max()} requests, OSL {mean_osl} of at most "
        f"{first['max_tokens']}, {sampling}"
    )


def _draw_panel(
    axes: "Axes", points: pd.DataFrame, styles: dict[str, Look], engines: list[str]
) -> None:
    import seaborn as sns

    front = points[pareto_front(points[X], points[Y])].sort_values([X, Y], ascending=[True, False])
    axes.plot(
        front[X], front[Y], color=FRONT_COLOUR, linewidth=8, marker="o", markersize=15,
        markeredgewidth=0, solid_capstyle="round", solid_joinstyle="round", zorder=1.5,
    )  # fmt: skip
    for _, line in points.groupby("setting_order"):
        look = styles[line["label"].iloc[0]]
        marker = marker_of(look, line["engine"].iloc[0], engines)
        axes.plot(line[X], line[Y], color=look.colour, linestyle=look.line, linewidth=1.5)
        for hollow, some in line.groupby("doubtful"):
            axes.plot(
                some[X], some[Y], linestyle="", color=look.colour, marker=marker, zorder=3,
                markerfacecolor="white" if hollow else look.colour, markersize=MARKER_PT,
                markeredgewidth=1.2,
            )  # fmt: skip
    first = points.iloc[0]
    where = ", ".join((first["load"], first["target"], *points["engine"].unique()))
    axes.set_title(f"{where}\n{describe_load(points)}", linespacing=1.4)
    axes.margins(0.1)
    # From zero: a zoomed axis makes much of a difference that is none.
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    sns.despine(ax=axes)


def _label_points(axes: "Axes", points: pd.DataFrame) -> None:
    """Write each point's batch beside it, once for points of one batch that touch."""
    per_pt = axes.figure.dpi / 72
    ends = axes.transData.transform(points[[X, Y]].to_numpy(dtype=float)) / per_pt
    data = [ends]
    for places in points.groupby("setting_order").indices.values():
        corners = ends[places]
        along = np.linspace(0, 1, 40)[:, None, None]
        data.append((corners[:-1] + along * np.diff(corners, axis=0)).reshape(-1, 2))
    batches = points["concurrency"].to_numpy()
    labelled: list[int] = []
    for place in range(len(points)):
        same = [other for other in labelled if batches[other] == batches[place]]
        if all(np.hypot(*(ends[place] - ends[other])) > MARKER_PT for other in same):
            labelled.append(place)
    texts = [str(batches[place]) for place in labelled]
    sizes = np.array([(0.64 * LABEL_PT * len(text), 0.8 * LABEL_PT) for text in texts])
    bounds = np.asarray(axes.get_window_extent().extents, dtype=float) / per_pt
    centres = place_labels(ends[labelled], sizes, np.concatenate(data), bounds)
    xy = points[[X, Y]].to_numpy(dtype=float)[labelled]
    for text, point, offset in zip(texts, xy, centres - ends[labelled], strict=True):
        axes.annotate(
            text, tuple(point), xytext=tuple(offset), textcoords="offset points", ha="center",
            va="center_baseline", fontsize=LABEL_PT, zorder=4, in_layout=False, color="0.15",
        )  # fmt: skip
