"""
The study, composed once per parse, and the functions that rules ask about it.

REQUIRED INPUTS:
    config/workflow.yaml    experiment and overrides
    config/                 the study itself

Every file below results/ and resources/ whose name ends in ten hex digits is named after everything
that can change it, so that it is never stale, whatever Snakemake remembers.
"""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from speedstudy.fingerprint import fingerprint
from speedstudy.ids import ID_PATTERN, canonical
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

DRAFT_MODELS = {cell.draft_model for cell in PLAN.cells.values()}
HF_MODELS = [model for model in PLAN.data.models if "--hf--" in model and model not in DRAFT_MODELS]
IDS = {"random", "real"}
FIGURES = ["results/pareto.pdf", "results/acceptance.pdf"]
if {load.workload.ids for load in STUDY.loads.values()} == IDS:
    FIGURES.append("results/random_vs_real.pdf")
TABLES = ["results/tables/cells.parquet", "results/tables/lossless.csv"]
if PLAN.data.selected:
    FIGURES.append("results/diversity.pdf")
    TABLES += ["results/tables/diversity.csv", "results/tables/describe.csv"]

# Full ids of a large matrix do not fit on a command line.
CELL_HASHES = [cell.rpartition("--")[2] for cell in PLAN.cells]

# Plainly named outputs are up to date by Snakemake's records of the runs that made them.
RECORDS = Path(".snakemake/metadata")
if Path("results/tables/cells.parquet").is_file() and not (
    RECORDS.is_dir() and any(RECORDS.iterdir())
):
    raise WorkflowError(
        "Snakemake's records of what made results/ are lost, so tables and figures could be "
        "stale: run `speedstudy recover`, which has them made anew and keeps every measurement"
    )


wildcard_constraints:
    artifact=ID_PATTERN,
    candidates=ID_PATTERN,
    embeddings=ID_PATTERN,
    selected=ID_PATTERN,
    bucket=ID_PATTERN,
    model=ID_PATTERN,
    workload=ID_PATTERN,
    cell=ID_PATTERN,


def figure_json(name):
    """Return the canonical JSON of how one figure is drawn."""
    size = getattr(STUDY.figure, name).model_dump()
    return canonical({"figure": size, "dpi": STUDY.figure.dpi, "title": STUDY.title})


def node_json(nodes, id_):
    """Return the canonical JSON of a node's configuration."""
    return canonical(nodes[id_].cfg)


def need_paths(pattern, nodes, id_, among):
    """Return the paths of those needs of a node that are among some nodes, in order."""
    return [pattern.format(need) for need in nodes[id_].needs if need in among]


def model_sources(id_):
    """Return the path of the artifact, or of the other format, that a model is made from."""
    artifacts, models = PLAN.data.artifacts, PLAN.data.models
    return [
        *need_paths("resources/artifacts/{}/manifest.json", models, id_, artifacts),
        *need_paths("resources/models/{}/config.json", models, id_, models),
    ]


def selected_needs(pattern, among):
    """Return the paths of what the study's selection was made from that is among some nodes."""
    return [
        path
        for id_ in PLAN.data.selected
        for path in need_paths(pattern, PLAN.data.selected, id_, among)
    ]


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
