"""The look of the figures: drafters, canvas, what stands around the panels, saving.

Every figure has its title and legend above the panels and small print below them, so that nothing
lies over the data. Drafters differ in colour, lightness, marker and line, so that a figure reads
for the colour-blind and in grey print.
"""

import itertools
import logging
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from speedstudy.figures.inputs import Settings, with_labels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

# Paul Tol's high- and medium-contrast schemes, ordered so that neighbours differ in lightness.
NO_DRAFTER_COLOUR = "#000000"
COLOURS = ("#004488", "#BB5566", "#DDAA33", "#6699CC", "#994455", "#997700", "#EE99AA")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 4)))

SMALL_PRINT_PT = 7.0
LINE_IN = SMALL_PRINT_PT * 1.35 / 72
CHARACTER_IN = SMALL_PRINT_PT * 0.57 / 72  # mean width of DejaVu Sans
EDGE_IN = 0.1
MOST_NOTES = 4


@dataclass(frozen=True)
class Look:
    """How one drafter is drawn."""

    colour: str
    marker: str
    line: Any


def looks(cells: pd.DataFrame) -> dict[str, Look]:
    """Return each drafter's look by its label, in the order of the table, ``none`` first.

    The same drafters in the same order look the same in every figure. The looks repeat after
    ``len(COLOURS)`` drafters.
    """
    labelled = with_labels(cells)
    without = labelled["method"] == "none"
    result = {label: Look(NO_DRAFTER_COLOUR, "o", "-") for label in labelled[without]["label"]}
    for position, label in enumerate(labelled[~without]["label"].unique()):
        result[label] = Look(
            COLOURS[position % len(COLOURS)],
            MARKERS[1 + position % len(COLOURS)],
            LINES[1 + position % len(COLOURS)],
        )
    return result


def new_figure(settings: Settings) -> "Figure":
    """Return an empty figure on the canvas of the settings; open it inside ``theme``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(settings.width_in, settings.height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def theme() -> Any:
    """Return a context in which figures are drawn in our style, whatever the user's own is."""
    import matplotlib as mpl
    import seaborn as sns

    own = {
        "font.family": "DejaVu Sans",
        "axes.titlesize": 8.5,
        "axes.titlelocation": "left",
        "axes.labelsize": 8,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "legend.fontsize": 8,
        "grid.color": "0.9",
        "axes.edgecolor": "0.3",
        "hatch.linewidth": 0.6,
        "pdf.fonttype": 42,  # text stays text in the .pdf
    }
    return mpl.rc_context(
        {**mpl.rcParamsDefault, **sns.plotting_context("paper"), **sns.axes_style("whitegrid")}
        | own
    )


def marker_of(look: Look, engine: str, engines: Sequence[str]) -> str:
    """Return a point's marker: the drafter's, or the engine's where there are several engines."""
    return look.marker if len(engines) < 2 else MARKERS[engines.index(engine) % len(MARKERS)]


def legend_handles(styles: Mapping[str, Look], engines: Sequence[str]) -> "list[Artist]":
    """Return the legend's entries: a drafter each, then an engine each where there are several."""
    from matplotlib.lines import Line2D

    handles: list[Artist] = [
        Line2D(
            [], [], color=look.colour, linestyle=look.line, label=label, markersize=6,
            linewidth=1.5, marker=look.marker if len(engines) < 2 else "",
        )
        for label, look in styles.items()
    ]  # fmt: skip
    if len(engines) > 1:
        for engine, marker in zip(engines, itertools.cycle(MARKERS), strict=False):
            handles.append(Line2D([], [], color="0.4", marker=marker, linestyle="", label=engine))
    return handles


def frame(
    figure: "Figure",
    settings: Settings,
    title: str,
    handles: Sequence["Artist"],
    definitions: Sequence[str],
    notes: Sequence[str],
) -> None:
    """Write title and legend above the panels and the small print below; fit the panels between.

    The small print is the definitions, then the notes; of those beyond ``MOST_NOTES`` only the
    number is said.
    """
    width, height = settings.width_in, settings.height_in
    top_in = EDGE_IN
    for text, size, colour in ((settings.title, 11, "black"), (title, 8.5, "0.25")):
        figure.text(
            EDGE_IN / width, 1 - top_in / height, text, fontsize=size, va="top", ha="left",
            color=colour, in_layout=False,
        )  # fmt: skip
        top_in += size * 1.5 / 72
    if handles:
        top_in += _legend(figure, settings, handles, top_in)
    lines = wrap_notes([*definitions, *shorten_notes(notes)], width)
    figure.text(
        EDGE_IN / width, EDGE_IN / height, "\n".join(lines), fontsize=SMALL_PRINT_PT,
        va="bottom", ha="left", color="0.25", linespacing=1.2, in_layout=False,
    )  # fmt: skip
    bottom = (EDGE_IN + LINE_IN * len(lines)) / height
    engine = figure.get_layout_engine()
    assert engine is not None, "new_figure gives every figure a layout"
    engine.set(w_pad=0.08, rect=(0, bottom, 1, 1 - bottom - top_in / height))  # type: ignore[call-arg]


def shorten_notes(notes: Sequence[str]) -> list[str]:
    """Return at most ``MOST_NOTES`` notes, the last one saying how many were left out."""
    if len(notes) <= MOST_NOTES:
        return list(notes)
    kept = notes[: MOST_NOTES - 1]
    return [*kept, f"{len(notes) - len(kept)} more notes like this: see the table of cells."]


def wrap_notes(notes: Sequence[str], width_in: float) -> list[str]:
    """Return the notes as lines that fit the width, each note in at most two lines."""
    characters = int((width_in - 2 * EDGE_IN) / CHARACTER_IN)
    return [
        line
        for note in notes
        for line in textwrap.wrap(
            note, characters, max_lines=2, placeholder=" … (see the table of cells)"
        )
    ]


def _legend(
    figure: "Figure", settings: Settings, handles: Sequence["Artist"], top_in: float
) -> float:
    """Put the legend below ``top_in`` in as few rows as fit; returns its height in inches."""
    available_in = settings.width_in - 2 * EDGE_IN
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=handles, ncols=columns, loc="upper left", frameon=False, borderpad=0.1,
            borderaxespad=0, columnspacing=1.6, handlelength=3.2,
            bbox_to_anchor=(EDGE_IN / settings.width_in, 1 - top_in / settings.height_in),
        )  # fmt: skip
        legend.set_in_layout(False)
        box = legend.get_window_extent()
        if box.width / figure.dpi <= available_in or columns == 1:
            break
        legend.remove()
    return float(box.height / figure.dpi)


def say_empty(figure: "Figure") -> None:
    """Fill the figure with one panel that says that there is nothing to draw."""
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(
        0.5, 0.5, "Nothing to draw: no cell has the values of this figure.",
        ha="center", va="center", fontsize=10, transform=axes.transAxes,
    )  # fmt: skip


def save(figure: "Figure", out: Path, dpi: int) -> list[Path]:
    """Write the figure as ``out`` and as .png beside it; each appears whole or not at all.

    The files hold no time stamp: the same table gives the same bytes.

    Raises:
        ValueError: ``out`` does not end in .pdf.
    """
    if out.suffix != ".pdf":
        raise ValueError(f"--out {out}: name a .pdf, the .png is written beside it")
    out.parent.mkdir(parents=True, exist_ok=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells every glyph it keeps
    written = []
    for path, metadata in ((out, {"CreationDate": None}), (out.with_suffix(".png"), {})):
        temporary = path.with_name(path.name + ".tmp")
        figure.savefig(temporary, format=path.suffix[1:], dpi=dpi, metadata=metadata)
        temporary.replace(path)
        written.append(path)
    return written
