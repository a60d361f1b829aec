"""The project's own files agree with each other."""

import re
from pathlib import Path

import yaml

from speedstudy.cli import COMMANDS

ROOT = Path(__file__).parents[1]
RULES = "\n".join(path.read_text() for path in (ROOT / "rules").glob("*.smk"))


def pins(lines):
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def test_the_conda_environment_has_the_locked_versions():
    environment = yaml.safe_load((ROOT / "envs" / "study.yaml").read_text())
    locked = (ROOT / "requirements.lock").read_text().splitlines()
    assert pins(environment["dependencies"][-1]["pip"]) == pins(locked)


def test_rule_and_subcommand_have_one_name():
    rules = set(re.findall(r"^rule (\w+):", RULES, flags=re.MULTILINE))
    called = set(re.findall(r'"(?:exec )?speedstudy ([\w-]+)', RULES))
    assert {rule.replace("_", "-") for rule in rules} == called
    assert called <= set(COMMANDS)


def test_every_rule_says_what_it_does_and_keeps_a_log():
    for rule in re.split(r"^rule ", RULES, flags=re.MULTILINE)[1:]:
        name, body = rule.split(":", 1)
        assert body.lstrip().startswith('"""'), name
        assert "log:" in body, name


def test_every_option_file_is_used_by_some_experiment():
    config = ROOT / "config"
    experiments = "\n".join(path.read_text() for path in (config / "experiment").glob("*.yaml"))
    used = set(re.findall(r"- /(\w+)(?:@[\w.]+)?: (\w+)", experiments))
    options = {
        (path.parent.name, path.stem): path.read_text()
        for path in config.glob("*/*.yaml")
        if path.parent.name != "experiment"
    }
    for group, option in list(used):  # an option may build on another of its group
        used |= {(group, base) for base in re.findall(r"^  - (\w+)$", options[group, option], re.M)}
    in_place_of_ours = {
        ("source", "prepared_split"),  # NVIDIA's own split, for who has it
        ("embedder", "bge_small"),  # any other model of the hub
        ("load", "qualitative_poisson"),  # an open loop
    }
    assert set(options) - used == in_place_of_ours
