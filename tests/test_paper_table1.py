"""The paper's Table 1 as an experiment: its ten columns at two temperatures, and no more."""

import re
from pathlib import Path

import pytest

from speedstudy.expand import expand, unpinned
from speedstudy.schema.artifacts import HubArtifact
from speedstudy.study import load_study

ROOT = Path(__file__).parents[1]
COLUMNS = {
    # (engine, GPUs, TP, EP, target, method, drafter): the paper's Table 1 and Appendix I
    ("trtllm", 1, 1, 1, "llama_3_3_70b", "ngram", "ngram"),
    ("trtllm", 1, 1, 1, "llama_3_3_70b", "draft_model", "llama_3_2_1b"),
    ("trtllm", 1, 1, 1, "llama_3_3_70b", "eagle3", "eagle3_llama_3_3_70b"),
    ("trtllm", 1, 1, 1, "gpt_oss_120b", "ngram", "ngram"),
    ("trtllm", 1, 1, 1, "gpt_oss_120b", "eagle3", "eagle3_gpt_oss_120b"),
    ("trtllm", 8, 8, 4, "deepseek_r1", "mtp", "mtp"),
    ("sglang", 8, 8, 8, "qwen3_235b_a22b", "draft_model", "qwen3_0_6b"),
    ("sglang", 8, 8, 8, "qwen3_235b_a22b", "eagle3", "eagle3_qwen3_235b"),
    ("sglang", 8, 8, 8, "qwen3_next_80b_a3b", "eagle3", "eagle3_qwen3_next"),
    ("sglang", 8, 8, 8, "qwen3_next_80b_a3b", "mtp", "mtp"),
}
PAGE = (ROOT / "docs" / "paper_table1.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study():
    return load_study(ROOT / "config", ["experiment=paper_table1"])


@pytest.fixture(scope="module")
def plan(study):
    return expand(study)


def column(cfg):
    engine, drafter = cfg["engine"], cfg["drafter"]
    return (
        engine["kind"],
        engine["gpus"],
        engine["parallel"]["tensor"],
        engine["parallel"]["expert"],
        cfg["target"]["name"],
        drafter["method"],
        drafter["name"],
    )


def test_cells_are_the_ten_columns_at_two_temperatures(plan):
    cells = [cell.cfg for cell in plan.cells.values()]
    assert len(cells) == 20
    points = {(column(cfg), cfg["sampling"]["temperature"]) for cfg in cells}
    assert points == {(one, t) for one in COLUMNS for t in (0.0, 1.0)}
    assert {cfg["drafter"]["k"] for cfg in cells} == {3}
    loads = {
        (c["load"]["requests"], c["load"]["concurrency"], c["load"]["max_tokens"]) for c in cells
    }
    assert loads == {(880, 32, 4096)}
    assert plan.impossible == ()


def test_with_speedups_each_target_runs_without_a_drafter_too():
    plan = expand(load_study(ROOT / "config", ["experiment=paper_table1_speedup"]))
    methods = [column(cell.cfg)[5] for cell in plan.cells.values()]
    assert (len(methods), methods.count("none")) == (30, 10)


def test_the_page_has_a_row_a_column_and_says_which_value_is_missing(study):
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \| ([\d.]+) \| ([\w.]+) \|", PAGE, re.M)
    wanted = [
        (one.engine, one.target, drafter) for one in study.sessions for drafter in one.drafters
    ]
    assert [row[:3] for row in rows] == wanted
    values = [value for row in rows for value in row[3:]]
    assert values.count("missing") == 1
    assert [row[4] for row in rows if row[1] == "deepseek_r1"] == ["missing"]
    # The means over the columns' values, added by hand.
    assert sum(float(row[3]) for row in rows) == pytest.approx(22.22)
    assert sum(float(row[4]) for row in rows if row[4] != "missing") == pytest.approx(18.24)


def test_the_page_names_every_target_with_its_memory(study):
    for target in study.targets.values():
        (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{target.name}` |"))
        assert target.artifact.repo in line
        assert f"{target.memory_gib:.0f} GiB" in line


def test_only_the_head_that_the_page_names_has_no_commit(plan):
    (message,) = unpinned(plan)
    assert message.startswith("lmsys/SGLang-EAGLE3-Qwen3-Next")
    assert "set revision" in message


def test_a_commit_given_on_the_command_line_pins_it():
    commit = "a" * 40
    override = f"drafters.eagle3_qwen3_next_k3.artifact.revision={commit}"
    plan = expand(load_study(ROOT / "config", ["experiment=paper_table1", override]))
    assert unpinned(plan) == []


@pytest.mark.parametrize(
    ("name", "files", "first", "last"),
    [
        (
            "llama_3_3_70b",
            30,
            "model-00001-of-00030.safetensors",
            "model-00030-of-00030.safetensors",
        ),
        (
            "gpt_oss_120b",
            15,
            "model-00000-of-00014.safetensors",
            "model-00014-of-00014.safetensors",
        ),
        (
            "deepseek_r1",
            163,
            "model-00001-of-000163.safetensors",
            "model-00163-of-000163.safetensors",
        ),
    ],
)
def test_weight_files_are_written_out(study, name, files, first, last):
    weights = [f for f in study.targets[name].artifact.files if f.endswith(".safetensors")]
    assert (len(weights), weights[0], weights[-1]) == (files, first, last)


def test_a_file_without_a_range_is_itself():
    artifact = HubArtifact(
        kind="hub", licence="MIT", repo="a/b", repo_type="model", revision=None, files=["x{1}.json"]
    )
    assert artifact.files == ("x{1}.json",)


def test_an_unknown_name_in_sessions_is_refused():
    override = "sessions=[{engine: trtllm, target: llama_3_3_70b, drafters: [mtp]}]"
    with pytest.raises(ValueError, match="no drafter mtp; the study has ngram_k3"):
        load_study(ROOT / "config", ["experiment=paper_table1", override])


def test_thinking_is_in_the_prompts(plan):
    prompts = {id_: node.cfg.get("chat_template") for id_, node in plan.data.workloads.items()}
    told = {id_.split("--")[1]: variables for id_, variables in prompts.items()}
    assert told["gpt_oss_120b"] == {"reasoning_effort": "medium"}
    assert told["qwen3_235b_a22b"] == {"enable_thinking": True}
    assert told["llama_3_3_70b"] is None
