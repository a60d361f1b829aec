"""llama.cpp's real server on the real model: ids in, ids out, and three tellings of acceptance."""

import json
import os
from pathlib import Path

import psutil
import pytest

from engine_launch import drafter, engine
from speedstudy.expand import expand
from speedstudy.records import read_cell, read_requests
from speedstudy.study import load_study
from speedstudy.workload import Prompt, write_workload

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[1]
BINARY = Path(
    os.environ.get("SPEEDSTUDY_LLAMA_SERVER", ROOT / ".engines" / "llamacpp" / "llama-server")
)
TOKENS = 48
QUESTIONS = (
    "Say the word yes ten times.",
    "Name the planets in order.",
    "Repeat this line five times: the quick brown fox jumps over the lazy dog.",
    "Write a Python function that reverses a string.",
    "List the numbers from one to thirty.",
    "What is gravity?",
)


@pytest.fixture(scope="module")
def binary():
    if not os.access(BINARY, os.X_OK):
        pytest.skip(
            f"no llama.cpp server: {BINARY} is not there; `make engine-llamacpp` builds it, "
            "SPEEDSTUDY_LLAMA_SERVER names another"
        )
    return BINARY


@pytest.fixture(scope="module")
def gguf_folder(binary, fresh_project):
    plan = expand(load_study(ROOT / "config", ["experiment=cpu_llamacpp"]))
    (name,) = (id_ for id_ in plan.data.models if "--gguf--" in id_)
    folder = Path("resources/models") / name
    status, output = fresh_project.snakemake(folder / "config.json", experiment="cpu_llamacpp")
    assert status == 0, output
    return fresh_project.directory / folder


@pytest.fixture(scope="module")
def workload(model_folders, tmp_path_factory):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folders["hf"])
    prompts = [
        Prompt(
            prompt_id=f"q{number}",
            category="qa",
            turn_token_ids=(
                tuple(
                    tokenizer.apply_chat_template(
                        [{"role": "user", "content": question}], add_generation_prompt=True
                    )["input_ids"]
                ),
            ),
        )
        for number, question in enumerate(QUESTIONS)
    ]
    path = tmp_path_factory.mktemp("llamacpp") / "prompts.parquet"
    write_workload(path, prompts)
    backwards = Prompt(
        prompt_id="warmup", category=None, turn_token_ids=(prompts[0].turn_token_ids[0][::-1],)
    )
    write_workload(path.with_suffix(".warmup.parquet"), [backwards])
    return path


@pytest.fixture(scope="module")
def measure(binary, gguf_folder, workload, fresh_project, tmp_path_factory):
    """Measure one cell; returns its record and its turns. Each cell is measured once."""
    cells = {}

    def measured(method, concurrency, **settings):
        key = (method, concurrency, *settings.items())
        if key not in cells:
            out = tmp_path_factory.mktemp("cell")
            config = {
                "engine": engine("llamacpp", command=[str(binary)]).model_dump(mode="json"),
                "target": {"name": "smollm2", "context_length": 2048},
                "drafter": drafter(method, **settings).model_dump(mode="json"),
                "load": {
                    "concurrency": concurrency,
                    "requests": len(QUESTIONS),
                    "max_tokens": TOKENS,
                    "ignore_eos": True,
                    "warmup_requests": 1,
                },
                "sampling": {"name": "greedy", "temperature": 0.0, "seed": 7},
            }
            status, output = fresh_project.run(
                *("speedstudy", "run-cell", "--id", "cell", "--config", json.dumps(config)),
                *("--engine-command", json.dumps([str(binary)]), "--model", gguf_folder),
                *("--workload", workload, "--warmup", workload.with_suffix(".warmup.parquet")),
                *("--out", out, "--engine-log", out / "engine.log"),
            )
            assert status == 0, output
            cells[key] = (read_cell(out), read_requests(out / "requests.parquet"))
        return cells[key]

    return measured


CELLS = [("none", 1), ("none", 4), ("ngram", 1), ("ngram", 4)]


@pytest.mark.parametrize(("method", "concurrency"), CELLS)
def test_the_engine_saw_the_ids_that_were_sent_and_sent_ids_back(measure, method, concurrency):
    record, turns = measure(method, concurrency)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["client"]["prompts_differ"] == 0
    assert all(turn.prompt_tokens > 0 for turn in turns)
    assert [turn.completion_tokens for turn in turns] == [TOKENS] * len(QUESTIONS)
    assert record["engine"]["version"].startswith("b")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_acceptance_of_the_replies_is_what_the_server_counted(measure, concurrency):
    record, turns = measure("ngram", concurrency)
    counted = {
        name: record["counters"]["after"][name] - record["counters"]["before"][name]
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    }
    assert sum(turn.drafted or 0 for turn in turns) == counted["num_draft_tokens"] > 0
    assert sum(turn.accepted or 0 for turn in turns) == counted["num_accepted_tokens"]
    assert 0 < counted["num_drafts"] <= counted["num_draft_tokens"]


def test_without_a_drafter_nothing_is_drafted(measure):
    record, turns = measure("none", 1)
    assert all(not turn.drafted for turn in turns)
    assert record["counters"]["after"].get("num_drafts", 0) == 0


def test_nothing_of_the_engine_is_left(measure):
    record, _ = measure("none", 1)
    port = record["load"]["url"].rsplit(":", 1)[1]
    commands = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert not [line for line in commands if str(BINARY) in line and port in line]
