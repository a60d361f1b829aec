"""Write ``results/study.json``: the resolved study, versions, git commit and hardware."""

import argparse
import json
from pathlib import Path
from typing import Any

from speedstudy import versions
from speedstudy.environment import hardware, software
from speedstudy.expand import expand
from speedstudy.records import write_json
from speedstudy.schema.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the resolved study, as JSON"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the file; returns what it holds."""
    study = arguments.config
    plan = expand(Study.model_validate(study))
    content = {
        "study": study,
        "cells": list(plan.cells),
        "impossible": [vars(one) for one in plan.impossible],
        "versions": {
            name.lower(): value for name, value in vars(versions).items() if name.isupper()
        },
        "software": software(),
        "hardware": hardware(),
    }
    write_json(arguments.out, content)
    return content
