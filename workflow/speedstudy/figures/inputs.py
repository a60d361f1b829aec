"""What the figures read: their slice of the study and its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How one figure is drawn.

    Attributes:
        width_in: Width of the canvas in inches.
        height_in: Height of the canvas in inches.
        dpi: Resolution of the .png.
        title: The study's title.
    """

    width_in: float
    height_in: float
    dpi: int
    title: str


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Return the settings in a figure's slice of the study.

    Raises:
        ValueError: It lacks a key.
    """
    try:
        return Settings(
            width_in=float(config["figure"]["width_in"]),
            height_in=float(config["figure"]["height_in"]),
            dpi=int(config["dpi"]),
            title=str(config["title"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"--config: needs figure.width_in, figure.height_in, dpi and title; {error!r}"
        ) from error


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read those columns of a table of the study, .parquet or .csv.

    Raises:
        ValueError: The file or a column is missing; the message names it.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; snakemake makes the tables")
    table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(
            f"{path}: no column {', '.join(missing)}; delete it, snakemake makes it again"
        )
    return table[list(columns)]


def drafter_label(drafter: str, method: str, k: int) -> str:
    """Return a drafter as figures name it: ``no drafter`` or, for example, ``ngram k=3``."""
    return "no drafter" if method == "none" else f"{drafter} k={k}"


def with_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column ``label`` that names each row's drafter."""
    labels = [
        drafter_label(drafter, method, int(k))
        for drafter, method, k in zip(table["drafter"], table["method"], table["k"], strict=True)
    ]
    return table.assign(label=pd.Series(labels, index=table.index, dtype=object))
