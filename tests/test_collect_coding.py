import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy.collect import code_contests, human_eval_pack, live_code_bench
from speedstudy.collect.candidates import Candidate, keep_good
from speedstudy.collect.draw import draw

# Self-written rows in the columns of the published files.

LIVE_CODE_BENCH = {
    "question_title": "Even Steps",
    "question_content": "Count the even numbers up to n.",
    "platform": "atcoder",
    "question_id": "abc999_a",
    "contest_id": "abc999",
    "contest_date": "2024-09-07T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": "[]",
    "private_test_cases": "eJwDAAAAAAE=",
    "metadata": "{}",
}
LEET_CODE = LIVE_CODE_BENCH | {
    "question_id": "9999",
    "platform": "leetcode",
    "starter_code": "class Solution:\n    def evens(self, n: int) -> int:\n        ",
    "difficulty": "medium",
}
HUMAN_EVAL_PACK = {
    "task_id": "Python/999",
    "prompt": 'def double(x: int) -> int:\n    """Return twice x."""\n',
    "declaration": "def double(x: int) -> int:\n",
    "canonical_solution": "    return 2 * x\n",
    "buggy_solution": "    return 3 * x\n",
    "bug_type": "value misuse",
    "failure_symptoms": "incorrect output",
    "entry_point": "double",
    "import": "",
    "test_setup": "",
    "test": "assert double(2) == 4\n",
    "example_test": "",
    "signature": "double(x: int) -> int",
    "docstring": "Return twice x.",
    "instruction": "Write a function `double`.",
}


def contest(name: str, difficulty: int, description: str | None = "Add two numbers.") -> dict:
    return {
        "name": name,
        "description": description,
        "public_tests": {"input": ["1 2"], "output": ["3"]},
        "source": 2,
        "difficulty": difficulty,
        "solutions": {"language": [3], "solution": ["SECRET"]},
    }


def json_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_draws_are_as_likely_and_independent() -> None:
    keys = [str(number) for number in range(6000)]
    languages = Counter(draw(live_code_bench.LANGUAGES, "language", key) for key in keys)
    # 1000 of each expected, standard deviation 29.
    assert set(languages) == set(live_code_bench.LANGUAGES)
    assert all(850 < count < 1150 for count in languages.values())
    pairs = {(draw((0, 1), "a", key), draw((0, 1), "b", key)) for key in keys[:64]}
    assert len(pairs) == 4


def test_live_code_bench_asks_for_a_program_in_one_language(tmp_path: Path) -> None:
    files = {
        "test.jsonl": json_lines(tmp_path / "test.jsonl", [LIVE_CODE_BENCH]),
        "test2.jsonl": json_lines(tmp_path / "test2.jsonl", [LEET_CODE]),
    }
    first, second = live_code_bench.read("live_code_bench", files, {})
    assert isinstance(first, Candidate)
    assert isinstance(second, Candidate)
    assert (first.src_id, first.category, first.difficulty) == ("abc999_a", "coding", "easy")
    assert first.turns[0].endswith("\n\nCount the even numbers up to n.")
    assert second.turns[0].endswith(f"\n\n{LEET_CODE['starter_code']}")
    for item in (first, second):
        request = item.turns[0].split("\n")[0]
        named = [name for name in live_code_bench.LANGUAGES if f"in {name} " in request]
        assert len(named) == 1
        assert "private" not in item.turns[0]


def test_live_code_bench_names_or_drops_what_is_damaged(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "test.jsonl", [LIVE_CODE_BENCH | {"question_content": None}])
    kept, dropped = keep_good(live_code_bench.read("lcb", {"test.jsonl": path}, {}))
    assert (kept, dropped) == ([], {"damaged_row": 1})
    json_lines(path, [LIVE_CODE_BENCH, {"question_id": "x", "prompt": "y"}])
    with pytest.raises(ValueError, match=r"source lcb: .*line 2: columns \['prompt', 'question_"):
        list(live_code_bench.read("lcb", {"test.jsonl": path}, {}))


def test_code_contests_difficulties_are_the_papers(tmp_path: Path) -> None:
    # Class labels: 0 unknown, 1-5 easy to hardest, 6 external, 7 A, ..., 28 V.
    labels = {0: "", 1: "easy", 2: "medium", 3: "hard", 4: "hard", 5: "hard", 6: ""}
    labels |= {7: "easy", 15: "easy", 16: "medium", 23: "medium", 24: "hard", 28: "hard"}
    rows = [contest(f"9999_{label}. Sum", label, f"Problem {label}.") for label in labels]
    files = {"test.parquet": parquet(tmp_path / "test.parquet", rows)}
    items = [i for i in code_contests.read("cc", files, {}) if isinstance(i, Candidate)]
    assert {item.src_id: item.difficulty for item in items} == {
        f"9999_{label}. Sum": difficulty for label, difficulty in labels.items()
    }
    assert all(item.category == "coding" and "SECRET" not in item.turns[0] for item in items)
    assert items[0].turns[0].endswith(" program for the contest problem below.\n\nProblem 0.")
    assert {item.turns[0].split()[2] for item in items} <= set(code_contests.LANGUAGES)


def test_code_contests_names_or_drops_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "test.parquet"
    files = {"data/test.parquet": path}
    parquet(path, [contest("a", 7), contest("b", 7, None), contest("c", 7, " ")])
    kept, dropped = keep_good(code_contests.read("cc", files, {}))
    assert [item.src_id for item in kept] == ["a"]
    assert dropped == {"damaged_row": 2}
    parquet(path, [contest("a", 29)])
    with pytest.raises(ValueError, match="source cc: row 'a' has difficulty 29"):
        list(code_contests.read("cc", files, {}))
    parquet(path, [{"name": "a", "statement": "?"}])
    message = "source cc: test.parquet has no column description, difficulty; found name, statement"
    with pytest.raises(ValueError, match=message):
        list(code_contests.read("cc", files, {}))
    path.write_text("<html>")
    with pytest.raises(ValueError, match=r"source cc: .* is no parquet file"):
        list(code_contests.read("cc", files, {}))


def test_human_eval_pack_gives_the_completion_prompt_as_it_is(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "humanevalpack.jsonl", [HUMAN_EVAL_PACK])
    (item,) = human_eval_pack.read("hep", {"data/python/data/humanevalpack.jsonl": path}, {})
    assert isinstance(item, Candidate)
    assert (item.src_id, item.category) == ("Python/999", "coding")
    assert item.turns == (HUMAN_EVAL_PACK["prompt"],)


def test_human_eval_pack_names_or_drops_what_is_damaged(tmp_path: Path) -> None:
    files = {"h.jsonl": json_lines(tmp_path / "h.jsonl", [HUMAN_EVAL_PACK | {"prompt": 7}])}
    assert keep_good(human_eval_pack.read("hep", files, {})) == ([], {"not_text": 1})
    json_lines(tmp_path / "h.jsonl", [{"task_id": "Python/1"}])
    with pytest.raises(ValueError, match=r"source hep: .*line 1: columns \['task_id'\]"):
        list(human_eval_pack.read("hep", files, {}))


def test_order_of_rows_and_files_does_not_matter(tmp_path: Path) -> None:
    rows = [
        LIVE_CODE_BENCH | {"question_id": f"abc{i}", "question_content": f"{i}?"} for i in "xyz"
    ]
    rows += [LEET_CODE]
    contests = [contest(f"{number}", 7, f"Add {number}.") for number in range(8)]

    def collected(order: random.Random) -> list[Any]:
        lcb = json_lines(tmp_path / "l.jsonl", order.sample(rows, len(rows)))
        cc = parquet(tmp_path / "c.parquet", order.sample(contests, len(contests)))
        return [
            keep_good(live_code_bench.read("lcb", {"l.jsonl": lcb}, {})),
            keep_good(code_contests.read("cc", {"c.parquet": cc}, {})),
        ]

    assert collected(random.Random(1)) == collected(random.Random(2))


def test_the_problems_of_human_eval_x_stand_in(shared: Path) -> None:
    files = {path.name: path for path in (shared / "data/humaneval_x").glob("*.jsonl.gz")}
    kept, dropped = keep_good(human_eval_pack.read("human_eval_pack", files, {}))
    languages = Counter(item.src_id.split("/")[0] for item in kept)
    # Three Rust prompts come twice.
    assert languages.pop("Rust") == 161
    assert set(languages.values()) == {164}
    assert len(languages) == 5
    assert dropped == {"duplicate": 3}
    with gzip.open(files["humaneval_go.jsonl.gz"]) as lines:
        row = next(json.loads(line) for line in lines if b'"Go/27"' in line)
    assert next(item for item in kept if item.src_id == "Go/27").turns == (row["prompt"],)
