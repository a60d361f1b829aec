"""Files that are one JSON value, read whole."""

import json
from pathlib import Path
from typing import Any, TypeVar

Kind = TypeVar("Kind", list[Any], dict[str, Any])


def read_json(source: str, path: Path, kind: type[Kind]) -> Kind:
    """Return the file's value, a list or a dict as asked.

    Raises:
        ValueError: The file is no JSON in UTF-8, or another kind of value; the message names the
            source and the file.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"source {source}: {path}: no JSON ({error}); fetch it again") from None
    if not isinstance(value, kind):
        raise ValueError(
            f"source {source}: {path} holds a {type(value).__name__}, expected a "
            f"{kind.__name__}; check the revision"
        )
    return value


def check_columns(place: str, row: Any, columns: set[str]) -> None:
    """Refuse a row that is no object, or one without all of ``columns``.

    Raises:
        ValueError: The message names the place and the columns found.
    """
    if not isinstance(row, dict) or not columns <= row.keys():
        found = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(
            f"{place}: columns {found}, expected {sorted(columns)}; check the revision"
        )
