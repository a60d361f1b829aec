"""The walk-through of docs/add-an-engine.md is true: followed word by word, it gives an engine.

The server that it starts is the fixture server of these tests.
"""

import json
import re
from pathlib import Path

import pytest

from conftest import copy_project
from speedstudy.records import read_cell, read_requests
from speedstudy.workload import Prompt, write_workload

PAGE = (Path(__file__).parents[1] / "docs" / "add-an-engine.md").read_text(encoding="utf-8")


def block(language, number=0):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)[number]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project in which the page's steps are done."""
    made = copy_project(tmp_path_factory.mktemp("walk") / "speedstudy")
    engines = made.directory / "workflow" / "speedstudy" / "engines"
    (engines / "demo.py").write_text(block("python"))
    names = (engines / "__init__.py").read_text()
    names = names.replace("\nENGINES", f"{block('python', 1)}\nENGINES", 1)
    (engines / "__init__.py").write_text(names.replace("in (", "in (DEMO, ", 1))
    (made.directory / "config" / "engine" / "demo.yaml").write_text(block("yaml"))
    fixtures = made.directory / "tests" / "fixtures" / "engine_arguments"
    (fixtures / "demo.json").write_text(block("json"))
    checked = made.directory / "tests" / "test_engine_arguments.py"
    checked.write_text(checked.read_text().replace("KINDS = (", 'KINDS = ("demo", ', 1))
    made.environment["PYTHONPATH"] += f":{made.directory / 'tests'}"
    return made


def test_its_cells_are_planned(project):
    command = [word.strip("'") for word in block("sh").split()]
    status, output = project.run(*command, "--json")
    assert status == 0, output
    report = json.loads(output.splitlines()[-1])
    assert len(report["cells"]) == 20
    assert all(cell["cell"].startswith("demo--") for cell in report["cells"])


def test_what_it_cannot_do_is_listed_with_the_reason(project):
    tree = "+drafters.ngram_k3.tree={top_k: 2, nodes: 4}"
    command = [word.strip("'") for word in block("sh").split()]
    status, output = project.run(*command, tree, "--json")
    assert status == 0, output
    reasons = {one["reason"] for one in json.loads(output.splitlines()[-1])["impossible"]}
    assert reasons == {"drafter ngram: demo draws no trees; set tree to null"}


def test_its_methods_are_in_the_table(project):
    status, output = project.run("speedstudy", "list-engines", "--json")
    assert status == 0, output
    assert set(json.loads(output.splitlines()[-1])["demo"]) == {"none", "ngram"}


def test_its_command_lines_are_checked_against_its_fixture(project):
    status, output = project.run(
        "pytest", "-q", "-p", "no:cacheprovider", "tests/test_engine_arguments.py", "-k", "demo"
    )
    assert status == 0, output
    assert "1 passed" in output


def test_a_cell_is_measured(project, tmp_path):
    prompts = [
        Prompt(prompt_id=f"p{number}", category="qa", turn_token_ids=((number, 5, 7),))
        for number in range(3)
    ]
    write_workload(tmp_path / "prompts.parquet", prompts[:2])
    write_workload(tmp_path / "warmup.parquet", prompts[2:])
    engine = (
        "import yaml, json; from speedstudy.schema.engines import Engine; "
        "print(Engine(**yaml.safe_load(open('config/engine/demo.yaml'))).model_dump_json())"
    )
    status, output = project.run("python", "-c", engine)
    assert status == 0, output
    config = {
        "engine": json.loads(output),
        "target": {"name": "target", "context_length": 64},
        "drafter": {"name": "none", "method": "none", "k": 0},
        "load": {
            "concurrency": 1,
            "requests": 2,
            "max_tokens": 2,
            "ignore_eos": False,
            "warmup_requests": 1,
        },
        "sampling": {"name": "greedy", "temperature": 0.0, "seed": 7},
    }
    status, output = project.run(
        *("speedstudy", "run-cell", "--id", "cell", "--config", json.dumps(config)),
        *("--engine-command", json.dumps(["python", "-m", "fixture_server"])),
        *("--model", tmp_path, "--workload", tmp_path / "prompts.parquet"),
        *("--warmup", tmp_path / "warmup.parquet", "--out", tmp_path / "cell"),
        *("--engine-log", tmp_path / "engine.log"),
    )
    assert status == 0, output
    record = read_cell(tmp_path / "cell")
    assert (record["status"], record["reason"]) == ("ok", None)
    assert record["engine"]["version"] == "fixture"
    assert len(read_requests(tmp_path / "cell" / "requests.parquet")) == 2
