from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collected import read_candidates, read_long_texts
from speedstudy.collect import collect
from speedstudy.collect.candidates import (
    CATEGORIES,
    MAX_TURN_CHARS,
    SENTINEL,
    Candidate,
    Dropped,
    LongText,
    fault,
    identifier,
    keep_good,
    new_candidate,
    write_candidates,
    write_long_texts,
)


def prompt(*turns: str, src_id: str = "a", category: str = "qa") -> Candidate:
    return new_candidate(source="s", src_id=src_id, category=category, turns=turns)


def long_text(text: str, tier: str = "mixed", text_id: str = "0") -> LongText:
    return LongText(
        text_id=text_id, tier=tier, title="t", text=text, source="s", licence="Apache-2.0"
    )


def test_identifier_is_the_start_of_a_sha256_over_source_and_key() -> None:
    # printf 'spec_bench\nspec_bench_0' | sha256sum
    assert identifier("spec_bench", "spec_bench_0") == "e01d1ceff1d9e23fe54304dce0b50f72"
    assert identifier("a", "bc") != identifier("ab", "c")


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("x" * (MAX_TURN_CHARS + 1), "too_long"),
        ("caf\ufffd", "broken_text"),
        ("half an emoji \ud83d", "broken_text"),
        ("a\x00b", "broken_text"),
        (SENTINEL, "placeholder"),
        (f"{SENTINEL}\n\nSummarize: {{article}}", "placeholder"),
        ("Translate from German: {question[de]}", "placeholder"),
        ("{question}\n{starter_code}", "placeholder"),
        ("You are {role_name}. {role_description_and_catchphrases}", "placeholder"),
    ],
)
def test_bad_turns_are_refused_wherever_they_stand(turn: str, reason: str) -> None:
    assert fault(prompt(turn)) == reason
    assert fault(prompt("Hello", turn)) == reason


@pytest.mark.parametrize(
    "turn",
    [
        "Put the final answer in brackets like so {answer here}.",
        "Which variables has the template 'Summarize: {article}, {question[de]}'?",
        'print(f"{name}: {value}")',
        "Is {1, 2, 3} a subset of {question, answer, 1, 2, 3}?",
        '{"question": {"text": "Who?"}}',
        "日本語の質問です。",
        "👩‍🚀 wrote this",
    ],
)
def test_real_prompts_with_braces_and_scripts_pass(turn: str) -> None:
    assert fault(prompt(turn)) is None


def test_turns_must_be_strings_and_there_must_be_one() -> None:
    assert fault(replace(prompt("x"), turns=())) == "no_turns"
    assert fault(replace(prompt("x"), turns=(7,))) == "not_text"  # type: ignore[arg-type]


def test_a_category_or_tier_of_nobody_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ValueError, match="source s: category 'poetry' is none of coding"):
        fault(prompt("x", category="poetry"))
    with pytest.raises(ValueError, match="tier 'low'"):
        fault(long_text("x", tier="low"))


def test_duplicates_leave_the_lowest_id_and_are_counted() -> None:
    twins = [prompt("same", src_id=key) for key in "abc"]
    lowest = min(twins, key=lambda item: item.question_id)
    kept, dropped = keep_good([*twins, Dropped(src_id="d", reason="damaged_row"), prompt("")])
    assert kept == [lowest]
    assert dropped == {"duplicate": 2, "damaged_row": 1, "empty": 1}


def test_a_refused_row_is_named(caplog: pytest.LogCaptureFixture) -> None:
    keep_good([prompt(SENTINEL, src_id="row 7"), prompt("f'{x}' is {1, 2}")])
    (line,) = caplog.messages
    assert "row 7" in line
    assert line.endswith("refused: placeholder")


def test_two_contents_under_one_id_are_an_error() -> None:
    with pytest.raises(ValueError, match="two different rows have the id"):
        keep_good([prompt("one"), prompt("two")])


@given(st.permutations([*"abcdefgh"]))
def test_the_order_of_the_rows_changes_nothing(keys: list[str]) -> None:
    def rows(order: list[str]) -> list[Candidate]:
        return [prompt("same" if key in "cf" else key, src_id=key) for key in order]

    assert keep_good(rows(keys)) == keep_good(rows([*"abcdefgh"]))


def test_candidates_survive_the_file_sorted_by_id(tmp_path: Path) -> None:
    items = [prompt("one", "two", src_id="a"), prompt("one", src_id="b", category="roleplay")]
    write_candidates(tmp_path / "c.parquet", items)
    assert read_candidates(tmp_path / "c.parquet") == sorted(items, key=lambda i: i.question_id)
    table = pq.read_table(tmp_path / "c.parquet").to_pylist()
    assert {row["src_id"]: row["multiturn"] for row in table} == {"a": True, "b": False}
    assert [p.name for p in tmp_path.iterdir()] == ["c.parquet"]


def test_long_texts_survive_the_file(tmp_path: Path) -> None:
    texts = [long_text("b", text_id="1"), long_text("a", text_id="0")]
    write_long_texts(tmp_path / "t.parquet", texts)
    assert read_long_texts(tmp_path / "t.parquet") == [texts[1], texts[0]]


def test_the_categories_are_the_papers_eleven() -> None:
    assert len(CATEGORIES) == len(set(CATEGORIES)) == 11


def test_collect_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"src_id": "a", "category": "qa", "sub_category": "", "turns": ["Who?"]}\n')
    source = {
        "name": "mine",
        "version": 1,
        "adapter": "embedded",
        "gives": "prompts",
        "candidates": {"qa": 1},
        "counted": True,
        "options": {},
    }
    files = {path.name: path}
    report = collect(source, files, tmp_path / "out.parquet")
    assert report == {
        "source": "mine",
        "version": 1,
        "rows": 1,
        "by_category": {"qa": 1},
        "multiturn": 0,
        "dropped": {},
    }
    with pytest.raises(ValueError, match="source mine: no adapter 'nobody'; there are "):
        collect(source | {"adapter": "nobody"}, files, tmp_path / "out.parquet")
    with pytest.raises(ValueError, match="'rag': '0 of 3'"):
        collect(source | {"candidates": {"rag": 3}}, files, tmp_path / "out.parquet")
    guess = source | {"candidates": {"qa": 2}, "counted": False}
    with pytest.raises(ValueError, match=r"'1 of 2'.*set {'qa': 1} and counted: true in .*mine"):
        collect(guess, files, tmp_path / "out.parquet")
    with pytest.raises(ValueError, match="`gives` does not fit"):
        collect(source | {"gives": "long_text"}, files, tmp_path / "out.parquet")
    path.write_text('{"src_id": "a", "prompt": "Who?"}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 1: columns \['prompt', 'src_id'\]"):
        collect(source, files, tmp_path / "out.parquet")
    path.write_text('\n{"src_id": "a", \n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2: no JSON"):
        collect(source, files, tmp_path / "out.parquet")
