"""vLLM's command lines, what is asked of an installed server, and the shipped EAGLE-3 head."""

import json
import re
import stat
from pathlib import Path

import pytest

from conftest import NOT_RUN, pytest_terminal_summary
from speedstudy.artifacts import sha256_of
from speedstudy.engines.kind import LaunchRequest
from speedstudy.engines.process import BUILT_BY_MAKE, EngineError, require_command
from speedstudy.engines.vllm import REQUEST_METRICS, VLLM
from speedstudy.expand import expand
from speedstudy.schema.drafters import Drafter, Tree
from speedstudy.schema.engines import Engine
from speedstudy.study import load_study

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "config"
WEIGHTS = {"kind": "file", "licence": "Apache-2.0", "path": "drafter", "sha256": None}


def engine(**settings):
    plain = {
        "name": "v",
        "kind": "vllm",
        "version": None,
        "command": ("python3", "-m", "server"),
        "precision": "f32",
        "kv_cache_precision": "f32",
        "threads": 0,
        "kv_cache_gib": 1,
        "gpus": 0,
    }
    return Engine(**{**plain, **settings})


def drafter(method, k=3, **settings):
    if method in ("draft_model", "eagle3", "pard", "dflash"):
        settings.setdefault("artifact", WEIGHTS)
    return Drafter(name=method, method=method, k=k, **settings)


NONE = drafter("none", k=0)


def launch(one_engine, one_drafter=NONE, **fields):
    return VLLM.launch(
        LaunchRequest(
            engine=one_engine,
            drafter=one_drafter,
            model=Path("target"),
            draft_model=Path("head") if one_drafter.artifact is not None else None,
            folder=Path("run"),
            context_length=2048,
            served_model_name="m",
            port=8123,
            max_concurrency=8,
            **fields,
        )
    )


def speculation(one_drafter, **fields):
    argv = launch(engine(), one_drafter, **fields).argv
    return json.loads(argv[argv.index("--speculative-config") + 1])


def test_the_whole_command_line_on_the_cpu():
    one = launch(engine(threads=2, environment={"A": "b"}, extra_args=["--more"]))
    assert one.argv == (
        *("python3", "-m", "server", "--model", "target", "--served-model-name", "m"),
        *("--host", "127.0.0.1", "--port", "8123", "--dtype", "float32"),
        *("--kv-cache-dtype", "auto", "--max-model-len", "2048", "--max-num-seqs", "8"),
        *("--tensor-parallel-size", "1", "--data-parallel-size", "1", "--seed", "0"),
        "--no-enable-prefix-caching",
        *("--kv-cache-memory-bytes", "1073741824", "--enforce-eager", "--more"),
    )
    assert one.environment == {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "2",
        "A": "b",
    }


def test_on_gpus_the_model_comes_first_and_nothing_is_said_of_the_cpu():
    one = launch(
        engine(
            command=None,
            precision="auto",
            kv_cache_precision="fp8",
            kv_cache_gib=None,
            gpus=8,
            parallel={"tensor": 4, "data": 2, "expert": 8},
            gpu_memory_fraction=0.9,
        )
    )
    assert one.argv[:3] == ("vllm", "serve", "target")
    assert "--model" not in one.argv
    assert "--enforce-eager" not in one.argv
    assert "--enable-expert-parallel" in one.argv
    words = " ".join(one.argv)
    assert "--kv-cache-dtype fp8 " in words
    assert "--tensor-parallel-size 4 --data-parallel-size 2 " in words
    assert "--gpu-memory-utilization 0.9" in words
    assert set(one.environment) == {"HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS"}


@pytest.mark.parametrize(
    ("one_drafter", "said"),
    [
        (
            drafter("ngram", k=4, max_ngram_size=4, min_ngram_size=2),
            {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2},
        ),
        (drafter("draft_model"), {"method": "draft_model", "model": "head"}),
        (drafter("eagle3"), {"method": "eagle3", "model": "head"}),
        (drafter("mtp"), {"method": "mtp"}),
        (drafter("mtp", artifact=WEIGHTS), {"method": "mtp", "model": "head"}),
        (drafter("suffix"), {"method": "suffix"}),
        (
            drafter("pard", tensor_parallel=1),
            {
                "method": "draft_model",
                "model": "head",
                "parallel_drafting": True,
                "draft_tensor_parallel_size": 1,
            },
        ),
        (drafter("dflash"), {"method": "dflash", "model": "head"}),
        (
            drafter("eagle3", synthetic_al=2.5),
            {
                "method": "eagle3",
                "model": "head",
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 2.5,
            },
        ),
    ],
)
def test_each_method_in_its_own_words(one_drafter, said):
    assert speculation(one_drafter) == {**said, "num_speculative_tokens": one_drafter.k}


def test_without_a_drafter_nothing_is_said_of_speculation():
    argv = launch(engine(), known_flags=frozenset({REQUEST_METRICS})).argv
    assert not [word for word in argv if "spec" in word]


def test_request_metrics_are_asked_for_only_where_the_server_knows_them():
    assert REQUEST_METRICS not in launch(engine(), drafter("eagle3")).argv
    argv = launch(engine(), drafter("eagle3"), known_flags=frozenset({REQUEST_METRICS})).argv
    assert argv[argv.index(REQUEST_METRICS) + 1] == "detailed"


@pytest.mark.parametrize(
    ("settings", "one_drafter", "message"),
    [
        ({"gpus": 1, "threads": 2}, NONE, "set threads to 0"),
        ({"kv_cache_precision": "u8"}, NONE, "no kv_cache_precision u8 beside precision f32"),
        ({"gpus": 4, "parallel": {"tensor": 4, "expert": 2}}, NONE, "parallel.expert to 1 or 4"),
        ({}, drafter("eagle3", tree=Tree(top_k=4, nodes=10)), "set tree to null"),
    ],
)
def test_what_vllm_cannot_do_is_said_with_the_mend(settings, one_drafter, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        launch(engine(**settings), one_drafter)


def stand_in_server(folder, text):
    """A program that is no engine: it prints a text, whatever it is asked."""
    program = folder / "server"
    program.write_text(f"#!/bin/sh\necho '{text}' $*\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return engine(command=(str(program),))


def test_the_installed_server_is_asked_for_the_flag(tmp_path):
    ask = VLLM.probe
    with_it = stand_in_server(tmp_path, "  --per-request-spec-decode-metrics {none,summary}")
    assert ask(with_it, drafter("eagle3")) == {REQUEST_METRICS}
    assert ask(with_it, NONE) == set()
    # The program echoes what it was asked for, as a message of error may: that is no flag.
    without = stand_in_server(tmp_path, "error: no such argument")
    assert ask(without, drafter("eagle3")) == set()


def test_a_missing_environment_names_its_target_in_one_line():
    program = ".engines/vllm-cpu/bin/no-such-python"
    line = f"there is no {program}; `make engine-vllm-cpu` builds it"
    with pytest.raises(EngineError, match=f"^{re.escape(line)}$"):
        require_command(program)
    with pytest.raises(EngineError, match=re.escape(line)):
        VLLM.probe(engine(command=(program, "-m", "server")), drafter("eagle3"))
    with pytest.raises(EngineError, match="there is no no-such-program; install it"):
        require_command("no-such-program")
    require_command("sh")
    makefile = (ROOT / "Makefile").read_text()
    for target in BUILT_BY_MAKE.values():
        assert f"\n{target.removeprefix('make ')}:" in makefile


# ---- the shipped head and the experiment


def test_the_heads_sums_are_pinned_and_part_of_every_id_of_its_cells():
    study = load_study(CONFIG, ["experiment=cpu_vllm"])
    eagle3 = study.drafters["eagle3"]
    for name, expected in eagle3.artifact.sha256.items():
        assert sha256_of(ROOT / "models" / "smollm2-eagle3" / name) == expected
    sums = {**eagle3.artifact.sha256, "model.safetensors": "0" * 64}
    other_artifact = eagle3.artifact.model_copy(update={"sha256": sums})
    other = eagle3.model_copy(update={"artifact": other_artifact})
    drafters = {**study.drafters, "eagle3": other}
    plan, changed = expand(study), expand(study.model_copy(update={"drafters": drafters}))
    heads = {cell.draft_model for cell in plan.cells.values()} - {None}
    other_heads = {cell.draft_model for cell in changed.cells.values()} - {None}
    assert len(heads) == len(other_heads) == 1
    assert heads.isdisjoint(other_heads)
    moved = set(plan.cells) - set(changed.cells)
    assert moved == {id_ for id_ in plan.cells if "--eagle3-k3--" in id_}


def test_cpu_vllm_measures_three_drafters_at_every_concurrency():
    plan = expand(load_study(CONFIG, ["experiment=cpu_vllm"]))
    assert plan.impossible == ()
    asked = [
        (c.cfg["drafter"]["method"], c.cfg["load"]["concurrency"]) for c in plan.cells.values()
    ]
    assert asked == [(m, c) for m in ("none", "ngram", "eagle3") for c in (1, 2, 4, 8)]


def test_gpu_vllm_spreads_the_target_over_four_gpus():
    plan = expand(load_study(CONFIG, ["experiment=gpu_vllm"]))
    assert plan.impossible == ()
    assert {(one.engine.gpus, one.engine.parallel.tensor) for one in plan.cells.values()} == {
        (4, 4)
    }
    assert {one.cfg["drafter"]["method"] for one in plan.cells.values()} == {
        *("none", "ngram", "draft_model", "eagle3")
    }


def test_the_cpu_environment_has_no_gpu_packages():
    lines = (ROOT / "envs" / "vllm-cpu.lock").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9a-z.+]+", pin) for pin in pins)
    assert not [pin for pin in pins if re.match(r"(nvidia|cuda|triton|pytorch-triton)", pin)]
    assert "torch==2.13.0+cpu" in pins
    assert (
        f"vllm-cpu=={load_study(CONFIG, ['experiment=cpu_vllm']).engines['vllm_cpu'].version}"
        in pins
    )


class Terminal:
    """What pytest's terminal reporter does here: it keeps reports and prints."""

    def __init__(self, reasons):
        class Report:
            def __init__(self, reason):
                self.longrepr = ("test.py", 1, f"Skipped: {reason}")

        self.stats = {"skipped": [Report(reason) for reason in reasons]}
        self.printed = []

    def section(self, title, **_):
        self.printed.append(title)

    def write_line(self, line, **_):
        self.printed.append(line)


def test_what_was_not_run_is_counted_at_the_end():
    reasons = [f"{NOT_RUN}no wheel", "no folder of real rows", f"{NOT_RUN}no wheel"]
    terminal = Terminal(reasons)
    pytest_terminal_summary(terminal)
    assert terminal.printed == ["NOT RUN", "NOT RUN: 2 tests: no wheel"]
    quiet = Terminal(["no folder of real rows"])
    pytest_terminal_summary(quiet)
    assert quiet.printed == []
