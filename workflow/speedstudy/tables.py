"""Tables that pass between the data stages: parquet files of rows with an id.

Every stage reads its inputs in the order of the ids, so that neither the order of the files nor
the order of the rows within them can change a result. This module imports nothing of ours.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pandas as pd

TURN_SEPARATOR = "\n\n"


def read_rows(paths: Sequence[Path], id_column: str, columns: Sequence[str] = ()) -> pa.Table:
    """Read parquet files as one table with all their columns, sorted by ``id_column``.

    A column that only some of the files have is null in the rows of the others.

    Raises:
        ValueError: There is no file, ``id_column`` or one of ``columns`` is missing from a file,
            or an id occurs twice; the message names the file or the id.
    """
    if not paths:
        raise ValueError("no input table was given")
    tables = [_read(path, (id_column, *columns)) for path in paths]
    table = pa.concat_tables(tables, promote_options="permissive").sort_by(id_column)
    ids = table.column(id_column).to_pylist()
    for before, after in itertools.pairwise(ids):
        if before == after:
            raise ValueError(f"{id_column} {after!r} occurs twice in {', '.join(map(str, paths))}")
    return table


def read_rows_in_order(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read these columns of one parquet file, in its own order.

    Raises:
        ValueError: One of the columns is missing; the message names it.
    """
    rows: list[dict[str, Any]] = _read(path, columns).select(list(columns)).to_pylist()
    return rows


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    table = pq.read_table(path)
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ValueError(
            f"{path}: no column {', '.join(missing)}; found {', '.join(table.column_names)}"
        )
    return table


def write_rows(path: Path, table: pa.Table) -> None:
    """Write the table as parquet; the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    pq.write_table(table, temporary)
    temporary.replace(path)


def write_csv(path: Path, table: "pd.DataFrame") -> None:
    """Write the table as CSV without its index; the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    table.to_csv(temporary, index=False, lineterminator="\n")
    temporary.replace(path)


def read_embeddings(paths: Sequence[Path]) -> dict[str, npt.NDArray[np.float32]]:
    """Read files of ``write_embeddings`` as a map from id to its row.

    Raises:
        ValueError: A file is missing or not of that layout; the message names it.
    """
    rows: dict[str, npt.NDArray[np.float32]] = {}
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such file; run speedstudy embed")
        file = np.load(path)
        if not isinstance(file, np.lib.npyio.NpzFile) or set(file) != {"ids", "embeddings"}:
            raise ValueError(f"{path}: not written by speedstudy embed (ids and embeddings)")
        with file:
            rows.update(zip(file["ids"].tolist(), file["embeddings"], strict=True))
    return rows


def write_embeddings(path: Path, ids: Sequence[str], embeddings: npt.NDArray[np.float32]) -> None:
    """Write ids and their rows as .npz; the file appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.savez(file, ids=np.array(ids, dtype=np.str_), embeddings=embeddings)
    temporary.replace(path)


def joined_turns(row: Mapping[str, object]) -> str:
    """Return the text that stands for a row: its turns, joined by blank lines.

    The paper does not say how a conversation becomes one text; this is our rule.
    """
    turns = row["turns"]
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        raise ValueError(f"row {row.get('question_id')!r}: turns must be a list of texts")
    return TURN_SEPARATOR.join(turns)
