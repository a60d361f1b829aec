"""Texts of an exact length in tokens."""

import argparse
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedstudy import bucket as stage
from speedstudy.lengths import PADDING, Encoder, cut, fit, load_encoder
from tiny_tokenizer import CORPUS, write_tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(str(folder))


def characters(ids):
    return "".join(chr(i) for i in ids)


# One token a character: what a cut must give can be counted by hand.
BY_CHARACTER = Encoder("characters", lambda text: [ord(c) for c in text], characters)
# One token a word, whatever the white space: it does not give its text back.
BY_WORD = Encoder("words", lambda text: list(range(len(text.split()))), lambda ids: "?")
# Three tokens for a fox, which no cut can divide.
FOX = Encoder(
    "fox",
    lambda text: [ord(c) for c in text.replace("🦊", "\1\2\3")],
    lambda ids: re.sub("[\1\2]+", "\ufffd", characters(ids).replace("\1\2\3", "🦊")),
)


def test_a_long_text_is_cut_and_a_short_one_padded():
    assert fit("abcdefgh", BY_CHARACTER, 5) == "abcde"
    assert fit("abcde", BY_CHARACTER, 5) == "abcde"
    assert fit("abc", BY_CHARACTER, 5) == "abcAn"
    assert fit("", BY_CHARACTER, 20) == PADDING + "A"  # the padding has 19 characters
    assert cut("abc", BY_CHARACTER, 5) is None
    assert cut("abcdef", BY_CHARACTER, 5) == "abcde"


def test_a_tokenizer_that_loses_text_still_gives_the_count():
    text = fit("one  two\nthree four five", BY_WORD, 3)
    assert text.split() == ["one", "two", "three"]
    assert fit("one", BY_WORD, 4).split() == ["oneAnswer", "now", "please.", "Answer"]


def test_where_no_cut_gives_the_count_the_text_ends_earlier_and_is_padded():
    # Cuts of foxes have 3, 6, 9 ... tokens: for 7, two foxes and one character of padding.
    assert fit("🦊" * 9, FOX, 7) == "🦊🦊A"


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet="ab \n.,é漢🦊👩‍👧0123\u0301", max_size=120)
    | st.lists(st.sampled_from(CORPUS), max_size=12).map(" ".join),
    length=st.integers(1, 90),
)
def test_count_is_exact_and_no_character_is_broken(encoder, text, length):
    fitted = fit(text, encoder, length)
    assert len(encoder.encode(fitted)) == length
    assert "\ufffd" not in fitted
    common = next((i for i, (a, b) in enumerate(zip(text, fitted, strict=False)) if a != b), None)
    assert common is None or PADDING.startswith(fitted[common : common + len(PADDING)][:1])


def test_only_the_needed_part_of_a_long_text_is_encoded():
    longest = 0

    def encode(text):
        nonlocal longest
        longest = max(longest, len(text))
        return [ord(c) for c in text]

    counting = Encoder("counting", encode, characters)
    assert fit("x" * 1_000_000, counting, 100) == "x" * 100
    assert longest < 1_000


def test_text_that_only_looks_like_a_special_token_is_counted(encoder):
    text = "<|im_start|>user\n" * 50
    assert len(encoder.encode(fit(text, encoder, 33))) == 33


def test_unknown_tokenizers_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="give o200k_base, a folder"):
        load_encoder("no/such/place")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be read"):
        load_encoder(str(tmp_path))

    def offline(name):
        raise OSError("no network")

    monkeypatch.setattr("tiktoken.get_encoding", offline)
    with pytest.raises(ValueError, match="set TIKTOKEN_CACHE_DIR"):
        load_encoder("o200k_base")


# ---- the command on a text file


def run_stage(*words):
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    return stage.run(parser.parse_args([str(word) for word in words]))


def test_rows_of_a_file_keep_their_order(tmp_path, folder, encoder):
    rows = [{"id": "b", "text": CORPUS[0] * 9}, {"id": 7, "text": "short 🦊"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    command = ("--texts", tmp_path / "in.jsonl", "--length", 40, "--out", tmp_path / "out.jsonl")
    assert run_stage(*command, "--tokenizer", folder / "tokenizer.json") == {
        "rows": 2,
        "n_tokens": 40,
    }
    answer = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["n_tokens"]) for row in answer] == [("b", 40), (7, 40)]
    assert [len(encoder.encode(row["text"])) for row in answer] == [40, 40]
    assert answer[1]["text"].startswith("short 🦊Answer now please.\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ('{"id": 1}', "line 1: a row is"),
        ('{"id": 1, "text": "\\ud800"}', "line 1, id 1"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(tmp_path, folder, line, message):
    (tmp_path / "in.jsonl").write_text(line + "\n")
    out = tmp_path / "out.jsonl"
    command = ("--texts", tmp_path / "in.jsonl", "--length", 40, "--out", out)
    with pytest.raises(ValueError, match=message):
        run_stage(*command, "--tokenizer", folder)
    assert not out.exists()


# ---- the rule


def long_text(text_id, text, tier="mixed", source="book", title=""):
    return {
        "text_id": text_id,
        "tier": tier,
        "title": title or text_id,
        "text": text,
        "source": source,
        "licence": "MIT",
    }


CONFIG = {"name": "1k", "length": 10, "per_tier": 2, "tiers": ["mixed"], "seed": 1}


def bucket_of(rows, config=CONFIG):
    rows = sorted(rows, key=lambda row: row["text_id"])
    return stage.make_bucket(pa.Table.from_pylist(rows), BY_CHARACTER, config).to_pylist()


def test_long_texts_give_their_beginning_and_short_ones_are_joined_in_order():
    rows = [
        long_text("a", "0123456789ABC"),
        long_text("b", "second", title="chapter 10"),
        long_text("c", "first", title="chapter 9"),
        long_text("d", "other", source="elsewhere"),
    ]
    got = bucket_of(rows)
    assert [row["turns"] for row in got] == [["0123456789"], ["first\n\nsec"]]
    assert [row["question_id"] for row in got] == ["a", "c"]
    assert {row["n_tokens"] for row in got} == {10}


def test_choice_depends_on_seed_and_ids_only():
    rows = [long_text(f"id{i}", f"text number {i:02d}") for i in range(20)]
    chosen = bucket_of(rows)
    fewer = [row for row in rows if row["text_id"] in {r["question_id"] for r in chosen}]
    assert bucket_of(fewer) == chosen
    assert bucket_of(rows, {**CONFIG, "seed": 2}) != chosen


def test_a_tier_without_enough_text_is_named():
    with pytest.raises(ValueError, match="tier mixed needs 2 prompts of 10 tokens and its 1 texts"):
        bucket_of([long_text("a", "0123456789ABC")])


def test_rule_form_writes_tiers_in_order(tmp_path, folder, encoder):
    rows = [
        long_text(f"{tier}{i}", CORPUS[0] * 4 + str(i), tier=tier)
        for tier in ("mixed", "low_entropy")
        for i in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "texts.parquet")
    config = {**CONFIG, "tiers": ["low_entropy", "mixed"], "length": 16}
    out = tmp_path / "bucket.parquet"
    run_stage(
        *("--config", json.dumps(config), "--texts", tmp_path / "texts.parquet"),
        *("--tokenizer", folder, "--out", out),
    )
    got = pq.read_table(out).to_pylist()
    assert [row["category"] for row in got] == ["low_entropy"] * 2 + ["mixed"] * 2
    assert [len(encoder.encode(row["turns"][0])) for row in got] == [16] * 4
