"""What a study goes without because a source that may be skipped could not be had.

A source with ``on_missing: skip`` never changes the graph: its stage leaves an empty file that says
so, and the note travels in the metadata of the parquet files down to the record of every cell. No
note means that every source was there. This module imports nothing of ours.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_KEY = b"speedstudy.coverage"

Note = Mapping[str, Any]
"""JSON. Of a source: ``source``, ``reason`` and ``categories`` (what it would have given). Of
prompts: ``missing``, the reason by source, and ``categories``, those that a missing source would
have added to, with ``wanted``, ``pool`` and ``selected`` rows and the ``missing`` sources."""


def write_note(writer: pq.ParquetWriter, note: Note | None) -> None:
    """Add the note to a file that is being written; None leaves it without."""
    if note is not None:
        writer.add_key_value_metadata({_KEY: json.dumps(note)})


def with_note(table: pa.Table, note: Note | None) -> pa.Table:
    """Return the table with the note in its metadata; None leaves it without."""
    return table if note is None else table.replace_schema_metadata({_KEY: json.dumps(note)})


def read_note(path: Path) -> dict[str, Any] | None:
    """Return the note of a parquet file, or None if it has none."""
    metadata = pq.read_metadata(path).metadata or {}
    note: dict[str, Any] | None = json.loads(metadata[_KEY]) if _KEY in metadata else None
    return note


def read_missing(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the notes of those candidate files whose source could not be had."""
    return [note for path in paths if (note := read_note(path)) is not None]


def short_categories(missing: Sequence[Note]) -> dict[str, list[str]]:
    """Return, by category (or tier), the missing sources that would have added to it."""
    short: dict[str, list[str]] = {}
    for note in missing:
        for category in note["categories"]:
            short.setdefault(category, []).append(note["source"])
    return short


def coverage(
    missing: Sequence[Note],
    *,
    wanted: Mapping[str, int],
    pool: Mapping[str, int],
    selected: Mapping[str, int],
) -> dict[str, Any] | None:
    """Return the note of selected prompts, or None if no source is missing.

    Args:
        missing: From ``read_missing``.
        wanted: Rows that the study asks for, by category.
        pool: Rows that there were to choose from; none for a category that is not in it.
        selected: Rows chosen; likewise.
    """
    if not missing:
        return None
    return {
        "missing": {note["source"]: note["reason"] for note in missing},
        "categories": {
            category: {
                "wanted": wanted[category],
                "pool": pool.get(category, 0),
                "selected": selected.get(category, 0),
                "missing": sources,
            }
            for category, sources in short_categories(missing).items()
            if category in wanted
        },
    }


def in_words(note: Note | None) -> str | None:
    """Say a note of prompts in one line, for tables and figures; None if nothing is missing.

    For example ``without hle: stem 6 of 80 (pool 6), math 63 of 80 (pool 63)``.
    """
    if note is None:
        return None
    counts = ", ".join(
        f"{category} {count['selected']} of {count['wanted']} (pool {count['pool']})"
        for category, count in note["categories"].items()
    )
    return f"without {', '.join(note['missing'])}" + (f": {counts}" if counts else "")
