"""Every command line is one that the engine accepts: by fixtures, and by its own parser.

The fixtures name what they were made of: fixtures/engine_arguments/README.md.
"""

import json
import os
import subprocess
from itertools import product
from pathlib import Path

import pytest
import yaml

from engine_launch import WEIGHTS, drafter, engine, launch
from speedstudy.engines import ENGINES
from speedstudy.engines.trtllm import OPTIONS
from speedstudy.schema.drafters import Tree

FIXTURES = Path(__file__).parent / "fixtures" / "engine_arguments"
KINDS = ("llamacpp", "sglang", "trtllm", "vllm")


def possible_launches(kind):
    """Every method with every option that the engine takes with it."""
    engines = [
        engine(kind),
        engine(kind, gpus=1, gpu_memory_fraction=0.8),
        engine(kind, gpus=8, parallel={"tensor": 8, "expert": 8}),
        engine(kind, gpus=8, parallel={"tensor": 4, "data": 2}),
        *(engine(kind, precision=p) for p in ("f32", "bf16", "f16")),
        *(engine(kind, kv_cache_precision=p) for p in ("f32", "bf16", "f16", "u8", "fp8")),
        engine(kind, kv_cache_gib=2),
        engine(kind, threads=2),
    ]
    drafters = [
        drafter(method, **more)
        for method in ENGINES[kind].methods
        for more in ({}, {"tree": Tree(top_k=4, nodes=10)}, {"synthetic_al": 2.5})
        if method != "none" or not more
    ]
    drafters.append(drafter("mtp", artifact=WEIGHTS))
    found = []
    for one_engine, one_drafter in product(engines, drafters):
        try:
            found.append(launch(one_engine, one_drafter))
        except ValueError:  # its messages are tested in test_engine_commands.py
            continue
    assert len(found) >= len(ENGINES[kind].methods)
    return found


def options_of(argv):
    """Split ``--flag value`` and ``--flag`` words; a value never starts with ``--``."""
    options, words = [], list(argv)
    while words:
        flag = words.pop(0)
        value = words.pop(0) if words and not words[0].startswith("--") else None
        options.append((flag, value))
    return options


@pytest.mark.parametrize("kind", KINDS)
def test_flags_are_those_of_the_engine(kind):
    known = json.loads((FIXTURES / f"{kind}.json").read_text())["flags"]
    for one in possible_launches(kind):
        first = next(i for i, word in enumerate(one.argv) if word.startswith("--"))
        for flag, value in options_of(one.argv[first:]):
            assert flag in known, f"{kind} has no {flag}"
            assert known[flag]["takes_value"] == (value is not None), (flag, value)
            choices = known[flag]["choices"]
            assert choices is None or value in choices, (flag, value)


def test_options_file_of_tensorrt_llm_has_only_keys_that_its_models_know():
    known = json.loads((FIXTURES / "trtllm.json").read_text())["options"]
    seen = set()
    for one in possible_launches("trtllm"):
        ((path, text),) = one.files.items()
        assert path == Path("/run") / OPTIONS
        assert str(path) in one.argv
        options = yaml.safe_load(text)
        assert set(options) <= set(known["llm"])
        assert set(options["kv_cache_config"]) <= set(known["kv_cache_config"])
        speculation = options.get("speculative_config")
        if speculation is not None:
            seen.add(speculation["decoding_type"])
            assert set(speculation) <= set(
                known["speculative_config"][speculation["decoding_type"]]
            )
    assert seen == set(known["speculative_config"])


def test_speculative_config_of_vllm_has_only_keys_that_it_knows():
    known = set(json.loads((FIXTURES / "vllm.json").read_text())["speculative_config"])
    said = [
        json.loads(value)
        for one in possible_launches("vllm")
        for flag, value in options_of(one.argv[3:])
        if flag == "--speculative-config"
    ]
    assert {one["method"] for one in said} == {
        *("ngram", "draft_model", "eagle3", "mtp", "suffix", "dflash")
    }
    assert all(set(one) <= known for one in said)


PARSE_WITH_SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(exit_on_error=False)
ServerArgs.add_cli_args(parser)
for argv in json.load(sys.stdin):
    parser.parse_args(argv)
"""


def test_sglangs_own_parser_takes_every_command_line():
    python = os.environ.get("SPEEDSTUDY_SGLANG_PYTHON")
    if python is None:
        pytest.skip("SPEEDSTUDY_SGLANG_PYTHON names no interpreter that has SGLang")
    lines = [one.argv[3:] for one in possible_launches("sglang")]
    done = subprocess.run(
        [python, "-c", PARSE_WITH_SGLANG], input=json.dumps(lines), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
