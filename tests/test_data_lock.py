"""The lock of fetched data: what is added, enforced and contradicted; gates and skipped sources."""

import argparse
import hashlib
import json
from pathlib import Path

import pytest

from speedstudy import artifacts, fetch, lock_data
from speedstudy.data_lock import pinned_sums, read_lock, write_lock
from speedstudy.expand import expand
from speedstudy.lock_data import add_sums
from speedstudy.plan import without_sum
from speedstudy.study import load_study

COMMIT = "b" * 40
KEY = f"hub:owner/rows@{COMMIT}"
GOOD = hashlib.sha256(b"rows\n").hexdigest()
BAD = "0" * 64


def repo(**more):
    return {
        "kind": "hub",
        "licence": "MIT",
        "repo": "owner/rows",
        "repo_type": "dataset",
        "revision": COMMIT,
        "files": ["test.parquet"],
        "sha256": {},
        **more,
    }


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    folder = tmp_path / "mirror" / "owner" / "rows" / COMMIT
    folder.mkdir(parents=True)
    (folder / "test.parquet").write_bytes(b"rows\n")
    monkeypatch.setenv("SPEEDSTUDY_MIRROR", str(tmp_path / "mirror"))
    return folder / "test.parquet"


def run(stage, *words):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    return stage.run(parser.parse_args([str(word) for word in words]))


def fetch_rows(tmp_path, **more):
    out = tmp_path / "artifacts" / "rows" / "manifest.json"
    words = ("--name", "rows", "--lock", tmp_path / "lock.yaml", "--out", out)
    return run(fetch, "--config", json.dumps(repo(**more)), *words)


def lock_all(tmp_path):
    words = ("--artifacts", tmp_path / "artifacts", "--lock", tmp_path / "lock.yaml")
    return run(lock_data, *words)


def test_what_was_fetched_is_locked_and_then_enforced(tmp_path, mirror):
    fetch_rows(tmp_path)
    assert lock_all(tmp_path) == {"added": 1, "known": 0}
    assert read_lock(tmp_path / "lock.yaml") == {KEY: {"test.parquet": GOOD}}
    assert lock_all(tmp_path) == {"added": 0, "known": 1}

    mirror.write_bytes(b"other rows\n")
    (tmp_path / "artifacts" / "rows" / "test.parquet").unlink()
    with pytest.raises(ValueError, match=f"but {GOOD} is pinned"):
        fetch_rows(tmp_path)


def test_another_sum_than_the_locked_one_is_not_overwritten(tmp_path):
    manifest = {
        "kind": "hub",
        "files": {"test.parquet": {"sha256": GOOD, "origin": f"{KEY}/test.parquet"}},
    }
    with pytest.raises(ValueError, match=f"fetched with sha256 {GOOD}, locked with {BAD}"):
        add_sums({KEY: {"test.parquet": BAD}}, [manifest])


def test_wheels_and_local_files_are_pinned_elsewhere():
    wheel = {"kind": "pypi", "files": {"a": {"sha256": GOOD, "origin": "pypi:a==1"}}}
    assert add_sums({}, [wheel, {**wheel, "kind": "file"}]) == {}


def test_configuration_and_lock_must_agree():
    lock = {KEY: {"test.parquet": GOOD, "train.parquet": BAD}}
    assert pinned_sums(repo(), lock) == {"test.parquet": GOOD}
    assert pinned_sums(repo(sha256={"test.parquet": GOOD}), lock) == {"test.parquet": GOOD}
    with pytest.raises(ValueError, match="delete the wrong one"):
        pinned_sums(repo(sha256={"test.parquet": BAD}), lock)


def test_a_lock_survives_its_own_layout(tmp_path):
    lock = {KEY: {"b": GOOD, "a": BAD}}
    write_lock(tmp_path / "lock.yaml", lock)
    assert read_lock(tmp_path / "lock.yaml") == lock
    assert read_lock(tmp_path / "none.yaml") == {}
    (tmp_path / "lock.yaml").write_text("- a list\n")
    with pytest.raises(ValueError, match="expected a map of artifacts to files"):
        read_lock(tmp_path / "lock.yaml")


# ---- what cannot be had


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_, **__):
        raise OSError("401 Client Error")

    monkeypatch.delenv("SPEEDSTUDY_MIRROR", raising=False)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)


def test_a_gated_source_says_where_to_accept_its_terms(tmp_path, offline):
    with pytest.raises(artifacts.NotAvailable) as error:
        fetch_rows(tmp_path, gated=True)
    assert "accept its terms at https://huggingface.co/datasets/owner/rows and set HF_TOKEN" in str(
        error.value
    )
    with pytest.raises(artifacts.NotAvailable) as error:
        fetch_rows(tmp_path)
    assert "accept its terms" not in str(error.value)


def test_an_artifact_that_may_be_skipped_leaves_its_reason(tmp_path, offline):
    manifest = fetch_rows(tmp_path, gated=True, on_missing="skip")
    assert manifest["files"] == {}
    path = tmp_path / "artifacts" / "rows" / "manifest.json"
    assert artifacts.read_manifest(path) == {}
    assert "401 Client Error; it is gated" in artifacts.missing_reason(path)
    assert lock_all(tmp_path) == {"added": 0, "known": 0}


def test_a_damaged_artifact_is_never_skipped(tmp_path, mirror):
    with pytest.raises(ValueError, match=f"but {BAD} is pinned"):
        fetch_rows(tmp_path, sha256={"test.parquet": BAD}, on_missing="skip")


# ---- what the plan knows of sums

CONFIG = Path(__file__).parents[1] / "config"
SPEC_BENCH = "+source@sources.spec_bench=spec_bench"


def test_an_edit_of_ones_own_prompts_is_another_study(tmp_path):
    own = tmp_path / "own.jsonl"
    overrides = [f"sources.roleplay.artifact.path={own}", "sources.roleplay.artifact.sha256=null"]
    cells = []
    for text in ("first", "second", "first"):
        own.write_text(text)
        cells.append(set(expand(load_study(CONFIG, overrides)).cells))
    assert cells[0] == cells[2]
    assert cells[0] != cells[1]


def test_the_plan_names_files_without_a_sum():
    plan = expand(load_study(CONFIG, [SPEC_BENCH]))
    (file,) = without_sum(plan, {})
    key = file.removesuffix("/data/spec_bench/question.jsonl")
    assert key.startswith("github:hemingkx/Spec-Bench@")
    assert without_sum(plan, {key: {"data/spec_bench/question.jsonl": GOOD}}) == []


def test_a_source_that_may_be_skipped_is_another_artifact():
    must = expand(load_study(CONFIG, [SPEC_BENCH])).data.artifacts
    may = expand(load_study(CONFIG, [SPEC_BENCH, "sources.spec_bench.on_missing=skip"])).data
    (new,) = set(may.artifacts) - set(must)
    assert may.artifacts[new].cfg["on_missing"] == "skip"


def test_a_prepared_split_can_take_the_place_of_ours():
    load_study(CONFIG, ["+source@sources.prepared_split=prepared_split"])
