"""The paper's licence filter for code: only repositories under MIT or Apache-2.0.

Neither RepoBench nor Long Code Arena says what licence a repository has, so that the filter needs a
file: YAML, a line a repository, ``owner/name: SPDX-id``. Options of an adapter that uses it:

    licences_file: Path of that file, relative to where the study runs.
    licences_sha256: Its sha256. It makes an edit of the file a change of the study.
    licences_allowed: SPDX ids that are kept.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


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


def licence_fault(licence: str | None, options: Mapping[str, Any]) -> str | None:
    """Say in one word why a repository is left out, or None: it may be used."""
    if licence is None:
        return "licence_unknown"
    return None if licence in options["licences_allowed"] else "licence_not_allowed"
