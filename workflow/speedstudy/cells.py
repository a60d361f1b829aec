"""A study's finished cells: who they are, and which may be compared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedstudy.coverage import in_words
from speedstudy.metrics.steps import has_drafter
from speedstudy.records import read_cell

COMPARED_PARTS = ("engine", "target", "load", "sampling", "repeat")


@dataclass(frozen=True)
class Cell:
    """One cell's directory and its ``cell.json``."""

    directory: Path
    record: dict[str, Any]

    @property
    def cell_id(self) -> str:
        """The cell's id."""
        return str(self.record["cell_id"])

    @property
    def failed(self) -> bool:
        """Whether the measurement failed; its numbers are then null."""
        return bool(self.record["status"] != "ok")

    @property
    def has_drafter(self) -> bool:
        """Whether it ran with a drafter."""
        return has_drafter(self.record)

    @property
    def is_greedy(self) -> bool:
        """Whether it decoded greedily, so that its replies can be compared token by token."""
        return bool(self.record["cell"]["sampling"]["temperature"] == 0)

    @property
    def workload(self) -> str:
        """Name of the workload's file."""
        return str(self.record["workload"]["name"])

    @property
    def digest(self) -> str:
        """Digest of the prompts that were sent."""
        return str(self.record["workload"]["digest"])

    def comparison_key(self, *free: str) -> str:
        """Return what two cells must share to be compared: all but the drafter and what is free.

        Args:
            free: Parts of a cell, or ``concurrency`` of its load, that may differ.
        """
        cell = self.record["cell"]
        parts = {name: cell.get(name) for name in COMPARED_PARTS if name not in free}
        parts["load"] = {name: one for name, one in cell["load"].items() if name not in free}
        return json.dumps(parts, sort_keys=True)

    def identity(self) -> dict[str, Any]:
        """Return the identity columns."""
        cell, engine = self.record["cell"], self.record.get("engine") or {}
        drafter, load, sampling = cell["drafter"], cell["load"], cell["sampling"]
        workload = load["workload"]
        return {
            "cell_id": self.cell_id,
            "engine": cell["engine"]["name"],
            "engine_version": engine.get("version") or cell["engine"].get("version"),
            "target": cell["target"]["name"],
            "drafter": drafter.get("name"),
            "method": drafter["method"],
            "k": drafter.get("k"),
            "load": load["name"],
            "workload": workload.get("bucket") or workload["kind"],
            "ids": workload.get("ids", "real"),
            "concurrency": load["concurrency"],
            "max_tokens": load["max_tokens"],
            "temperature": sampling["temperature"],
            "seed": sampling.get("seed"),
            "repeat": cell["repeat"],
            "coverage": in_words(self.record["workload"].get("coverage")),
        }


def comparable(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group cells that differ only in the drafter, the one without a drafter first.

    Raises:
        ValueError: A cell comes twice, or two cells of a group have no drafter.
    """
    groups: dict[str, list[Cell]] = {}
    seen: set[str] = set()
    for cell in cells:
        if cell.cell_id in seen:
            raise ValueError(f"cell {cell.cell_id} comes twice; give each directory once")
        seen.add(cell.cell_id)
        groups.setdefault(cell.comparison_key(), []).append(cell)
    for group in groups.values():
        baselines = [cell for cell in group if not cell.has_drafter]
        if len(baselines) > 1:
            raise ValueError(
                f"{names(baselines)}: cells without a drafter at the same engine, target, load, "
                "sampling and repeat; leave one of them"
            )
    return [sorted(group, key=lambda cell: cell.has_drafter) for group in groups.values()]


def by_concurrency(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group cells that differ only in the requests in flight, the fewest first."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        drafter = json.dumps(cell.record["cell"]["drafter"], sort_keys=True)
        groups.setdefault((cell.comparison_key("concurrency"), drafter), []).append(cell)
    return [
        sorted(group, key=lambda cell: int(cell.record["cell"]["load"]["concurrency"]))
        for group in groups.values()
    ]


def names(cells: Sequence[Cell]) -> str:
    """Return the cells' ids, comma-separated."""
    return ", ".join(cell.cell_id for cell in cells)


def read_cells(folder: Path, hashes: Sequence[str]) -> list[Cell]:
    """Read the records of cells by the hashes that their ids end in, in that order.

    Raises:
        ValueError: The folder or a cell is not there, or a cell did not finish.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder of cells; run the study first")
    by_hash = {path.name.rpartition("--")[2]: path for path in folder.iterdir()}
    missing = [one for one in hashes if one not in by_hash]
    if missing:
        raise ValueError(f"{folder}: no cell {', '.join(missing)}; run the study first")
    return [Cell(by_hash[one], read_cell(by_hash[one])) for one in hashes]
