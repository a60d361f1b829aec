"""The paper's licence filter for code: only repositories under MIT or Apache-2.0.

Neither RepoBench nor Long Code Arena says what licence a repository has, so that the filter needs a
file: YAML, a line a repository, ``owner/name: SPDX-id``. Options of an adapter that uses it:

    licences_file: Path of that file, relative to where the study runs.
    licences_sha256: Its sha256. It makes an edit of the file a change of the study.
    licences_allowed: SPDX ids that are kept.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from speedstudy.collect.candidates import Dropped
from speedstudy.collect.table_files import ColumnType, read_table


@dataclass(frozen=True, kw_only=True)
class LicensedRow:
    """A row whose repository may be used.

    Attributes:
        row: Its columns.
        repo: ``owner/name``.
        src_id: Its own key within the source.
        licence: SPDX id.
    """

    row: Mapping[str, Any]
    repo: str
    src_id: str
    licence: str


def read_licensed(
    source: str,
    files: Mapping[str, Path],
    options: Mapping[str, Any],
    columns: Mapping[str, ColumnType],
    identify: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> Iterator[LicensedRow | Dropped]:
    """Yield the rows of every file, those of repositories without an allowed licence as dropped.

    Args:
        source: Name of the source.
        files: Its files by name.
        options: The adapter's own.
        columns: See ``read_table``.
        identify: Gives repository and ``src_id`` of a row.

    Raises:
        ValueError: A file lacks a column, or the file of licences cannot be used.
    """
    licences = read_licences(source, options)
    for path in files.values():
        for _, row in read_table(source, path, columns):
            repo, src_id = identify(row)
            licence = licences.get(repo.lower())
            if licence is None:
                yield Dropped(src_id=src_id, reason="licence_unknown")
            elif licence not in options["licences_allowed"]:
                yield Dropped(src_id=src_id, reason="licence_not_allowed")
            else:
                yield LicensedRow(row=row, repo=repo, src_id=src_id, licence=licence)


def read_licences(source: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the SPDX id by repository, names in lower case.

    Raises:
        ValueError: The file is missing, has another sum, or is no such mapping.
    """
    path = Path(options["licences_file"])
    if not path.is_file():
        raise ValueError(
            f"source {source}: licences_file {path} is not there; write one line a repository, "
            "`owner/name: SPDX-id`"
        )
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != options["licences_sha256"]:
        raise ValueError(
            f"source {source}: licences_file {path} has sha256 {found}, the option "
            f"licences_sha256 is {options['licences_sha256']}; set it after an edit of the file"
        )
    licences = yaml.safe_load(content) or {}
    if not isinstance(licences, dict) or not all(
        isinstance(part, str) for item in licences.items() for part in item
    ):
        raise ValueError(f"source {source}: {path} must map `owner/name` to an SPDX id, all text")
    return {repo.lower(): licence for repo, licence in licences.items()}
