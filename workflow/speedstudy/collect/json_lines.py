"""Files of one JSON object a line, plain or gzipped, as most sources ship them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_json_lines(
    path: Path, columns: set[str], source: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's place (for messages) and its object; blank lines are skipped.

    Args:
        path: The file; gzipped if its name ends in ``.gz``.
        columns: Keys that every object must have; it may have more.
        source: Named in messages, if given.

    Raises:
        ValueError: A line is no JSON object in UTF-8, or lacks a column; the message names the
            file, the line and the columns found.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            if source is not None:
                place = f"source {source}: {place}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{place}: no JSON ({error}); fetch the file again") from None
            if not isinstance(row, dict) or not columns <= row.keys():
                found = sorted(row) if isinstance(row, dict) else type(row).__name__
                raise ValueError(
                    f"{place}: columns {found}, expected {sorted(columns)}; check the revision"
                )
            yield place, row
