"""The sources of the throughput split, on rows written here in the layout of the real ones."""

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collected import read_long_texts
from speedstudy.collect import (
    ada_leval,
    bamboo,
    collect,
    gutenberg,
    hle_few_shot,
    long_code_arena,
    repo_bench,
    writing_bench_long,
)
from speedstudy.collect.candidates import Dropped, LongText
from speedstudy.collect.long_rows import lowest_by_length

ROOT = Path(__file__).parents[1]


def config_of(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / "config/source" / f"{name}.yaml").read_text())
    return config


def options_of(name: str, **changes: Any) -> dict[str, Any]:
    return {**config_of(name)["options"], **changes}


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(adapter: Any, path: Path, options: dict[str, Any]) -> tuple[list[LongText], Counter[str]]:
    items = list(adapter.read("mine", {path.name: path}, options))
    texts = [item for item in items if isinstance(item, LongText)]
    return texts, Counter(item.reason for item in items if isinstance(item, Dropped))


def same_in_any_order(adapter: Any, path: Path, rows: list[Any], write: Any, options: Any) -> None:
    def texts() -> list[LongText]:
        return sorted(read(adapter, path, options)[0], key=lambda text: text.text_id)

    write(path, rows)
    before = texts()
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    assert shuffled != rows
    write(path, shuffled)
    assert texts() == before


def licences(folder: Path, **known: str) -> dict[str, str]:
    path = folder / "licences.yaml"
    path.write_text("".join(f"{repo}: {licence}\n" for repo, licence in known.items()))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"licences_file": str(path), "licences_sha256": digest}


# ---- which texts are kept


def text_of(chars: int, number: int) -> LongText:
    return LongText(
        text_id=f"{number:032x}", tier="mixed", title="", text="x" * chars, source="", licence=""
    )


def test_the_lowest_ids_of_each_length_are_kept_in_any_order() -> None:
    texts = [text_of(chars, number) for number, chars in enumerate([5, 10, 19, 20, 12, 90, 25])]
    for seed in range(5):
        random.Random(seed).shuffle(texts)
        items = list(lowest_by_length(texts, 2, [10, 20]))
        kept = {int(item.text_id, 16) for item in items if isinstance(item, LongText)}
        assert kept == {1, 2, 3, 5}  # 10 and 19 characters; 20 and 90
        reasons = Counter(item.reason for item in items if isinstance(item, Dropped))
        assert reasons == {"too_short": 1, "over_quota": 2}


# ---- RepoBench


def repo_bench_row(repo: str = "Ann/tool", path: str = "tool/main.py") -> dict[str, Any]:
    return {
        "repo_name": repo,
        "file_path": path,
        "context": [
            {"identifier": "used", "path": "tool/used.py", "snippet": "def used():\n    return 1"},
            {"identifier": "other", "path": "tool/other.py", "snippet": "OTHER = 2"},
        ],
        "import_statement": "from tool.used import used",
        "token_num": 60,
        "cropped_code": "def main():\n    value =",
        "all_code": "def main():\n    value = used()\n",
        "next_line": "    value = used()",
        "gold_snippet_index": 0,
        "created_at": "2023-11-01 10:00:00+00:00",
        "level": "2k",
    }


def repo_bench_options(folder: Path, **known: str) -> dict[str, Any]:
    return options_of("repo_bench_python", lengths=[10], **licences(folder, **known))


def test_repo_bench_ends_in_the_file_after_the_snippet_it_needs(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [repo_bench_row()])
    (text,), dropped = read(repo_bench, path, repo_bench_options(tmp_path, **{"ann/tool": "MIT"}))
    assert text.text == (
        "# Path: tool/other.py\nOTHER = 2\n\n# Path: tool/used.py\ndef used():\n    return 1\n\n"
    )
    assert text.closing == (
        "# Path: tool/main.py\nfrom tool.used import used\n\ndef main():\n    value =\n"
    )
    assert "value = used()" not in text.opening + text.text + text.closing  # never the next line
    assert (text.tier, text.licence, dropped) == ("low_entropy", "MIT", {})
    assert "Ann/tool" in text.opening


def test_code_of_repositories_without_a_known_free_licence_is_left_out(tmp_path: Path) -> None:
    rows = [repo_bench_row(repo) for repo in ("a/mit", "b/apache", "c/gpl", "d/unknown")]
    path = parquet(tmp_path / "rows.parquet", rows)
    known = {"a/mit": "MIT", "b/apache": "Apache-2.0", "c/gpl": "GPL-3.0"}
    options = repo_bench_options(tmp_path, **known)
    texts, dropped = read(repo_bench, path, options)
    assert {text.licence for text in texts} == {"MIT", "Apache-2.0"}
    assert dropped == {"licence_not_allowed": 1, "licence_unknown": 1}
    same_in_any_order(repo_bench, path, rows, parquet, options)


def test_the_file_of_licences_is_part_of_the_study(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [repo_bench_row()])
    options = repo_bench_options(tmp_path, **{"ann/tool": "MIT"})
    Path(options["licences_file"]).write_text("ann/tool: GPL-3.0\n")
    with pytest.raises(ValueError, match="set it after an edit of the file"):
        read(repo_bench, path, options)
    with pytest.raises(ValueError, match=r"no/such\.yaml is not there"):
        read(repo_bench, path, options | {"licences_file": "no/such.yaml"})


def test_the_shipped_file_of_licences_is_the_one_that_the_sources_name() -> None:
    digest = hashlib.sha256((ROOT / "config/repo_licences.yaml").read_bytes()).hexdigest()
    for name in ("repo_bench_python", "repo_bench_java", "long_code_arena"):
        options = config_of(name)["options"]
        assert options["licences_file"] == "config/repo_licences.yaml"
        assert options["licences_sha256"] == digest


def test_a_repo_bench_file_without_a_column_is_named(tmp_path: Path) -> None:
    row = repo_bench_row()
    del row["cropped_code"]
    path = parquet(tmp_path / "rows.parquet", [row])
    with pytest.raises(ValueError, match=r"source mine.*cropped_code"):
        read(repo_bench, path, repo_bench_options(tmp_path, **{"ann/tool": "MIT"}))


# ---- Long Code Arena


def arena_row(**changes: Any) -> dict[str, Any]:
    return {
        "repo": "ann__tool",
        "commit_hash": "c0ffee" * 6 + "0123",
        "completion_file": {
            "filename": "tool/sub/main.py",
            "content": "import os\n\ndef main():\n    return os.sep\n",
        },
        "completion_lines": {
            "infile": [3],
            "inproject": [],
            "common": [0],
            "commited": [],
            "non_informative": [1],
            "random": [],
        },
        "repo_snapshot": {
            "filename": ["tool/sub/near.py", "README.md", "far/away.py", "logo.svg"],
            "content": ["NEAR = 1", "A tool.", "AWAY = 1", "<svg/>"],
        },
        "completion_lines_raw": {"infile": [3]},
    } | changes


def test_long_code_arena_marks_lines_and_puts_near_files_last(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [arena_row()])
    options = options_of(
        "long_code_arena", lengths=[10], **licences(tmp_path, **{"ann/tool": "MIT"})
    )
    (text,), _ = read(long_code_arena, path, options)
    assert text.closing == (
        "# Path: tool/sub/main.py\n[COMPLETE]\n\ndef main():\n    [COMPLETE]\n\n"
    )
    assert text.text == (
        "# Path: README.md\nA tool.\n\n# Path: far/away.py\nAWAY = 1\n\n"
        "# Path: tool/sub/near.py\nNEAR = 1\n\n"
    )
    (shorter,), _ = read(long_code_arena, path, options | {"max_chars": 10})
    assert shorter.text == "NEAR = 1\n\n"


def test_long_code_arena_drops_rows_that_ask_for_nothing(tmp_path: Path) -> None:
    nothing = {name: [] for name in arena_row()["completion_lines"]} | {"infile": [99]}
    rows = [arena_row(completion_lines=nothing), arena_row(repo="bob__other")]
    path = parquet(tmp_path / "rows.parquet", rows)
    options = options_of(
        "long_code_arena", lengths=[10], **licences(tmp_path, **{"ann/tool": "MIT"})
    )
    texts, dropped = read(long_code_arena, path, options)
    assert texts == []
    assert dropped == {"no_line_to_complete": 1, "licence_unknown": 1}
    parquet(path, [{"repo": "ann__tool"}])
    with pytest.raises(ValueError, match=r"source mine.*commit_hash"):
        read(long_code_arena, path, options)


# ---- Ada-LEval


def json_list(path: Path, rows: list[Any]) -> Path:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def sort_row(number: int = 7) -> dict[str, Any]:
    return {
        "book_id": number,
        "para_offset": [10, 20, 30, 40],
        "answer": "[2, 1, 4, 3]",
        "prompt": "\n    Sort these. Answer like this:\n    Answer: [4, 1, 3, 2] \n\n\n\n"
        "Before: It rained.\n\n\nPart 1: So he slept.\n\n\nPart 2: He was tired.\n\n\n"
        "Part 3: He ate.\n\n\nPart 4: He woke.\n\n\nAfter: The end.\n\n\n",
    }


def test_text_sort_asks_for_the_text_and_not_for_the_order(tmp_path: Path) -> None:
    path = json_list(tmp_path / "textsort_1k.json", [sort_row()])
    options = options_of("ada_leval_textsort", lengths=[10])
    (text,), _ = read(ada_leval, path, options)
    assert text.text.startswith("Before: It rained.")
    assert text.text.endswith("After: The end.")
    whole = text.opening + text.text + text.closing
    assert "[4, 1, 3, 2]" not in whole
    assert "[2, 1, 4, 3]" not in whole
    assert (text.min_share, text.max_share) == (0.7, 2.0)
    json_list(path, [sort_row() | {"prompt": "Sort these."}])
    assert read(ada_leval, path, options) == ([], {"unknown_instruction": 1})
    json_list(path, [{"book_id": 7}])
    with pytest.raises(ValueError, match=r"textsort_1k\.json row 0: columns"):
        read(ada_leval, path, options)


def select_row(question_id: str = "17", best: str = "A2", count: int = 5) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question": f"\nHow do I sort a list? This is number {question_id}.\n",
        "all_answers": [f"\nanswer number {number}\n" for number in range(1, count + 1)],
        "answer": best,
        "tags": ["python"],
    }


def test_stack_select_keeps_the_best_answer_where_nothing_is_cut(tmp_path: Path) -> None:
    rows = [select_row(str(number)) for number in range(40)]
    path = json_list(tmp_path / "stackselect_1k.json", rows)
    options = options_of("ada_leval_stackselect", lengths=[10])
    texts, _ = read(ada_leval, path, options)
    after = Counter()
    for text in texts:
        assert "How do I sort a list?" in text.opening
        assert "answer number 2" in text.closing
        shown = text.text + text.closing
        names = [line[:-1] for line in shown.splitlines() if line[:1] == "A" and line[-1:] == ":"]
        assert names == ["A1", "A2", "A3", "A4", "A5"]
        after[text.closing.count("answer number") - 1] += 1
    assert set(after) == {0, 1, 2}  # where it stands tells nothing
    same_in_any_order(ada_leval, path, rows, json_list, options)


def test_stack_select_drops_rows_without_a_best_answer(tmp_path: Path) -> None:
    rows = [select_row(best="A6"), select_row(best="none"), select_row(best="A0")]
    rows.append(select_row() | {"all_answers": ["yes", None]})
    path = json_list(tmp_path / "stackselect_1k.json", rows)
    options = options_of("ada_leval_stackselect", lengths=[10])
    assert read(ada_leval, path, options) == ([], {"no_best_answer": 3, "not_text": 1})
    path.write_text("{}")
    with pytest.raises(ValueError, match="expected a list"):
        read(ada_leval, path, options)
    with pytest.raises(ValueError, match="textsort or stackselect"):
        read(ada_leval, path, options | {"task": "sort"})


# ---- HLE


def hle_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"id{number}",
        "question": f"question {number}?",
        "image": "",
        "answer": f"{number}",
        "answer_type": "exactMatch",
        "rationale": f"because {number}",
        "raw_subject": "Physics",
        "category": "Physics" if number % 2 else "Math",
    } | changes


def test_hle_examples_are_of_the_other_half_and_the_same_category(tmp_path: Path) -> None:
    rows = [hle_row(number) for number in range(60)]
    rows += [hle_row(99, image="data:image/png;base64,x")]
    path = parquet(tmp_path / "rows.parquet", rows)
    options = options_of("hle_few_shot", max_chars=300)
    texts, dropped = read(hle_few_shot, path, options)
    assert dropped == {"with_image": 1}
    asked = {text.title.split(", id")[1] for text in texts}
    assert 15 < len(asked) < 45  # about half of 60
    for text in texts:
        category, number = text.title.split(", id")
        assert text.closing == f"Question: question {number}?\n\nAnswer:"
        examples = [part.split("?")[0] for part in text.text.split("question ")[1:]]
        assert 300 <= len(text.text) < 400
        assert len(set(examples)) == len(examples)
        assert not set(examples) & asked
        assert {"Physics" if int(one) % 2 else "Math" for one in examples} == {category}
        assert f"because {number}\n" not in text.text
    assert len({text.text for text in texts}) == len(texts)
    same_in_any_order(hle_few_shot, path, rows, parquet, options)


def test_hle_without_rationale_or_column(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", [hle_row(n, rationale="") for n in range(20)])
    texts, dropped = read(hle_few_shot, path, options_of("hle_few_shot"))
    assert 0 < len(texts) == 20 - dropped["no_rationale"]
    parquet(path, [{"id": "1"}])
    with pytest.raises(ValueError, match="no column question"):
        read(hle_few_shot, path, options_of("hle_few_shot"))


# ---- BAMBOO


def dialogue(number: int) -> dict[str, Any]:
    content = f'"Hello {number}." said by Ann\n"Good day." said by Bob\n"Well {number}." said by '
    return {"content": content, "answer": "Ann"}


def test_bamboo_ends_in_its_own_dialogue_and_begins_with_others(tmp_path: Path) -> None:
    rows = [dialogue(number) for number in range(5)]
    path = lines(tmp_path / "meetingpred_4k.jsonl", rows)
    options = options_of("bamboo", max_chars=150)
    texts, _ = read(bamboo, path, options)
    assert len(texts) == 5
    for text in texts:
        number = text.closing.split()[1].rstrip('."')
        assert text.closing == f'"Well {number}." said by '
        assert text.text.count("Dialogue:\n") == 3  # some 70 characters each
        assert text.text.endswith(f'Hello {number}." said by Ann\n"Good day." said by Bob\n')
    same_in_any_order(bamboo, path, rows, lines, options)


def test_bamboo_damaged_rows(tmp_path: Path) -> None:
    path = lines(tmp_path / "showspred_4k.jsonl", [{"content": "one line", "answer": "Ann"}])
    assert read(bamboo, path, options_of("bamboo")) == ([], {"no_dialogue": 1})
    path.write_text('{"text": 1}\n')
    with pytest.raises(ValueError, match=r"columns \['text'\], expected \['answer', 'content'\]"):
        read(bamboo, path, options_of("bamboo"))


def test_bamboo_on_real_rows(shared: Path) -> None:
    path = shared / "data" / "bamboo" / "meetingpred_4k.jsonl.gz"
    texts, dropped = read(bamboo, path, options_of("bamboo"))
    assert len(texts) == 100
    assert dropped == {}
    assert all(text.closing.endswith(" said by ") for text in texts)
    assert all(len(text.text) > 160_000 for text in texts)


# ---- Gutenberg


def book(chars: int, name: str) -> dict[str, Any]:
    text = (
        f"Some licence.\r\n*** START OF THE PROJECT GUTENBERG EBOOK {name} ***\r\n\r\n"
        f"CHAPTER I of {name}\r\n"
        + "It was so. " * (chars // 11)
        + f"\r\n*** END OF THE PROJECT GUTENBERG EBOOK {name} ***\r\nMore licence."
    )
    metadata = {"title": name, "authors": "Ann Author", "language": "en"}
    return {"TEXT": text, "SOURCE": "gutenberg", "METADATA": json.dumps(metadata)}


def test_gutenberg_keeps_long_books_without_their_frame(tmp_path: Path) -> None:
    rows = [book(2000, "Emma"), book(9000, "Persuasion"), book(100, "A Note")]
    path = parquet(tmp_path / "rows.parquet", rows)
    options = options_of("gutenberg", min_chars=1500, max_chars=3000)
    texts, dropped = read(gutenberg, path, options)
    assert dropped == {"too_short": 1}
    assert {text.title for text in texts} == {"Ann Author: Emma", "Ann Author: Persuasion"}
    for text in texts:
        assert text.text.startswith("CHAPTER I of ")
        assert "licence" not in text.text
        assert "\r" not in text.text
        assert len(text.text) <= 3000
        assert text.windows
    same_in_any_order(gutenberg, path, rows, parquet, options)


def test_gutenberg_damaged_rows(tmp_path: Path) -> None:
    rows = [book(2000, "Emma") | {"TEXT": None}, book(2000, "Emma") | {"METADATA": "{"}]
    path = parquet(tmp_path / "rows.parquet", rows)
    (text,), dropped = read(gutenberg, path, options_of("gutenberg", min_chars=10))
    assert dropped == {"not_text": 1}
    assert len(text.title) == 16  # the hash of its text
    parquet(path, [{"text": "x"}])
    with pytest.raises(ValueError, match="no column TEXT"):
        read(gutenberg, path, options_of("gutenberg"))


# ---- WritingBench


def test_writing_bench_queries_are_padded_or_cut_within_bounds(tmp_path: Path) -> None:
    row = {"index": 3, "domain1": "Law", "domain2": "Brief", "lang": "en", "query": "Write it."}
    path = lines(tmp_path / "rows.jsonl", [row, row | {"index": 4, "lang": "zh"}])
    (text,), dropped = read(writing_bench_long, path, options_of("writing_bench_long"))
    assert (text.opening, text.text, text.closing) == ("", "Write it.", "")
    assert (text.min_share, text.max_share, text.windows) == (0.7, 2.0, False)
    assert dropped == {"not_english": 1}
    lines(path, [{"index": 3, "query": "Write it."}])
    with pytest.raises(ValueError, match="expected"):
        read(writing_bench_long, path, options_of("writing_bench_long"))


# ---- through the stage


def test_long_texts_are_counted_by_tier_and_written(tmp_path: Path) -> None:
    rows = [select_row(str(number), count=3) for number in range(3)]
    path = json_list(tmp_path / "stackselect_1k.json", rows)
    source = config_of("ada_leval_stackselect")
    source["options"]["lengths"] = [10]
    source["candidates"] = {"mixed": 3}
    report = collect(source, {path.name: path}, tmp_path / "out.parquet")
    assert report["by_tier"] == {"mixed": 3}
    texts = read_long_texts(tmp_path / "out.parquet")
    assert [text.text_id for text in texts] == sorted(text.text_id for text in texts)
    assert {text.max_share for text in texts} == {None}
