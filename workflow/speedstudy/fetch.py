"""Fetch one pinned artifact; with ``collect`` the only stage that may touch a network.

Needs the artifact's slice of the configuration; leaves its files and ``manifest.json``.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from speedstudy.artifacts import MANIFEST, MIRROR_VARIABLE, fetch
from speedstudy.data_lock import LOCK, lock_key, pinned_sums, read_lock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy fetch``."""
    parser.add_argument("--config", type=json.loads, required=True, help="the artifact, as JSON")
    parser.add_argument("--name", required=True, help="what messages call it")
    parser.add_argument(
        "--out", type=Path, required=True, help=f"{MANIFEST} to write; the files go beside it"
    )
    parser.add_argument("--lock", type=Path, default=LOCK, help="known sums of fetched files")
    parser.add_argument(
        "--root", type=Path, default=Path(), help="what a `file` artifact's path is relative to"
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy fetch``; returns the manifest."""
    if arguments.out.name != MANIFEST:
        raise ValueError(f"--out {arguments.out}: give the path of a {MANIFEST}")
    artifact = arguments.config
    if lock_key(artifact) is not None:
        artifact = {**artifact, "sha256": pinned_sums(artifact, read_lock(arguments.lock))}
    mirror = os.environ.get(MIRROR_VARIABLE)
    return fetch(
        artifact,
        arguments.name,
        arguments.out.parent,
        mirror=Path(mirror) if mirror else None,
        project_root=arguments.root,
    )
