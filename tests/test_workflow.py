"""The study end to end on the real engine: what reruns what, kills and failures.

The tests share one finished run of the experiment `ci` and come in an order: those that only ask
what would run, then those that run more.
"""

import json
import os
import signal
import time
from itertools import pairwise

import psutil
import pytest

from speedstudy.records import read_requests

pytestmark = pytest.mark.workflow

PLOTS = {"plot_pareto": 1, "plot_acceptance": 1, "plot_random_vs_real": 1}
TABLES = {"aggregate": 1, "check_lossless": 1, "write_study": 1, **PLOTS}
BUCKETS = ("bucket_1k", "bucket_1k_random")
SELECTION = {"compare_selections": 1, "describe": 1, "plot_diversity": 1}


def test_the_study_gives_its_figures_and_tables(project):
    results = project.directory / "results"
    for name in ("pareto", "acceptance", "random_vs_real", "diversity"):
        assert (results / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (results / "tables" / "cells.csv").is_file()
    study = json.loads((results / "study.json").read_text())
    assert study["study"]["name"] == "ci"
    assert len(study["cells"]) == 8


def test_a_second_run_has_nothing_to_do(project):
    assert project.scheduled() == {}


@pytest.mark.parametrize(
    ("hydra", "rules"),
    [
        pytest.param(
            ["figure.pareto.width_in=12"],
            {"plot_pareto": 1, "write_study": 1},
            id="figure width",
        ),
        pytest.param(
            ["sources.roleplay.version=2"],
            {
                **{"collect": 1, "embed": 1, "select": 1, "tokenize": 1},
                **{"serve_engine": 2, "run_cell": 4},
                **TABLES,
                **SELECTION,
            },
            id="a source of prompts",
        ),
        pytest.param(
            ["sources.python_code.artifact.version=3.6.0"],
            {
                **{"fetch": 1, "collect": 1, "bucket": 1, "tokenize": 2},
                **{"serve_engine": 2, "run_cell": 4},
                **TABLES,
            },
            id="a source's revision",
        ),
        pytest.param(
            ["drafters.ngram_k3.k=4"],
            {"serve_engine": 1, "run_cell": 4, **TABLES},
            id="one drafter's k",
        ),
        pytest.param(
            ["loads.qualitative.concurrency=[1,4,8]"],
            {"serve_engine": 2, "run_cell": 2, **TABLES},
            id="one more concurrency",
        ),
        pytest.param(
            ["loads.qualitative.concurrency=[1,4,8]", "server.reuse=cell"],
            {"run_cell": 2, **TABLES},
            id="one more concurrency, each cell with an engine of its own",
        ),
        pytest.param(["server.reuse=cell"], {"write_study": 1}, id="who starts the engine"),
    ],
)
def test_a_change_of_configuration_reruns_just_what_it_changes(project, hydra, rules):
    assert project.scheduled(hydra=hydra) == rules


@pytest.fixture
def edit(project):
    """Edit a module of the copy and put it back afterwards."""
    originals = {}

    def apply(module, change):
        path = project.directory / "workflow" / "speedstudy" / module
        originals.setdefault(path, path.read_text())
        path.write_text(change(originals[path]))

    yield apply
    for path, text in originals.items():
        path.write_text(text)


@pytest.mark.parametrize("module", ["figures/plot_pareto.py", "select.py", "run_cell.py"])
def test_a_docstring_edit_reruns_nothing(project, edit, module):
    edit(module, lambda text: text.replace('"""', '"""Reworded. ', 1))
    assert project.scheduled() == {}


def test_touched_files_rerun_nothing(project):
    results, code = project.directory / "results", project.directory / "workflow"
    touched = [*(results / "prompts").glob("*.parquet"), code / "speedstudy" / "select.py"]
    before = {path: path.stat() for path in touched}
    for path in touched:
        os.utime(path)
    try:
        assert project.scheduled() == {}
    finally:
        for path, stat in before.items():
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    ("module", "rules"),
    [
        ("figures/plot_pareto.py", {"plot_pareto": 1}),
        ("select.py", {"select": 1, "tokenize": 1, **TABLES, **SELECTION}),
        ("run_cell.py", {}),
    ],
)
def test_an_edit_of_code_reruns_its_stage_but_never_a_measurement(project, edit, module, rules):
    edit(module, lambda text: text + "\nEDITED = True\n")
    assert project.scheduled() == rules


def test_nothing_is_stale_when_snakemakes_own_records_are_lost(project):
    """Measurements stand by their names; tables and figures are made anew, or not at all."""
    lost = project.directory / "lost"
    (project.directory / ".snakemake").rename(lost)
    status, output = project.snakemake("--dry-run")
    assert status != 0
    assert "run `speedstudy recover`" in output

    status, output = project.run("speedstudy", "recover")
    assert status == 0, output
    assert project.scheduled() == {**TABLES, **SELECTION}
    assert project.scheduled(hydra=["drafters.ngram_k3.k=4"]) == {
        "serve_engine": 1,
        "run_cell": 4,
        **TABLES,
        **SELECTION,
    }
    status, output = project.snakemake()
    assert status == 0, output
    assert project.scheduled() == {}


def test_bad_configuration_is_one_line_before_any_job(project):
    status, output = project.snakemake(hydra=["drafters.ngram_k3.k=0"])
    assert status != 0
    assert "k=0 with method ngram; set k to 1 or more" in output
    assert "Traceback" not in output


def test_the_slurm_profile_sends_measurements_to_gpus(project):
    status, output = project.run(
        "snakemake",
        "--workflow-profile",
        "profiles/slurm",
        "--dry-run",
        "--forceall",
        "--config",
        "experiment=ci",
        'hydra=["engines.openvino.gpus=2","+engines.openvino.parallel.tensor=2",'
        '"server.reuse=cell"]',
    )
    assert status == 0, output
    jobs = [block for block in output.split("\n[") if "resources:" in block]
    cells = [job for job in jobs if "rule run_cell:" in job]
    assert len(cells) == 8
    for job in cells:
        assert "slurm_partition=gpu" in job
        assert "runtime=240" in job
        assert "gpu=2" in job
    others = [job for job in jobs if job not in cells]
    assert others
    assert all("slurm_partition=cpu" in job for job in others)


def engine_pid(project, run, folders="cells", seen=()):
    """Wait until a run has an engine for one of the folders that is not in `seen`.

    Returns the name of the cell or session, and the engine's pid.
    """
    results = project.directory / "results"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert run.poll() is None
        for path in results.glob(f"{folders}/*/engine.pid.json"):
            if path.parent.name in seen:
                continue
            try:
                return path.parent.name, json.loads(path.read_text())["engine"]["pid"]
            except (FileNotFoundError, json.JSONDecodeError, KeyError):
                continue
        time.sleep(0.05)
    raise AssertionError("no engine was started")


def alive_in_group(group):
    """Processes of an engine's group, its children among them, that still run."""
    alive = []
    for process in psutil.process_iter(["status", "cmdline"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != "zombie":
                alive.append(process.info["cmdline"])
        except ProcessLookupError:
            continue
    return alive


def records(project):
    """When each cell was measured and how it ended; Snakemake may touch the files themselves."""
    cells = project.directory / "results" / "cells"
    found = {path.parent.name: json.loads(path.read_text()) for path in cells.glob("*/cell.json")}
    return {cell: (record["started_at"], record["status"]) for cell, record in found.items()}


def kill_family(run):
    """Kill a run and all that it has started, at once and for good."""
    family = [*psutil.Process(run.pid).children(recursive=True), psutil.Process(run.pid)]
    for process in family:
        process.send_signal(signal.SIGKILL)
    run.wait(timeout=60)


def recovered(project):
    status, output = project.run("speedstudy", "recover", "--json")
    assert status == 0, output
    return json.loads(output.splitlines()[-1])


# Four small cells of one session, and no figures: these tests are about who runs when.
SMALL = [
    "loads.qualitative.requests=3",
    "loads.bucket_1k.requests=2",
    "loads.bucket_1k_random.requests=2",
    *(f"++loads.{load}.drafters=[ngram_k3]" for load in ("qualitative", *BUCKETS)),
]
CELLS = "results/tables/cells.parquet"


def test_a_killed_run_is_taken_up_where_it_was(project):
    before = records(project)
    hydra = ["drafters.ngram_k3.k=4", "server.reuse=cell", *SMALL]
    run, _ = project.start(*project.snakemake_command(CELLS, hydra=hydra))
    first, _ = engine_pid(project, run)
    killed, engine = engine_pid(project, run, seen=[first])
    finished = records(project)
    assert first in finished
    kill_family(run)

    recovered(project)
    assert alive_in_group(engine) == []
    status, output = project.snakemake(CELLS, hydra=hydra)
    assert status == 0, output
    after = records(project)
    assert {cell: after[cell] for cell in finished} == finished
    assert len(after) == len(before) + 4
    assert all(status == "ok" for _, status in after.values())
    assert killed in after


def cell_record(project, cell):
    return json.loads((project.directory / "results" / "cells" / cell / "cell.json").read_text())


def replies(project, cell):
    turns = read_requests(project.directory / "results" / "cells" / cell / "requests.parquet")
    return {(turn.prompt_id, turn.turn): turn.token_ids for turn in turns}


def test_a_session_measures_what_cells_of_their_own_measure(project):
    """One start serves all loads of a session, one after the other, with the same replies."""
    sessions = {}
    for cell in sorted(records(project)):
        record = cell_record(project, cell)
        if record["engine"]["reused"]:
            sessions.setdefault(record["engine"]["log"], []).append(record)
    assert sorted(map(len, sessions.values())) == [4, 4]
    for session in sessions.values():
        assert len({record["engine"]["startup_s"] for record in session}) == 1
        assert {record["engine"]["max_concurrency"] for record in session} == {4}
        spans = sorted((record["started_at"], record["ended_at"]) for record in session)
        assert all(end < start for (_, end), (start, _) in pairwise(spans))

    cell = next(cell for cell in records(project) if "ngram-k3--qualitative--greedy--c0001" in cell)
    shared = replies(project, cell)
    record = f"results/cells/{cell}/cell.json"
    status, output = project.snakemake(
        record, "--forcerun", "run_cell", hydra=["server.reuse=cell"]
    )
    assert status == 0, output
    assert not cell_record(project, cell)["engine"]["reused"]
    assert replies(project, cell) == shared


def wait_for_records(project, run, before, number):
    """Wait until there are so many records more than before; returns all."""
    deadline = time.monotonic() + 300
    while len(found := records(project)) < len(before) + number:
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_session_outlives_neither_its_engine_nor_its_run(project):
    """Its engine is killed after the first load, then the run that tries the others again."""
    hydra = ["drafters.ngram_k3.k=5", *SMALL]
    before = records(project)
    run, printed = project.start(*project.snakemake_command(CELLS, hydra=hydra))
    _, engine = engine_pid(project, run, "sessions")
    finished = wait_for_records(project, run, before, 1)
    os.kill(engine, signal.SIGKILL)
    assert run.wait(timeout=300) != 0
    assert "3 of 4 cells failed" in printed.read_text()
    after = records(project)
    assert {cell: after[cell] for cell in finished} == finished
    failed = [cell for cell, (_, status) in after.items() if status == "failed"]
    assert len(failed) == 3
    assert all("SIGKILL" in cell_record(project, cell)["reason"] for cell in failed)
    assert sum("before this load" in cell_record(project, cell)["reason"] for cell in failed) >= 2

    assert sorted(recovered(project)["failed_cells"]) == sorted(failed)
    run, _ = project.start(*project.snakemake_command(CELLS, hydra=hydra))
    _, engine = engine_pid(project, run, "sessions")
    finished = wait_for_records(project, run, finished, 1)
    kill_family(run)
    assert len(recovered(project)["finished_cells"]) == 1
    assert alive_in_group(engine) == []
    assert {cell: records(project)[cell] for cell in finished} == finished
    assert project.scheduled(CELLS, hydra=hydra)["run_cell"] == 2
    status, output = project.snakemake(CELLS, hydra=hydra)
    assert status == 0, output
    after = records(project)
    assert {cell: after[cell] for cell in finished} == finished
    assert all(status == "ok" for _, status in after.values())


def test_failed_engines_are_recorded_named_and_tried_again(project):
    """One engine does not know its flag, another is killed while it serves."""
    hydra = [
        "+engine@engines.broken=openvino",
        "engines.broken.extra_args=[--no-such-flag]",
        "loads.bucket_1k.concurrency=[1,2]",
        "server.reuse=cell",
    ]
    before = records(project)
    run, printed = project.start(*project.snakemake_command(hydra=hydra))
    killed = None
    while killed is None:
        assert run.poll() is None, printed.read_text()
        cell, pid = engine_pid(project, run, seen=before)
        log = project.directory / "logs" / "run_cell" / f"{cell}.engine.log"
        if "--no-such-flag" in log.read_text():
            before[cell] = None
            continue
        os.kill(pid, signal.SIGKILL)
        killed = cell
    assert run.wait(timeout=900) != 0
    assert "cells failed" in printed.read_text()

    failed = {
        cell: cell_record(project, cell)
        for cell, (_, status) in records(project).items()
        if status == "failed"
    }
    assert "SIGKILL" in failed.pop(killed)["reason"]
    assert len(failed) == 8 + 2  # every cell of the broken engine
    assert all("no-such-flag" in record["reason"] for record in failed.values())
    assert (project.directory / "results" / "pareto.pdf").is_file()

    recovered(project)
    again = project.scheduled("results/pareto.pdf", hydra=hydra)
    assert again == {"run_cell": 1 + len(failed), "aggregate": 1, "plot_pareto": 1}
