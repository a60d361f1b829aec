"""A skipped source: the graph stays, every stage goes on with what is left and says so."""

import argparse
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from speedstudy import bucket, collect, select, tokenize
from speedstudy.cells import Cell
from speedstudy.collect.candidates import (
    LongText,
    new_candidate,
    write_candidates,
    write_long_texts,
)
from speedstudy.coverage import coverage, in_words, read_note
from speedstudy.tables import write_embeddings
from tiny_tokenizer import write_tiny_tokenizer

SKIPPED = {
    "name": "hle",
    "version": 1,
    "adapter": "hle",
    "gives": "prompts",
    "candidates": {"stem": 90, "math": 90},
    "options": {},
}
CONFIG = {"categories": ["qa", "math", "stem"], "quota": 2, "seed": 7, "max_swaps": None}
NOTE = {
    "missing": {"hle": "no token"},
    "categories": {
        "math": {"wanted": 2, "pool": 1, "selected": 1, "missing": ["hle"]},
        "stem": {"wanted": 2, "pool": 0, "selected": 0, "missing": ["hle"]},
    },
}


def run(stage, *words):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    return stage.run(parser.parse_args([str(word) for word in words]))


def skip(folder, source=SKIPPED):
    """What `collect` makes of an artifact that `fetch` skipped."""
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"files": {}, "missing": "no token"}))
    out = folder / f"{source['name']}.parquet"
    words = ("--config", json.dumps(source), "--manifest", manifest, "--out", out)
    return run(collect, *words), out


@pytest.fixture
def selected(tmp_path):
    """Three questions and one of maths are there; the source of maths and stem is not."""
    _, missing = skip(tmp_path)
    rows = [
        new_candidate(source="own", src_id=str(number), category=category, turns=[f"Tell {number}"])
        for number, category in enumerate(("qa", "qa", "qa", "math"))
    ]
    own = tmp_path / "own.parquet"
    write_candidates(own, rows)
    write_embeddings(
        tmp_path / "own.npz", [row.question_id for row in rows], np.eye(4, dtype=np.float32)
    )
    write_embeddings(tmp_path / "hle.npz", [], np.empty((0, 0), dtype=np.float32))
    report = run(
        select,
        *("--config", json.dumps(CONFIG), "--candidates", missing, own),
        *("--embeddings", tmp_path / "hle.npz", tmp_path / "own.npz"),
        *("--out", tmp_path / "selected.parquet", "--report", tmp_path / "selected.json"),
    )
    return report, tmp_path / "selected.parquet"


def test_collect_leaves_an_empty_file_that_says_what_it_would_have_given(tmp_path):
    report, out = skip(tmp_path)
    assert report == {"source": "hle", "version": 1, "rows": 0, "missing": "no token"}
    assert pq.read_table(out).num_rows == 0
    assert read_note(out) == {
        "source": "hle",
        "reason": "no token",
        "categories": ["math", "stem"],
    }


def test_selection_takes_what_is_left_of_the_categories_it_touches(selected):
    report, out = selected
    assert [row["category"] for row in pq.read_table(out).to_pylist()] == ["qa", "qa", "math"]
    assert report["coverage"] == read_note(out) == NOTE


def test_a_short_pool_stays_an_error_where_nothing_was_skipped(tmp_path, selected):
    own, embeddings = tmp_path / "own.parquet", tmp_path / "own.npz"
    words = ("--candidates", own, "--embeddings", embeddings, "--out", "x", "--report", "y")
    with pytest.raises(ValueError, match="category math: 1 candidates"):
        run(select, "--config", json.dumps(CONFIG), *words)


def test_a_workload_is_made_of_what_is_left_and_carries_the_note(tmp_path, selected):
    _, prompts = selected
    config = {
        "workload": {"kind": "qualitative", "ids": "real", "bucket": None},
        "categories": CONFIG["categories"],
        "requests": 6,
        "warmup": 0,
        "seed": 7,
    }
    report = run(
        tokenize,
        *("--config", json.dumps(config), "--prompts", prompts),
        *("--tokenizer", write_tiny_tokenizer(tmp_path / "tokenizer")),
        *("--out", tmp_path / "w.parquet", "--warmup-out", tmp_path / "warm.parquet"),
    )
    assert report["prompts"] == 3
    assert read_note(tmp_path / "w.parquet") == NOTE


def test_a_bucket_takes_what_is_left_of_the_tiers_it_touches(tmp_path):
    source = {**SKIPPED, "gives": "long_text", "candidates": {"mixed": 600}}
    _, missing = skip(tmp_path, source)
    texts = [
        LongText(
            text_id=str(number),
            tier="low_entropy",
            title=str(number),
            text="Answer now please.\n" * 30,
            source="own",
            licence="MIT",
        )
        for number in range(2)
    ]
    write_long_texts(tmp_path / "own.parquet", texts)
    config = {"name": "1k", "length": 16, "per_tier": 2, "tiers": ["low_entropy", "mixed"]}
    run(
        bucket,
        *(
            "--config",
            json.dumps({**config, "seed": 7, "when_short": "error"}),
            "--out",
            tmp_path / "bucket.parquet",
        ),
        *("--texts", missing, tmp_path / "own.parquet"),
        *("--tokenizer", write_tiny_tokenizer(tmp_path / "tokenizer")),
    )
    assert pq.read_table(tmp_path / "bucket.parquet").num_rows == 2
    assert read_note(tmp_path / "bucket.parquet")["categories"] == {
        "mixed": {"wanted": 2, "pool": 0, "selected": 0, "missing": ["hle"]}
    }


def test_every_table_says_it_in_words(tmp_path):
    assert in_words(NOTE) == "without hle: math 1 of 2 (pool 1), stem 0 of 2 (pool 0)"
    assert in_words(None) is None
    assert coverage([], wanted={"qa": 2}, pool={"qa": 3}, selected={"qa": 2}) is None
    record = {
        "cell_id": "a",
        "cell": {
            "engine": {"name": "e"},
            "target": {"name": "t"},
            "drafter": {"method": "none"},
            "load": {"name": "l", "workload": {"kind": "qualitative"}, "concurrency": 1}
            | {"max_tokens": 8},
            "sampling": {"temperature": 0},
            "repeat": 1,
        },
        "workload": {"name": "w", "coverage": NOTE},
    }
    assert Cell(tmp_path, record).identity()["coverage"] == in_words(NOTE)
    del record["workload"]["coverage"]  # a record of before
    assert Cell(tmp_path, record).identity()["coverage"] is None
