"""The lock of fetched data, ``config/data.lock.yaml``: the sha256 of every file by its artifact.

An artifact of GitHub or of a hub is pinned by its commit, but no file's sum can be known before
somebody has fetched it. ``speedstudy lock-data`` writes down what was fetched; from then on
``fetch`` refuses a file with another sum, wherever it comes from (mirror, proxy, cache). A wheel's
sum is part of its configuration, and so is a local file's.

The lock enters no hash: the commit in the configuration already says which content is meant, so
adding a sum must not repeat a measurement, and a wrong one stops the run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

LOCK = Path("config/data.lock.yaml")
HEADER = """\
# sha256 of fetched files by artifact. `speedstudy lock-data` adds what was fetched, `fetch` refuses
# a file with another sum. A line that is meant to change is deleted by hand and locked again.
"""

Lock = dict[str, dict[str, str]]
"""Sums by artifact (``kind:owner/name@commit``) and file."""


def lock_key(artifact: Mapping[str, Any]) -> str | None:
    """Return the artifact's name in the lock; None for what it does not hold."""
    if artifact["kind"] not in ("github", "hub") or artifact["revision"] is None:
        return None
    return f"{artifact['kind']}:{artifact['repo']}@{artifact['revision']}"


def read_lock(path: Path) -> Lock:
    """Read the lock; empty if there is no such file.

    Raises:
        ValueError: The file is no map of artifacts to maps of files to sums.
    """
    if not path.is_file():
        return {}
    try:
        lock = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: no YAML: {' '.join(str(error).split())}") from error
    entries = lock.values() if isinstance(lock, dict) else [None]
    if not all(isinstance(files, dict) for files in entries):
        raise ValueError(
            f"{path}: expected a map of artifacts to files; see `speedstudy lock-data`"
        )
    return {str(key): dict(files) for key, files in lock.items()}


def write_lock(path: Path, lock: Lock) -> None:
    """Write the lock, sorted; it appears whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(HEADER + yaml.safe_dump(lock, width=1000), encoding="utf-8")
    temporary.replace(path)


def pinned_sums(artifact: Mapping[str, Any], lock: Lock) -> dict[str, str]:
    """Return the known sums of an artifact's files: its own and those of the lock.

    Raises:
        ValueError: Configuration and lock contradict each other.
    """
    own: dict[str, str] = dict(artifact.get("sha256") or {})
    locked = lock.get(lock_key(artifact) or "", {})
    for file, sum_ in own.items():
        if locked.get(file, sum_) != sum_:
            raise ValueError(
                f"{lock_key(artifact)}/{file}: the configuration pins sha256 {sum_}, the lock "
                f"{locked[file]}; delete the wrong one"
            )
    wanted = {file: sum_ for file, sum_ in locked.items() if file in artifact["files"]}
    return {**wanted, **own}
