"""The paper's sources served from real rows: what each gives, and how good the selection is."""

import argparse
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from shared_mirror import ABSENT, LAID, SOURCES, lay_out
from speedstudy import collect, fetch
from speedstudy.artifacts import fetch as fetch_artifact
from speedstudy.collect.candidates import CATEGORIES
from speedstudy.compare_selections import compare
from speedstudy.coverage import read_missing, short_categories
from speedstudy.embed import embed_texts
from speedstudy.select import select_prompts
from speedstudy.tables import joined_turns, read_rows

QUOTA = 80
POOL = 100  # of each category, by lowest id: what the real model embeds in about a minute

# Counted by hand in the files. Known besides: MT-Bench-101's 179 is the paper's own pool.
ROWS = {
    "spec_bench": 280,  # 480 less 160, and 80 of GSM8K in pairs
    "human_eval_pack": 981,  # 6 x 164, three of them twice
    "role_bench": 105,  # one a role and split
    "coser": 28,
    "writing_bench": 124,  # English ones of 222
    "creative_writing": 320,
    "mt_bench_101": 179,
    "mmlu_pro": 781,
    "mmath": 3364,  # 9 x 374, two of them twice
    "opus_100": 1356,
    "hle": 1623,
    "chat_rag_bench": 100,
    "cnn_dailymail": 131,
}
REAL = {
    "coding": 991,
    "humanities": 10,
    "math": 50,
    "qa": 80,
    "rag": 90,
    "reasoning": 970,
    "stem": 10,
    "writing": 454,
    "multilingual": 3364,
    "roleplay": 143,
}
WITH_STAND_INS = REAL | {
    "humanities": 604,
    "math": 424,
    "rag": 190,
    "stem": 665,
    "multilingual": 4720,
    "summarization": 131,
}


def run(stage, *words):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    return stage.run(parser.parse_args([str(word) for word in words]))


def refuse(*_, **__):
    raise OSError("no network in this test")


@pytest.fixture(scope="module")
def collected(shared, tmp_path_factory):
    """Report of `collect` and its file, by source, all from the mirror and no network."""
    folder = tmp_path_factory.mktemp("shared")
    sources = lay_out(shared, folder / "mirror")
    reports = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPEEDSTUDY_MIRROR", str(folder / "mirror"))
        patch.setattr("huggingface_hub.hf_hub_download", refuse)
        for name, source in sources.items():
            manifest = folder / "artifacts" / name / "manifest.json"
            out = folder / f"{name}.parquet"
            artifact = json.dumps(source["artifact"] | {"on_missing": source["on_missing"]})
            lock = ("--lock", folder / "none.yaml")  # its sums are of the pinned revisions
            run(fetch, "--config", artifact, "--name", name, "--out", manifest, *lock)
            config = ("--config", json.dumps(source))
            reports[name] = (run(collect, *config, "--manifest", manifest, "--out", out), out)
    return reports


def pools(collected, names) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in names:
        counts.update(collected[name][0].get("by_category", {}))
    return dict(counts)


def test_all_sources_of_the_paper_are_told_apart():
    assert len(LAID) + len(ABSENT) == 16  # 18: Spec-Bench's file holds three of them
    assert set(LAID).isdisjoint(ABSENT)
    assert {laid.what for laid in LAID.values()} == {"itself", "part", "stand-in"}


def test_every_source_gives_its_rows(collected):
    assert {name: collected[name][0]["rows"] for name in LAID} == ROWS


def test_absent_sources_are_skipped_and_say_what_they_touch(collected):
    assert all("no network in this test" in collected[name][0]["missing"] for name in ABSENT)
    missing = read_missing([out for _, out in collected.values()])
    assert short_categories(missing) == {
        "coding": ["live_code_bench", "code_contests"],
        "rag": ["mcif"],
        "multilingual": ["mcif"],
    }


def test_real_rows_fill_seven_categories_and_stand_ins_the_others(collected):
    real = [name for name, laid in LAID.items() if laid.what != "stand-in"]
    assert pools(collected, real) == REAL
    assert sum(count >= QUOTA for count in REAL.values()) == 7
    assert pools(collected, collected) == WITH_STAND_INS
    assert set(WITH_STAND_INS) == set(CATEGORIES)


@pytest.fixture(scope="module")
def itself(shared, tmp_path_factory):
    """Spec-Bench's own 480 rows, as `collect` gives them."""
    out = tmp_path_factory.mktemp("itself") / "rows.parquet"
    source = yaml.safe_load((SOURCES / "spec_bench_itself.yaml").read_text(encoding="utf-8"))
    file = source["artifact"]["files"][0]
    report = collect.collect(
        source | {"counted": True}, {file: shared / "data/spec_bench/question.jsonl"}, out
    )
    assert report["by_category"] == source["candidates"]
    assert report["rows"] == 480
    return out


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    path = SOURCES.parent / "embedder/minilm.yaml"
    embedder = yaml.safe_load(path.read_text(encoding="utf-8"))
    out = tmp_path_factory.mktemp("minilm")
    mirror = os.environ.get("SPEEDSTUDY_MIRROR")
    place = {"mirror": Path(mirror) if mirror else None, "project_root": Path()}
    try:
        fetch_artifact(embedder["artifact"], "minilm", out, **place)
    except ValueError as error:
        pytest.skip(f"the embedder cannot be had: {error}")
    return out / embedder["folder"]


@pytest.fixture(scope="module")
def compared(collected, itself, minilm):
    """The table of `compare_selections` over a part of each pool, beside Spec-Bench itself."""
    table = part(read_rows([out for _, out in collected.values()], "question_id"))
    rows = table.to_pylist()
    theirs = read_rows([itself], "question_id").to_pylist()
    both = [*rows, *theirs]
    vectors = embed_texts([joined_turns(row) for row in both], minilm, "float32")
    embeddings = {row["question_id"]: vector for row, vector in zip(both, vectors, strict=True)}
    categories = [name for name in CATEGORIES if name != "qa"]
    config = {"categories": categories, "quota": QUOTA, "seed": 7, "max_swaps": None}
    selected, reports = select_prompts(table, embeddings, config)
    reports = {name: asdict(report) for name, report in reports.items()}
    table = compare(rows, embeddings, selected.to_pylist(), reports, theirs)
    return table.set_index("category")


def part(candidates: pa.Table) -> pa.Table:
    """The POOL lowest ids of each category and all of Spec-Bench; qa has nothing to choose from."""
    taken: Counter[str] = Counter()
    positions = []
    columns = ["category", "source"]
    for position, row in enumerate(candidates.select(columns).to_pylist()):
        taken[row["category"]] += 1
        wanted = taken[row["category"]] <= POOL or row["source"] == "spec_bench"
        if wanted and row["category"] != "qa":
            positions.append(position)
    return candidates.take(positions)


@pytest.mark.engine
def test_every_category_gives_its_quota(compared):
    assert len(compared) == 10
    assert (compared["selected"] == QUOTA).all()
    assert (compared["pool"] > QUOTA).all()


@pytest.mark.engine
def test_a_selection_is_less_alike_than_any_random_draw(compared):
    assert (compared["ours"] < compared["random_low"]).all()
    assert (compared["ours"] <= compared["greedy"]).all()
    assert (compared["bound"] <= compared["ours"]).all()


@pytest.mark.engine
def test_a_selection_is_less_alike_than_what_spec_bench_has(compared):
    theirs = compared["spec_bench"]
    assert compared["spec_bench_rows"].sum() == 400  # 480 less 80 of qa
    closer = theirs[theirs <= compared["ours"][theirs.index]]
    # Ten prompts for ten tasks, and no 80 of this pool of characters could be less alike.
    assert list(closer.index) == ["roleplay"]
    assert compared["bound"]["roleplay"] > theirs["roleplay"]
