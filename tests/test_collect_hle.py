import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy.collect.candidates import Candidate, keep_good
from speedstudy.collect.hle import read

# Self-written, in the columns of the published file.
ROW: dict[str, Any] = {
    "id": "0000000000000000000000a1",
    "question": "How many sides has a hexagon?",
    "image": "",
    "image_preview": None,
    "answer": "SECRET",
    "answer_type": "exactMatch",
    "author_name": "A. Nobody",
    "rationale": "SECRET too",
    "rationale_image": None,
    "raw_subject": "Geometry",
    "category": "Math",
    "canary": "none",
}


def rows_of(path: Path, rows: list[dict[str, Any]]) -> dict[str, Path]:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return {"data/test-00000-of-00001.parquet": path}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return ROW | {"id": f"{number:024x}", "question": f"Question {number}?"} | changes


def test_the_bare_question_is_the_prompt(tmp_path: Path) -> None:
    (item,) = read("hle", rows_of(tmp_path / "t.parquet", [ROW]), {})
    assert isinstance(item, Candidate)
    assert item.src_id == ROW["id"]
    assert (item.category, item.sub_category, item.difficulty) == ("math", "Geometry", "hard")
    assert item.turns == (ROW["question"],)


def test_the_pool_is_the_papers(tmp_path: Path) -> None:
    subjects = ["Physics", "Computer Science/AI", "Biology/Medicine", "Chemistry", "Engineering"]
    rows = [row(number, category=name) for number, name in enumerate(subjects)]
    rows += [
        row(10, category="Humanities/Social Science"),
        row(11, category="Other"),
        row(12, answer_type="multipleChoice"),
        row(13, image="data:image/png;base64,AAAA"),
        row(14, raw_subject=None),
    ]
    kept, dropped = keep_good(read("hle", rows_of(tmp_path / "t.parquet", rows), {}))
    assert {int(item.src_id, 16): item.category for item in kept} == {
        **dict.fromkeys(range(5), "stem"),
        10: "humanities",
        14: "math",
    }
    assert dropped == {"not_used_by_the_paper": 1, "no_exact_match_answer": 1, "with_image": 1}
    rows.reverse()
    random.Random(4).shuffle(rows)
    assert keep_good(read("hle", rows_of(tmp_path / "t.parquet", rows), {})) == (kept, dropped)


def test_damaged_rows_are_dropped_and_wrong_columns_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = [row(1), row(2, question=None), row(3, question="half a word\ufffd")]
    kept, dropped = keep_good(read("hle", rows_of(path, rows), {}))
    assert [item.turns for item in kept] == [("Question 1?",)]
    assert dropped == {"not_text": 1, "broken_text": 1}
    files = rows_of(path, [{"id": "1", "question": "Who?", "category": "Math"}])
    message = "source hle: t.parquet has no column image, answer_type, raw_subject; found id, que"
    with pytest.raises(ValueError, match=message):
        list(read("hle", files, {}))
