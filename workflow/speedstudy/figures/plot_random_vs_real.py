"""Draw the same load with random tokens and with real prompts: throughput and acceptance.

Needs ``cells.parquet``, ``prompts.parquet`` and the figure's slice of the study; leaves a .pdf
and a .png.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from speedstudy.figures.estimates import acceptance_length
from speedstudy.figures.inputs import read_settings, read_table, with_labels
from speedstudy.figures.notes import STATUS_COLUMNS, is_doubtful, missing_notes
from speedstudy.figures.style import COLOURS, frame, new_figure, save, say_empty, theme
from speedstudy.metrics.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

KEY = [
    "engine", "target", "workload", "max_tokens", "temperature", "drafter", "method", "k",
    "concurrency",
]  # fmt: skip
RATE = "output_tok_per_s"
CELL_COLUMNS = (*dict.fromkeys((*STATUS_COLUMNS, *KEY, "ids", RATE, "al", "requests")),)
PROMPT_COLUMNS = (*KEY, "load", "ids", "prompt_id", "accepted", "steps")
ROW_FONT_PT = 8.0
COLOUR = {"real": COLOURS[0], "random": COLOURS[2]}
MARKER = {"real": "o", "random": "D"}
SHIFT = {"real": -0.17, "random": 0.17}  # of a side from the middle of its row
NAME = {"real": "real prompts", "random": "random token ids of the same length"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the figure's slice, as JSON"
    )
    parser.add_argument("--cells", type=Path, required=True, help="cells.parquet")
    parser.add_argument("--prompts", type=Path, required=True, help="prompts.parquet")
    parser.add_argument("--out", type=Path, required=True, help=".pdf to write; .png beside it")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw and save the figure; returns the files and what is missing from it."""
    settings = read_settings(arguments.config)
    cells = read_table(arguments.cells, CELL_COLUMNS)
    prompts = read_table(arguments.prompts, PROMPT_COLUMNS)
    pairs = pair_random_with_real(cells)
    used = cells[cells["load"].isin({*pairs["load_real"], *pairs["load_random"]})]
    notes = missing_notes(used, (RATE,))
    drawn = pairs[pairs[[f"{RATE}_real", f"{RATE}_random"]].notna().any(axis=1)]
    title, definitions, handles = "Random tokens against real prompts", list[str](), list[Any]()
    with theme():
        figure = new_figure(settings)
        if drawn.empty:
            say_empty(figure)
        else:
            left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.15, 1))
            rows = row_names(drawn)
            font_pt = min(ROW_FONT_PT, 0.6 * settings.height_in * 72 / (1.2 * len(rows)))
            _draw_rates(left, drawn, font_pt)
            _draw_lengths(right, drawn, prompts, font_pt)
            left.set_yticks(range(len(rows)), rows, fontsize=font_pt)
            left.set_ylim(len(rows) - 0.4, -0.6)
            handles = _handles()
            title = f"Random tokens against real prompts: {_describe(drawn, used)}"
            definitions = [
                "The two loads of a row differ only in the prompt's token ids. AL = 1 + accepted / "
                "steps, pooled over verify steps; 1 without a drafter (dashed). Whiskers: 95% "
                "bootstrap over prompts."
            ]
        frame(figure, settings, title, handles, definitions, notes)
        written = save(figure, arguments.out, settings.dpi)
    return {"files": [str(path) for path in written], "notes": notes}


def pair_random_with_real(cells: pd.DataFrame) -> pd.DataFrame:
    """Pair loads that differ only in whether the prompts' token ids are real or random.

    Both sides of a pair have the same engine, target, workload, output limit, temperature,
    drafter, draft length and concurrency. Repeats and seeds of a side are averaged; a side that
    failed in all of them has null values, its pair is kept.

    Returns:
        One row a pair, in the order of the real loads: ``KEY``, ``label``, and with the suffixes
        ``_real`` and ``_random`` the columns ``load``, ``output_tok_per_s``, ``al`` and
        ``doubtful``; ``ratio`` is random over real ``output_tok_per_s``, null if a side is.
    """
    measured = cells.assign(doubtful=is_doubtful(cells) & (cells["status"] == "ok"))
    sides = measured.groupby([*KEY, "load", "ids"], sort=False, as_index=False).agg(
        {RATE: "mean", "al": "mean", "doubtful": "any"}
    )
    real, random = (sides[sides["ids"] == ids].drop(columns="ids") for ids in ("real", "random"))
    pairs = real.merge(random, on=KEY, suffixes=("_real", "_random"))
    pairs["ratio"] = pairs[f"{RATE}_random"] / pairs[f"{RATE}_real"]
    return with_labels(pairs)


def side_length(prompts: pd.DataFrame, pair: "pd.Series[Any]", ids: str) -> Estimate | None:
    """Return AL of one side of a pair, pooled over its prompts; repeats are added up first."""
    same = (prompts["ids"] == ids) & (prompts["load"] == pair[f"load_{ids}"])
    for name in KEY:
        same &= prompts[name] == pair[name]
    counts = prompts[same].groupby("prompt_id")[["accepted", "steps"]].sum(skipna=False)
    return acceptance_length([counts])


def row_names(pairs: pd.DataFrame) -> list[str]:
    """Return a name for each pair: drafter and batch, and what else differs between the pairs."""
    varying = [
        name
        for name in ("engine", "target", "load_real", "load_random", "max_tokens", "temperature")
        if pairs[name].nunique() > 1
    ]
    return [
        ", ".join(
            (*(f"{row[name]}" for name in varying), row["label"], f"batch {row['concurrency']}")
        )
        for _, row in pairs.iterrows()
    ]


def _describe(pairs: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Return in words what all pairs have in common."""
    parts = [
        ", ".join(map(str, pairs["engine"].unique())),
        ", ".join(map(str, pairs["target"].unique())),
        "ISL " + ", ".join(map(str, pairs["workload"].unique())),
        "OSL at most " + ", ".join(map(str, pairs["max_tokens"].unique())),
    ]
    requests = cells["requests"].dropna().unique()
    if len(requests) == 1:
        parts.append(f"{requests[0]} requests")
    return ", ".join(parts)


def _draw_rates(axes: "Axes", pairs: pd.DataFrame, font_pt: float) -> None:
    for ids, shift in SHIFT.items():
        for place, (value, hollow) in enumerate(
            zip(pairs[f"{RATE}_{ids}"], pairs[f"doubtful_{ids}"], strict=True)
        ):
            axes.barh(
                place + shift, value, height=abs(2 * shift), linewidth=0.8, zorder=2,
                facecolor="white" if hollow else COLOUR[ids],
                edgecolor=COLOUR[ids] if hollow else "black",
            )  # fmt: skip
    axes.set_xlabel("output tokens/s (tokens of ok requests / span)")
    axes.text(1.02, 1.0, "random / real", transform=axes.transAxes, fontsize=7.5, va="bottom")
    for place, ratio in enumerate(pairs["ratio"]):
        text = "unknown" if pd.isna(ratio) else f"{ratio:.2f}"
        axes.text(
            1.05, place, text, transform=axes.get_yaxis_transform(), fontsize=font_pt, va="center"
        )
    _tidy(axes)


def _draw_lengths(axes: "Axes", pairs: pd.DataFrame, prompts: pd.DataFrame, font_pt: float) -> None:
    axes.axvline(1.0, color="black", linestyle="--", linewidth=1, zorder=1)
    for place, (_, pair) in enumerate(pairs.iterrows()):
        for ids, shift in SHIFT.items():
            estimate = side_length(prompts, pair, ids) if pair["method"] != "none" else None
            if estimate is None:
                continue
            hollow = bool(pair[f"doubtful_{ids}"])
            if estimate.low is not None and estimate.high is not None:
                axes.plot(
                    [estimate.low, estimate.high], [place + shift] * 2, color=COLOUR[ids],
                    linewidth=1.4,
                )  # fmt: skip
            axes.plot(
                [estimate.value], [place + shift], linestyle="", marker=MARKER[ids],
                markersize=0.8 * font_pt,
                markerfacecolor="white" if hollow else COLOUR[ids], markeredgewidth=0.8,
                markeredgecolor=COLOUR[ids] if hollow else "black", zorder=3,
            )  # fmt: skip
    axes.set_xlabel("acceptance length AL (tokens per verify step)")
    axes.set_xlim(left=min(0.95, axes.get_xlim()[0]))
    _tidy(axes)


def _handles() -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [], [], color=COLOUR[ids], linewidth=5, marker=MARKER[ids], markersize=8,
            solid_capstyle="butt",
            markeredgecolor="black", markeredgewidth=0.8, label=NAME[ids],
        )
        for ids in SHIFT
    ]  # fmt: skip


def _tidy(axes: "Axes") -> None:
    import seaborn as sns

    axes.grid(False, axis="y")
    sns.despine(ax=axes)
