#!/usr/bin/env bash
# Snakemake runs this once in the new environment, from the project's folder.
set -euo pipefail
python -m pip install --no-deps --no-build-isolation --editable .
