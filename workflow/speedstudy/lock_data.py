"""Write the sums of fetched files into the lock, see ``speedstudy.data_lock``.

Needs the manifests that ``fetch`` left; adds what the lock lacks and changes nothing in it.
"""

import argparse
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from speedstudy.artifacts import MANIFEST
from speedstudy.data_lock import LOCK, Lock, read_lock, write_lock

LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy lock-data``."""
    parser.add_argument(
        "--artifacts", type=Path, default=Path("resources/artifacts"), help="what fetch made"
    )
    parser.add_argument("--lock", type=Path, default=LOCK, help="lock to add to")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy lock-data``; returns how many sums were added, and those known before."""
    if not arguments.artifacts.is_dir():
        raise ValueError(
            f"--artifacts {arguments.artifacts}: no such folder; fetch something first"
        )
    before = read_lock(arguments.lock)
    manifests = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(arguments.artifacts.glob(f"*/{MANIFEST}"))
    ]
    after = add_sums(before, manifests)
    count = sum(map(len, before.values()))
    added = sum(map(len, after.values())) - count
    if added:
        write_lock(arguments.lock, after)
    LOG.info("%d sums added to %s, %d were there", added, arguments.lock, count)
    return {"added": added, "known": count}


def add_sums(lock: Lock, manifests: Iterable[Mapping[str, Any]]) -> Lock:
    """Return the lock with the sums of fetched repository files added.

    Args:
        lock: Sums by artifact and file.
        manifests: From ``fetch``; those of wheels and local files, and skipped ones, add nothing.

    Raises:
        ValueError: A file was fetched with another sum than the locked one.
    """
    result = {key: dict(files) for key, files in lock.items()}
    for manifest in manifests:
        if manifest["kind"] not in ("github", "hub"):
            continue
        for file, entry in manifest["files"].items():
            key = entry["origin"].removesuffix(f"/{file}")
            known = result.setdefault(key, {}).setdefault(file, entry["sha256"])
            if known != entry["sha256"]:
                raise ValueError(
                    f"{key}/{file}: fetched with sha256 {entry['sha256']}, locked with {known}; "
                    "delete its line from the lock if the change is meant, else the fetched copy"
                )
    return result
