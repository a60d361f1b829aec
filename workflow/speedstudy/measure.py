"""Compute every metric from one record: a folder with ``requests.parquet`` and ``cell.json``."""

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speedstudy.metrics.measure import measure
from speedstudy.records import read_cell, read_requests

LOG = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder of the record")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the metrics; ``docs/metrics.md`` says what they mean.

    Notes on the acceptance are logged.

    Raises:
        ValueError: The folder holds no finished record.
    """
    directory: Path = arguments.dir
    cell = read_cell(directory)
    requests = directory / "requests.parquet"
    if not requests.is_file():
        raise ValueError(f"{requests}: no such file; the record is not whole, measure it again")
    metrics = measure(read_requests(requests), cell)
    for note in metrics["acceptance"]["notes"]:
        LOG.warning("%s", note)
    return metrics


def text(metrics: Mapping[str, Any]) -> str:
    """Return the few numbers that are asked for most; ``--json`` gives all."""
    pooled, rates = metrics["acceptance"]["pooled"], metrics["throughput"]
    shown = (
        ("requests ok", metrics["requests"]["ok"], f"of {metrics['requests']['total']}"),
        ("acceptance length", pooled["al"], "tokens/step"),
        ("user rate", rates["user_tok_per_s"], "tokens/s"),
        ("output rate", rates["output_tok_per_s"], "tokens/s"),
        ("TTFT, median", metrics["latency"]["ttft_ms"]["p50"], "ms"),
    )
    return "\n".join(
        f"{name:18} {'unknown' if value is None else f'{value:.4g} {unit}'}"
        for name, value, unit in shown
    )
