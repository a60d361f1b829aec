"""Reads what ``collect`` wrote."""

from pathlib import Path

import pyarrow.parquet as pq

from speedstudy.collect.candidates import Candidate, LongText


def read_candidates(path: Path) -> list[Candidate]:
    """The candidates of a file, in its order; ``multiturn`` follows from the turns."""
    rows = pq.read_table(path).drop_columns(["multiturn"]).to_pylist()
    return [Candidate(**row | {"turns": tuple(row["turns"])}) for row in rows]


def read_long_texts(path: Path) -> list[LongText]:
    """The long texts of a file, in its order."""
    return [LongText(**row) for row in pq.read_table(path).to_pylist()]
