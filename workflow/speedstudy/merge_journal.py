"""Make the record of a load that was killed, from the journal that it left.

Needs a record's folder with ``journal`` in it, leaves ``requests.parquet``, then ``cell.json`` with
``status: failed``.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

from speedstudy.client.killed import record_killed_load

LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder of the record")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the record; returns ``{out, requests}``.

    Raises:
        ValueError: There is no journal, the load had not begun, or another version of this program
            wrote it.
    """
    out: Path = arguments.dir
    outcomes = record_killed_load(out)
    LOG.info("%s: %s", out, ", ".join(f"{n} {kind}" for kind, n in outcomes.items() if n))
    return {"out": str(out), "requests": {"total": sum(outcomes.values()), **outcomes}}
