"""Layouts of other tools: what is written is what the published data set looks like."""

import argparse
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collected import read_candidates
from speedstudy import export_prompts
from speedstudy.collect import collect
from speedstudy.collect.candidates import (
    CANDIDATES_SCHEMA,
    SENTINEL,
    new_candidate,
    write_candidates,
)

ONE = new_candidate(
    source="spec_bench", src_id="spec_bench_40", category="coding", turns=["Write {x: 1}."]
)
TWO = new_candidate(
    source="own",
    src_id="1",
    category="roleplay",
    sub_category="guide",
    turns=["Bist du Führer?", "Und wo?"],
    difficulty="easy",
)
COLUMNS = [
    "question_id",
    "category",
    "sub_category",
    "turns",
    "source",
    "src_id",
    "difficulty",
    "multiturn",
]


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "selected.parquet"
    write_candidates(path, [ONE, TWO])
    return path


def export(prompts, layout, out):
    parser = argparse.ArgumentParser()
    export_prompts.add_arguments(parser)
    words = ["--prompts", str(prompts), "--layout", layout, "--out", str(out)]
    return export_prompts.run(parser.parse_args(words))


def test_hub_layout_has_the_published_columns_and_a_card(prompts, tmp_path):
    report = export(prompts, "hub", tmp_path / "hub")
    assert report["config"] == "qualitative"
    table = pq.read_table(tmp_path / "hub" / "qualitative" / "test-00000-of-00001.parquet")
    assert table.column_names == COLUMNS
    rows = {row["src_id"]: row for row in table.to_pylist()}
    assert rows["1"]["turns"] == ["Bist du Führer?", "Und wo?"]
    assert {key: row["multiturn"] for key, row in rows.items()} == {
        "spec_bench_40": False,
        "1": True,
    }
    header = (tmp_path / "hub" / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(header)["configs"] == [
        {
            "config_name": "qualitative",
            "data_files": [{"split": "test", "path": "qualitative/test-00000-of-00001.parquet"}],
        }
    ]


def test_nemo_layout_has_messages_in_place_of_turns(prompts, tmp_path):
    export(prompts, "nemo", tmp_path)
    lines = (tmp_path / "qualitative.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {row["src_id"]: row for row in map(json.loads, lines)}
    assert rows["1"]["messages"] == [
        {"role": "user", "content": "Bist du Führer?"},
        {"role": "user", "content": "Und wo?"},
    ]
    assert set(rows["1"]) == {*COLUMNS, "messages"} - {"turns"}


def test_a_bucket_is_named_after_its_length(tmp_path):
    row = {
        "question_id": "0" * 32,
        "category": "mixed",
        "turns": ["long"],
        "source": "own",
        "title": "chapter 1",
        "licence": "MIT",
        "n_tokens": 2000,
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "bucket.parquet")
    report = export(tmp_path / "bucket.parquet", "model-optimizer", tmp_path / "data" / "speed")
    path = tmp_path / "data" / "speed" / "throughput_2k" / "test.parquet"
    assert report == {"config": "throughput_2k", "file": str(path), "rows": 1}
    (written,) = pq.read_table(path).to_pylist()
    assert list(written) == COLUMNS
    assert written["src_id"] == "chapter 1"
    assert written["multiturn"] is False


# ---- the way back


def prepared(path, **more):
    source = {
        "name": "prepared_split",
        "version": 1,
        "adapter": "prepared_split",
        "gives": "prompts",
        "candidates": {},
        "counted": True,
        "options": {"licence": "theirs"},
        **more,
    }
    out = path.with_name("out.parquet")
    return collect(source, {path.name: path}, out), out


@pytest.mark.parametrize(
    ("layout", "file"),
    [("model-optimizer", "qualitative/test.parquet"), ("nemo", "qualitative.jsonl")],
)
def test_both_layouts_come_back_as_they_were(prompts, tmp_path, layout, file):
    export(prompts, layout, tmp_path)
    report, out = prepared(tmp_path / file)
    assert read_candidates(out) == read_candidates(prompts)
    assert report["by_category"] == {"coding": 1, "roleplay": 1}
    assert report["multiturn"] == 1


def published(**more):
    return {
        "question_id": "ab" * 16,
        "category": "stem",
        "sub_category": "Physics",
        "turns": ["Why is {x | x > 0} open?"],
        "source": "https://example.org/rows",
        "src_id": "7",
        "difficulty": "hard",
        "multiturn": True,  # as in the published file, where it contradicts the turns
        **more,
    }


def write_split(path, row):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row], schema=CANDIDATES_SCHEMA), path)
    else:
        messages = [{"role": "user", "content": turn} for turn in row.pop("turns")]
        path.write_text(json.dumps({**row, "messages": messages}) + "\n")
    return path


@pytest.mark.parametrize("name", ["test.parquet", "qualitative.jsonl"])
def test_published_ids_stay_and_braces_pass(tmp_path, name):
    _, out = prepared(write_split(tmp_path / name, published()))
    (row,) = read_candidates(out)
    assert (row.question_id, row.source, row.src_id) == ("ab" * 16, "https://example.org/rows", "7")
    assert row.turns == ("Why is {x | x > 0} open?",)
    assert not row.multiturn


@pytest.mark.parametrize("name", ["test.parquet", "qualitative.jsonl"])
@pytest.mark.parametrize("turns", [[SENTINEL], ["Hello", f"{SENTINEL}\n\n{{article}}"]])
def test_a_row_that_was_not_filled_in_is_refused_by_its_id(tmp_path, name, turns):
    path = write_split(tmp_path / name, published(turns=turns))
    with pytest.raises(ValueError, match=f"row {'ab' * 16}: placeholder; its text was not filled"):
        prepared(path)


def test_throughput_rows_become_long_texts(tmp_path):
    path = write_split(tmp_path / "test.parquet", published(category="mixed", sub_category=""))
    report, out = prepared(path, gives="long_text")
    assert report["by_tier"] == {"mixed": 1}
    (row,) = pq.read_table(out).to_pylist()
    assert row["text_id"] == "ab" * 16
    assert row["licence"] == "theirs"


def test_other_messages_and_columns_are_refused(tmp_path):
    row = published()
    del row["turns"]
    path = tmp_path / "agentic.jsonl"
    path.write_text(json.dumps({**row, "messages": [{"role": "assistant", "content": "Hi"}]}))
    with pytest.raises(ValueError, match="a message is not the user's"):
        prepared(path)
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match="neither a list `turns` nor a list `messages`; found cat"):
        prepared(path)
