"""Draw how alike the selected prompts are, beside what else could have been chosen.

Needs ``diversity.csv`` and the figure's slice of the study; leaves a .pdf and a .png.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from speedstudy.figures.inputs import read_settings, read_table
from speedstudy.figures.style import COLOURS, frame, new_figure, save, say_empty, theme

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How one of the compared choices is drawn."""

    column: str
    label: str
    marker: str
    colour: str
    filled: bool = True
    size_pt: float = 6.5


# Drawn in this order, so that ours lies on top; `greedy` is a ring around it where they are equal.
MARKS = (
    Mark(column="bound", label="least possible (QP bound)", marker="|", colour="black", size_pt=12),
    Mark(column="random", label="random, mean of 20", marker="s", colour=COLOURS[2]),
    Mark(column="spec_bench", label="Spec-Bench's rows", marker="D", colour=COLOURS[1]),
    Mark(
        column="greedy", label="greedy, no swaps", marker="o", colour=COLOURS[3], filled=False,
        size_pt=9.5,
    ),
    Mark(column="ours", label="selected (greedy + swaps)", marker="o", colour=COLOURS[0]),
)  # fmt: skip
PAPER_MARKS = (
    Mark(column="paper_random", label="the paper: random", marker="s", colour="0.55", filled=False),
    Mark(column="paper_ours", label="the paper: selected", marker="o", colour="0.55", filled=False),
)
LEGEND = (*reversed(MARKS), *PAPER_MARKS)
PAPER_SHIFT = 0.3  # of a row, below ours
COLUMNS = (
    "category", "pool", "selected", "random_low", "random_high", "coverage",
    *(mark.column for mark in (*MARKS, *PAPER_MARKS)),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the figure's slice, as JSON"
    )
    parser.add_argument("--table", type=Path, required=True, help="diversity.csv")
    parser.add_argument("--out", type=Path, required=True, help=".pdf to write; .png beside it")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw and save the figure; returns the files and what is missing from it."""
    settings = read_settings(arguments.config)
    table = read_table(arguments.table, COLUMNS)
    drawn = table[table["ours"].notna()].reset_index(drop=True)
    notes = [f"Coverage: {words}." for words in table["coverage"].dropna().unique()]
    if len(drawn) < len(table):
        lost = table.loc[table["ours"].isna(), "category"]
        notes.append(f"Missing, fewer than two prompts: {', '.join(lost)}.")
    definitions = [
        "Mean cosine similarity over all pairs of a category's prompts, in our embedding; lower is "
        "more diverse. No choice of as many prompts from the pool lies below the bound. Line: "
        "range of the random draws."
    ]
    handles: list[Any] = []
    with theme():
        figure = new_figure(settings)
        if drawn.empty:
            say_empty(figure)
        else:
            axes = figure.subplots()
            shown = [mark for mark in (*MARKS, *PAPER_MARKS) if drawn[mark.column].notna().any()]
            for mark in shown:
                _draw(axes, drawn, mark)
            handles = _handles([mark for mark in LEGEND if mark in shown])
            _label(axes, drawn)
            if any(mark in PAPER_MARKS for mark in shown):
                definitions.append(
                    "Grey: Table 8 of the paper, 80 of its own pools, in its own embedding."
                )
        title = "Likeness of the selected prompts, and of other choices from the same pools"
        frame(figure, settings, title, handles, definitions, notes)
        written = save(figure, arguments.out, settings.dpi)
    return {"files": [str(path) for path in written], "notes": notes}


def _draw(axes: "Axes", table: pd.DataFrame, mark: Mark) -> None:
    shift = PAPER_SHIFT if mark in PAPER_MARKS else 0.0
    if mark.column == "random":
        axes.hlines(
            table.index + shift, table["random_low"], table["random_high"], color=mark.colour,
            linewidth=1.6,
        )  # fmt: skip
    axes.plot(
        table[mark.column], table.index + shift, linestyle="", marker=mark.marker,
        markersize=mark.size_pt * (0.75 if shift else 1), **_face(mark),
    )  # fmt: skip


def _face(mark: Mark) -> dict[str, Any]:
    if mark.marker == "|":
        return {"markeredgecolor": mark.colour, "markeredgewidth": 2.2}
    if mark.filled:
        face = {"markerfacecolor": mark.colour, "markeredgecolor": "black"}
        return {**face, "markeredgewidth": 0.6}
    return {"markerfacecolor": "none", "markeredgecolor": mark.colour, "markeredgewidth": 1.3}


def _label(axes: "Axes", table: pd.DataFrame) -> None:
    import seaborn as sns

    names = [
        f"{row['category']}  ({row['selected']} of {row['pool']})" for _, row in table.iterrows()
    ]
    axes.set_yticks(range(len(table)), names)
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.set_xlabel("mean pairwise similarity")
    axes.grid(False, axis="y")
    sns.despine(ax=axes)


def _handles(marks: "list[Mark]") -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [], [], linestyle="", marker=mark.marker, markersize=mark.size_pt, label=mark.label,
            **_face(mark),
        )
        for mark in marks
    ]  # fmt: skip
