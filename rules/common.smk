"""
The study, composed once per parse, and the functions that rules ask about it.

REQUIRED INPUTS:
    config/workflow.yaml    experiment and overrides
    config/                 the study itself

Every file below results/ and resources/ whose name ends in ten hex digits is named after everything
that can change it. Files with plain names hang on results/plan/, see rule write_plan.
"""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from speedstudy.fingerprint import fingerprint
from speedstudy.ids import ID_PATTERN, canonical, short_hash
from speedstudy.plan import expand as expand_study
from speedstudy.records import read_cell
from speedstudy.study import load_study

try:
    STUDY = load_study(
        Path(workflow.basedir) / "config",
        overrides=[f"experiment={config['experiment']}", *config["hydra"]],
    )
    PLAN = expand_study(STUDY)
except ValueError as error:
    raise WorkflowError(str(error))

HF_MODELS = [model for model in PLAN.data.models if "--hf--" in model]
IDS = {"random", "real"}
FIGURES = ["results/pareto.pdf", "results/acceptance.pdf"]
if {load.workload.ids for load in STUDY.loads.values()} == IDS:
    FIGURES.append("results/random_vs_real.pdf")

# What the plainly named outputs are made from, a slice of the study and the code each.
SLICES = {
    "aggregate": {
        "cells": [cell.rpartition("--")[2] for cell in PLAN.cells],
        "code": fingerprint("speedstudy.aggregate"),
    },
    "check_lossless": {
        "cells": [cell.rpartition("--")[2] for cell in PLAN.cells],
        "code": fingerprint("speedstudy.check_lossless"),
    },
    "write_study": STUDY.model_dump(mode="json"),
    **{
        name: {
            "figure": getattr(STUDY.figure, name.removeprefix("plot_")).model_dump(),
            "dpi": STUDY.figure.dpi,
            "title": STUDY.title,
            "code": fingerprint(f"speedstudy.figures.{name}"),
        }
        for name in ("plot_pareto", "plot_acceptance", "plot_random_vs_real")
    },
}


wildcard_constraints:
    artifact=ID_PATTERN,
    candidates=ID_PATTERN,
    embeddings=ID_PATTERN,
    selected=ID_PATTERN,
    bucket=ID_PATTERN,
    model=ID_PATTERN,
    workload=ID_PATTERN,
    cell=ID_PATTERN,
    slice="[a-z_]+",
    digest="[0-9a-f]{10}",


def slice_json(name):
    """Return the canonical JSON of one entry of SLICES."""
    return canonical(SLICES[name])


def plan_file(name):
    """Return the path whose name holds the hash of one entry of SLICES."""
    return f"results/plan/{name}--{short_hash(SLICES[name])}.json"


def node_json(nodes, id_):
    """Return the canonical JSON of a node's configuration."""
    return canonical(nodes[id_].cfg)


def need_paths(pattern, nodes, id_, among):
    """Return the paths of those needs of a node that are among some nodes, in order."""
    return [pattern.format(need) for need in nodes[id_].needs if need in among]


def collect_code(wildcards):
    """Return the fingerprint of collection and of the source's own adapter."""
    adapter = PLAN.data.candidates[wildcards.candidates].cfg["adapter"]
    return fingerprint("speedstudy.collect", f"speedstudy.collect.{adapter}")


def report_failed_cells():
    """Fail the run, with its outputs kept, when a cell of the study failed."""
    failed = [
        cell
        for cell in PLAN.cells
        if (Path("results/cells") / cell / "cell.json").is_file()
        and read_cell(Path("results/cells") / cell)["status"] == "failed"
    ]
    if failed:
        raise WorkflowError(
            f"{len(failed)} of {len(PLAN.cells)} cells failed; tables and figures are drawn from "
            f"the others and `make study` tries these again: {', '.join(failed)}. "
            "The reason is in results/cells/<cell>/cell.json"
        )
