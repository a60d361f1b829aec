"""Files of one JSON object a line, plain or gzipped, as most sources ship them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speedstudy.collect.json_file import check_columns


def read_json_lines(
    source: str, path: Path, columns: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's place (for messages) and its object; blank lines are skipped.

    Args:
        source: Name of the source, for messages.
        path: The file; gzipped if its name ends in ``.gz``.
        columns: Keys that every object must have; it may have more.

    Raises:
        ValueError: A line is no JSON object in UTF-8, or lacks a column; the message names the
            source, the file, the line and the columns found.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"source {source}: {path}, line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{place}: no JSON ({error}); fetch the file again") from None
            check_columns(place, row, columns)
            yield place, row
