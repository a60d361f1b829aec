import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from speedstudy.collect.candidates import Candidate, Dropped
from speedstudy.collect.spec_bench import read

ROOT = Path(__file__).parents[1]

ROWS: list[dict[str, Any]] = [
    {"question_id": 81, "category": "writing", "turns": ["Write.", "Rewrite."]},
    {"question_id": 111, "category": "math", "turns": ["What is 2 + 2?", "And twice that?"]},
    {"question_id": 131, "category": "extraction", "turns": ["Rate it.", "As JSON."]},
    {"question_id": 161, "category": "translation", "turns": ["Translate German to English: Ja"]},
    {"question_id": 241, "category": "summarization", "turns": ["Summarize: ..."]},
    {"question_id": 321, "category": "qa", "turns": ["Who played Anna?"]},
    {"question_id": 435, "category": "math_reasoning", "turns": ["Jen has 3 pens. How many?"]},
    {"question_id": 436, "category": "math_reasoning", "turns": ["Tom has 5 cats. How many?"]},
    {"question_id": 480, "category": "math_reasoning", "turns": ["Alone."]},
    {"question_id": 481, "category": "rag", "turns": ["Forests cost. Question?"]},
]


def read_rows(tmp_path: Path, rows: Sequence[Any], **options: bool) -> list[Candidate | Dropped]:
    path = tmp_path / "question.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(read("spec_bench", {"data/spec_bench/question.jsonl": path}, options))


def test_rows_become_the_published_ids_categories_and_difficulties(tmp_path: Path) -> None:
    items = [item for item in read_rows(tmp_path, ROWS) if isinstance(item, Candidate)]
    assert [(i.src_id, i.category, i.sub_category, i.difficulty) for i in items] == [
        ("spec_bench_0", "writing", "", ""),
        ("111", "math", "", "medium"),
        ("spec_bench_50", "rag", "extraction", ""),
        ("spec_bench_240", "qa", "", ""),
        ("435_436", "math", "", "easy"),
        ("spec_bench_400", "rag", "rag", ""),
    ]
    pair = next(item for item in items if item.src_id == "435_436")
    assert pair.turns == ("Jen has 3 pens. How many?", "Tom has 5 cats. How many?")
    assert pair.multiturn


def test_unused_and_unpaired_rows_are_reported(tmp_path: Path) -> None:
    dropped = [item for item in read_rows(tmp_path, ROWS) if isinstance(item, Dropped)]
    assert Counter(item.reason for item in dropped) == {
        "not_used_by_the_paper": 2,
        "no_partner": 1,
    }


def test_all_rows_are_spec_bench_itself_in_the_papers_categories(tmp_path: Path) -> None:
    items = read_rows(tmp_path, ROWS, all_rows=True)
    assert [(i.src_id, i.category, len(i.turns)) for i in items if isinstance(i, Candidate)] == [
        ("spec_bench_0", "writing", 2),
        ("spec_bench_30", "math", 2),
        ("spec_bench_50", "rag", 2),
        ("spec_bench_80", "multilingual", 1),
        ("spec_bench_160", "summarization", 1),
        ("spec_bench_240", "qa", 1),
        ("spec_bench_354", "math", 1),
        ("spec_bench_355", "math", 1),
        ("spec_bench_399", "math", 1),
        ("spec_bench_400", "rag", 1),
    ]


def test_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    expected = read_rows(tmp_path, ROWS)
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    assert read_rows(tmp_path, shuffled) == expected


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question_id": 81, "turns": ["x"]}, r"columns \['question_id', 'turns'\]"),
        ({"question_id": "81", "category": "writing", "turns": ["x"]}, "must be an integer"),
        ({"question_id": 81, "category": "writing", "turns": "x"}, "turns a list"),
        ({"question_id": 81, "category": "qa", "turns": ["x"]}, "does not belong to this id"),
        ({"question_id": 9000, "category": "qa", "turns": ["x"]}, "row 9000"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rows(tmp_path, [ROWS[0], row])


def test_the_real_file_gives_the_papers_pools() -> None:
    shared = Path(os.environ.get("SPEEDSTUDY_SHARED", ROOT.parent / "shared"))
    path = shared / "data" / "spec_bench" / "question.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}; set SPEEDSTUDY_SHARED")
    items = list(read("spec_bench", {"question.jsonl": path}, {}))
    kept = [item for item in items if isinstance(item, Candidate)]
    assert Counter(item.category for item in kept) == {
        "coding": 10,
        "humanities": 10,
        "math": 50,
        "qa": 80,
        "rag": 90,
        "reasoning": 10,
        "roleplay": 10,
        "stem": 10,
        "writing": 10,
    }
    assert sum(item.multiturn for item in kept) == 120  # 8 x 10 of MT-Bench and 40 pairs
    assert len(items) - len(kept) == 160
