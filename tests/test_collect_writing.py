import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from speedstudy.collect import creative_writing, writing_bench
from speedstudy.collect.candidates import Candidate, keep_good

QUERY: dict[str, Any] = {
    "index": 7,
    "domain1": "Education",
    "domain2": "Lesson plan",
    "lang": "en",
    "query": "Plan a lesson about tides for ten-year-olds.",
    "checklist": [{"name": "SECRET"}],
}
FULL = {"lang_column": "lang"}
SUBSET = {"lang_column": None}


def json_lines(path: Path, rows: list[Any]) -> dict[str, Path]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"benchmark_query/benchmark_all.jsonl": path}


def test_an_english_query_is_the_prompt(tmp_path: Path) -> None:
    files = json_lines(tmp_path / "b.jsonl", [QUERY, QUERY | {"index": 8, "lang": "zh"}])
    kept, dropped = keep_good(writing_bench.read("wb", files, FULL))
    assert [(item.src_id, item.category, item.sub_category) for item in kept] == [
        ("writing_bench_7", "writing", "Education")
    ]
    assert kept[0].turns == (QUERY["query"],)
    assert dropped == {"not_english": 1}


def test_without_a_language_column_chinese_characters_tell(tmp_path: Path) -> None:
    rows = [
        {name: value for name, value in row.items() if name != "lang"}
        for row in (QUERY, QUERY | {"index": 8, "query": "请写一份教案。"})
    ]
    files = json_lines(tmp_path / "b.jsonl", rows)
    kept, dropped = keep_good(writing_bench.read("wb", files, SUBSET))
    assert [item.src_id for item in kept] == ["writing_bench_7"]
    assert dropped == {"not_english": 1}
    with pytest.raises(ValueError, match=r"source wb: .*line 1: columns \['checklist', 'domain1'"):
        list(writing_bench.read("wb", files, FULL))


def test_a_damaged_query_is_dropped(tmp_path: Path) -> None:
    rows = [QUERY, QUERY | {"index": 8, "query": None}, QUERY | {"index": 9, "query": ""}]
    kept, dropped = keep_good(
        writing_bench.read("wb", json_lines(tmp_path / "b.jsonl", rows), FULL)
    )
    assert [item.src_id for item in kept] == ["writing_bench_7"]
    assert dropped == {"not_text": 1, "empty": 1}


def test_the_subset_has_124_english_queries(shared: Path) -> None:
    path = shared / "data/writingbench/length_subset.jsonl.gz"
    kept, dropped = keep_good(writing_bench.read("wb", {path.name: path}, SUBSET))
    assert len(kept) == 124
    assert dropped == {"not_english": 98}


PROMPT: dict[str, Any] = {
    "category": "gothic fable",
    "title": "The Kettle",
    "writing_prompt": "Write of a kettle. <SEED> It sings. <SEED> 500 words.",
    "seed_modifiers": ["It rains.", "It is cold.", "It rains."],
}


def prompts(path: Path, value: Any) -> dict[str, Path]:
    path.write_text(json.dumps(value), encoding="utf-8")
    return {"data/creative_writing_prompts_v3.json": path}


def test_each_modifier_takes_every_mark(tmp_path: Path) -> None:
    files = prompts(tmp_path / "p.json", {"3": PROMPT})
    kept, dropped = keep_good(creative_writing.read("cw", files, {}))
    assert {item.turns[0] for item in kept} == {
        "Write of a kettle. It rains. It sings. It rains. 500 words.",
        "Write of a kettle. It is cold. It sings. It is cold. 500 words.",
    }
    assert {(item.category, item.sub_category) for item in kept} == {("writing", "gothic fable")}
    assert all(item.src_id.startswith("creative_writing_v3_3_") for item in kept)
    assert dropped == {"duplicate": 1}


def test_order_of_the_writing_rows_does_not_matter(tmp_path: Path) -> None:
    rows = [QUERY | {"index": number, "query": f"Write page {number}."} for number in range(6)]
    ids = {str(number): PROMPT | {"writing_prompt": f"{number} <SEED>"} for number in range(6)}

    def collected(order: random.Random) -> list[Any]:
        shuffled = {
            key: ids[key] | {"seed_modifiers": order.sample(PROMPT["seed_modifiers"], 3)}
            for key in order.sample(sorted(ids), len(ids))
        }
        queries = json_lines(tmp_path / "b.jsonl", order.sample(rows, len(rows)))
        return [
            keep_good(writing_bench.read("wb", queries, FULL)),
            keep_good(creative_writing.read("cw", prompts(tmp_path / "p.json", shuffled), {})),
        ]

    assert collected(random.Random(1)) == collected(random.Random(2))


def test_creative_writing_names_or_drops_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    files = prompts(path, {"1": PROMPT | {"writing_prompt": None}, "2": PROMPT})
    kept, dropped = keep_good(creative_writing.read("cw", files, {}))
    assert len(kept) == 2
    assert dropped == {"damaged_row": 1, "duplicate": 1}
    with pytest.raises(ValueError, match=r"source cw: .*prompt 1: columns \['title'\], expected"):
        list(creative_writing.read("cw", prompts(path, {"1": {"title": "x"}}), {}))
    with pytest.raises(ValueError, match=r"source cw: .*holds a list, expected a dict"):
        list(creative_writing.read("cw", prompts(path, [PROMPT]), {}))


def test_the_real_prompts_give_320_different_variants(shared: Path) -> None:
    path = shared / "data/creative_writing_v3/creative_writing_prompts_v3.json"
    items = list(creative_writing.read("cw", {path.name: path}, {}))
    assert len(items) == 321
    kept, dropped = keep_good(items)
    assert len(kept) == 320
    assert dropped == {"duplicate": 1}
    assert not any("<SEED>" in item.turns[0] for item in kept)
    genres = Counter(item.sub_category for item in items if isinstance(item, Candidate))
    assert genres["historical fiction"] == 20
