"""Rows of parquet and JSON files, by path, with their types checked.

The files are read with the ``datasets`` library: no loading script runs, and only the columns that
an adapter names reach it.
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.parquet_rows import read_parquet_rows

ColumnType = type | tuple[type, ...]


def read_table(
    source: str, path: Path, columns: Mapping[str, ColumnType]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row's place (for messages) and its named columns, in the file's order.

    Args:
        source: Name of the source, for messages.
        path: ``*.parquet``, or JSON (one array, or an object a line; gzipped if it ends in
            ``.gz``).
        columns: Type, or types, of each column to read; the file may have more columns.

    Raises:
        ValueError: The file cannot be read, a column is not there, or a row has another type in
            one; the message names the source, the file, and the columns or the type found.
    """
    if path.suffix == ".parquet":
        rows = read_parquet_rows(source, path, list(columns))
    else:
        rows = _read_json_rows(source, path)
    for number, row in enumerate(rows, start=1):
        missing = [name for name in columns if name not in row]
        if missing:
            raise ValueError(
                f"source {source}: {path.name} has no column {', '.join(missing)}; "
                f"found {', '.join(row)}; check the revision"
            )
        place = f"source {source}, {path.name} row {number}"
        for name, expected in columns.items():
            if not isinstance(row[name], expected):
                raise ValueError(
                    f"{place}: column {name} is {_names(type(row[name]))}, expected "
                    f"{_names(expected)}; check the revision, or fetch the file again"
                )
        yield place, {name: row[name] for name in columns}


def _read_json_rows(source: str, path: Path) -> Iterator[dict[str, Any]]:
    from datasets import IterableDataset

    # Not `load_dataset`, and an empty cache folder: see `read_parquet_rows`.
    with tempfile.TemporaryDirectory() as cache:
        try:
            yield from IterableDataset.from_json(str(path), cache_dir=cache)
        except Exception as error:  # the library raises its readers' own, of many kinds
            first_line = next(iter(str(error).splitlines()), repr(error))
            raise ValueError(
                f"source {source}: {path.name} is no table of JSON ({first_line}); fetch it again"
            ) from error


def _names(types: ColumnType) -> str:
    kinds = types if isinstance(types, tuple) else (types,)
    return " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
