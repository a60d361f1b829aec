"""
The study, composed once per parse, and the functions that rules ask about it.

REQUIRED INPUTS:
    config/workflow.yaml    experiment and overrides
    config/                 the study itself

Every file below results/ and resources/ whose name ends in ten hex digits is named after everything
that can change it, so that it is never stale, whatever Snakemake remembers.
"""

from pathlib import Path
from shlex import quote

from snakemake.exceptions import WorkflowError

from speedstudy.fingerprint import fingerprint
from speedstudy.ids import ID_PATTERN, canonical
from speedstudy.expand import expand as expand_study, unpinned
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
for message in unpinned(PLAN):
    raise WorkflowError(message)

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

# The cells that will join their session's engine. One that is recorded needs no engine, and if it
# hung on one it would be measured again whenever a load is added to its session. Should it be
# measured again all the same (--forceall), it starts an engine of its own.
JOINING = {
    cell
    for cell in PLAN.cells
    if STUDY.server.reuse == "session" and not Path(f"results/cells/{cell}/cell.json").is_file()
}

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
    session=ID_PATTERN,
    cell=ID_PATTERN,


def remove_other_figures():
    """Remove the figures of an earlier study that this one does not draw."""
    for name in type(STUDY.figure).model_fields:
        pdf = Path("results") / f"{name}.pdf"
        if str(pdf) not in FIGURES:
            pdf.unlink(missing_ok=True)
            pdf.with_suffix(".png").unlink(missing_ok=True)


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


def converter_flag(id_):
    """Return the flag that says whose llama.cpp makes a GGUF, for a model that it makes."""
    if "llamacpp" not in PLAN.data.models[id_].cfg:
        return ""
    engine = next(one.engine for one in PLAN.cells.values() if id_ in (one.model, one.draft_model))
    return f"--engine-command {quote(canonical(engine.command))}"


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


def engine_models(one):
    """Return the models of a cell or session; `ancient`, since their names tell their content."""
    models = {"model": ancient(f"resources/models/{one.model}/config.json")}
    if one.draft_model:
        models["draft_model"] = ancient(f"resources/models/{one.draft_model}/config.json")
    return models


def cell_input(wildcards):
    """Return what a cell reads, and where its session's engine is told.

    Workloads are named after their content's recipe, so a newer file of the same name means the
    same prompts: it orders the jobs but never repeats a measurement. `aggregate` compares digests.
    """
    cell = PLAN.cells[wildcards.cell]
    workload = f"results/workloads/{cell.workload}"
    files = {
        "workload": ancient(f"{workload}.parquet"),
        "warmup": ancient(f"{workload}.warmup.parquet"),
        **engine_models(cell),
    }
    if cell.id in JOINING:
        files["endpoint"] = f"results/sessions/{cell.session}/endpoint.json"
    return files


def session_input(wildcards):
    """Return what the supervisor of a session reads."""
    session = PLAN.sessions[wildcards.session]
    workload = ancient(f"results/workloads/{session.workload}.parquet")
    return {"workload": workload, **engine_models(session)}


def engine_flags(one, input):
    """Return the flags that say which engine to start: paths, and what measures nothing."""
    flags = f"--model {Path(input.model).parent}"
    if one.draft_model:
        flags += f" --draft-model {Path(input.draft_model).parent}"
    if one.engine.command:
        flags += f" --engine-command {quote(canonical(one.engine.command))}"
    return flags


def memory_flag(target):
    """Return the flag that says how much GPU memory a target needs, where that is known."""
    return "" if target.memory_gib is None else f"--target-memory-gib {target.memory_gib:g}"


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
