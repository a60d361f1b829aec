"""llama.cpp's real server on the real model: ids in, ids out, and three tellings of acceptance."""

import json
import os
from pathlib import Path

import psutil
import pytest

from engine_launch import drafter, engine
from speedstudy.convert import CONVERTER
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
def folders(binary, fresh_project):
    """Folders of the experiment's models, as `target--hf`, made by the graph itself."""
    if not (binary.parent / CONVERTER).is_file():
        pytest.skip(f"no converter of llama.cpp: {binary.parent / CONVERTER} is not there")
    plan = expand(load_study(ROOT / "config", ["experiment=cpu_llamacpp"]))
    made = {id_.rpartition("--")[0]: Path("resources/models") / id_ for id_ in plan.data.models}
    status, output = fresh_project.snakemake(
        *(folder / "config.json" for folder in made.values()),
        experiment="cpu_llamacpp",
        hydra=[f"engines.llamacpp.command=[{binary}]"],
    )
    assert status == 0, output
    return {name: fresh_project.directory / folder for name, folder in made.items()}


@pytest.fixture(scope="module")
def workload(folders, tmp_path_factory):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folders["smollm2_135m--hf"])
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
def measure(binary, folders, workload, fresh_project, tmp_path_factory):
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
            draft_model = ("--draft-model", folders["eagle3--gguf"]) if method == "eagle3" else ()
            status, output = fresh_project.run(
                *("speedstudy", "run-cell", "--id", "cell", "--config", json.dumps(config)),
                *("--engine-command", json.dumps([str(binary)])),
                *("--model", folders["smollm2_135m--gguf"], *draft_model),
                *("--workload", workload, "--warmup", workload.with_suffix(".warmup.parquet")),
                *("--out", out, "--engine-log", out / "engine.log"),
            )
            assert status == 0, output
            cells[key] = (read_cell(out), read_requests(out / "requests.parquet"))
        return cells[key]

    return measured


CELLS = [("none", 1), ("none", 4), ("ngram", 1), ("ngram", 4), ("eagle3", 1)]


@pytest.mark.parametrize(("method", "concurrency"), CELLS)
def test_the_engine_saw_the_ids_that_were_sent_and_sent_ids_back(measure, method, concurrency):
    record, turns = measure(method, concurrency)
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["client"]["prompts_differ"] == 0
    assert all(turn.prompt_tokens > 0 for turn in turns)
    assert [turn.completion_tokens for turn in turns] == [TOKENS] * len(QUESTIONS)
    assert record["engine"]["version"].startswith("b")


@pytest.mark.parametrize(("method", "concurrency"), CELLS[2:])
def test_acceptance_of_the_replies_is_what_the_server_counted(measure, method, concurrency):
    record, turns = measure(method, concurrency)
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


NAMES = {
    "fc.weight": "fc.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "midlayer.hidden_norm.weight": "blk.0.attn_norm_2.weight",
    "midlayer.input_layernorm.weight": "blk.0.attn_norm.weight",
    "midlayer.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    "midlayer.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "midlayer.self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "midlayer.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "midlayer.self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "midlayer.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "midlayer.mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "midlayer.mlp.down_proj.weight": "blk.0.ffn_down.weight",
    "d2t": "d2t",
}


def test_the_converted_head_holds_the_heads_numbers(folders):
    import torch
    from gguf import GGUFReader
    from safetensors.torch import load_file

    head = load_file(ROOT / "models" / "smollm2-eagle3" / "model.safetensors")
    reader = GGUFReader(folders["eagle3--gguf"] / "model.gguf")
    made = {one.name: torch.from_numpy(one.data.copy()) for one in reader.tensors}
    assert set(made) == set(NAMES.values())
    assert set(head) == {*NAMES, "t2d"}  # what t2d says follows from d2t
    for name, gguf_name in NAMES.items():
        expected, tensor = head[name], made[gguf_name]
        if tensor.dtype == torch.uint8:
            tensor = tensor.view(torch.bfloat16)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            # A rotated pair is (i, i + 32) of 64 in the head, neighbours in a GGUF.
            expected = expected.reshape(-1, 2, 32, 1152).transpose(1, 2).reshape(expected.shape)
        if name == "d2t":  # differences in the head, the target's tokens themselves in a GGUF
            expected = expected + torch.arange(len(expected))
        assert torch.equal(tensor, expected.to(tensor.dtype)), name
    assert reader.fields["eagle3.target_layers"].contents() == [2, 15, 27]
    assert reader.fields["eagle3.target_hidden_size"].contents() == 576
