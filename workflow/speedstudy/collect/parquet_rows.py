"""Parquet files of a source, streamed: only the wanted columns, only a batch in memory."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def read_parquet_rows(source: str, path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, each a dict of ``columns``, in the file's order.

    Raises:
        ValueError: The file is no parquet, or lacks a column; the message names the source and
            the columns found.
    """
    try:
        found = pq.read_schema(path).names
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"source {source}: {path} is no parquet file ({error}); fetch it again"
        ) from None
    missing = [name for name in columns if name not in found]
    if missing:
        raise ValueError(
            f"source {source}: {path.name} has no column {', '.join(missing)}; "
            f"found {', '.join(found)}; check the revision"
        )
    from datasets import IterableDataset

    # Not `load_dataset`, which sends a request to count downloads even for a local file. The empty
    # cache folder is for a lock that the library takes there, even where it caches nothing.
    with tempfile.TemporaryDirectory() as cache:
        yield from IterableDataset.from_parquet(str(path), columns=list(columns), cache_dir=cache)
