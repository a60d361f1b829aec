"""Texts of an exact length in tokens."""

import argparse
import gzip
import itertools
import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedstudy import bucket as stage
from speedstudy.collect.candidates import LongText, write_long_texts
from speedstudy.lengths import PADDING, Encoder, cut, cut_middle, fit, load_encoder, o200k_is_local
from tiny_tokenizer import CORPUS, write_tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(str(folder))


def spans(pattern):
    """A tokenizer of which each match of a pattern is a token."""

    def ends(text):
        return np.array([match.end() for match in re.finditer(pattern, text)], dtype=np.int64)

    return Encoder(pattern, lambda text: len(ends(text)), ends)


def fox_ends(text):
    sizes = [[end] * (3 if text[end - 1] == "🦊" else 1) for end in range(1, len(text) + 1)]
    return np.array([end for ends in sizes for end in ends], dtype=np.int64)


# One token a character: what a cut must give can be counted by hand.
BY_CHARACTER = spans("(?s).")
# One token a word, whatever the white space: its tokens do not cover the text.
BY_WORD = spans(r"\S+")
# Three tokens for a fox, which no cut can divide.
FOX = Encoder("fox", lambda text: len(fox_ends(text)), fox_ends)
# How a line is divided depends on where it ends: counting cannot begin in its middle.
SEAMLESS = spans(r"(?s)\w+|.{1,37}?(?=\n|$)|.")


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
    assert encoder.count(fitted) == length
    assert "\ufffd" not in fitted
    common = next((i for i, (a, b) in enumerate(zip(text, fitted, strict=False)) if a != b), None)
    assert common is None or PADDING.startswith(fitted[common : common + len(PADDING)][:1])


long_text_pieces = st.lists(
    st.sampled_from([*CORPUS, "\n", "    ", "\n\n", "1234567890" * 9, "漢字🦊" * 30, " " * 300]),
    max_size=60,
).map(" ".join)


@settings(max_examples=80, deadline=None)
@given(text=long_text_pieces, length=st.integers(150, 900))
def test_long_cuts_are_exact_however_they_were_counted(encoder, text, length):
    # Long enough for counting to begin at a seam; the answer is counted from the start.
    for one in (encoder, SEAMLESS):
        fitted = fit(text, one, length)
        assert one.count(fitted) == length
        assert text.startswith(fitted) or fitted[: len(text)] == text or "Answer" in fitted


@settings(max_examples=80, deadline=None)
@given(text=long_text_pieces, length=st.integers(20, 900))
def test_cuts_in_the_middle_are_exact_and_keep_both_ends(encoder, text, length):
    opening, closing = "Solved questions:\n", "\nquestion: is it so?\n"
    for one in (encoder, SEAMLESS):
        made = cut_middle(opening, text, closing, one, length)
        whole = one.count(opening + text + closing)
        if made is None:
            assert whole < length or one.count(opening + closing) >= length - 20
            continue
        assert one.count(made) == length
        assert made.startswith(opening)
        kept, _, padding = made.removeprefix(opening).rpartition(closing)
        assert text.endswith(kept)
        assert (PADDING * 9).startswith(padding)


def test_only_the_needed_part_of_a_long_text_is_encoded():
    encoded = 0

    def ends(text):
        nonlocal encoded
        encoded += len(text)
        return np.arange(1, len(text) + 1)

    counting = Encoder("counting", lambda text: len(ends(text)), ends)
    text = "some words and more " * 50_000
    assert fit(text, counting, 10_000) == text[:10_000]
    assert encoded < 12_000 + 40_000  # 4 characters a token are expected, here it is one
    encoded = 0
    assert cut_middle("<", text, ">", counting, 10_000) == "<" + text[-9_998:] + ">"
    assert encoded < 20_000


def test_text_that_only_looks_like_a_special_token_is_counted(encoder):
    text = "<|im_start|>user\n" * 50
    assert encoder.count(fit(text, encoder, 33)) == 33


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
    assert [encoder.count(row["text"]) for row in answer] == [40, 40]
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


CONFIG = {
    "name": "1k",
    "length": 10,
    "per_tier": 2,
    "tiers": ["mixed"],
    "seed": 1,
    "when_short": "error",
}


def write_texts(path, *texts, tier="mixed", **fields):
    rows = [
        LongText(
            text_id=f"{number:032x}",
            tier=tier,
            title=f"book {number}",
            text=text,
            source="books",
            licence="MIT",
            **fields,
        )
        for number, text in enumerate(texts)
    ]
    write_long_texts(path, rows)
    return path


def test_a_tier_without_enough_text_is_named_and_nothing_is_written(tmp_path):
    texts, out = write_texts(tmp_path / "t.parquet", "0123456789ABC"), tmp_path / "out.parquet"
    with pytest.raises(ValueError, match="mixed needs 2 prompts of 10 tokens and its texts give 1"):
        stage.make_bucket([texts], BY_CHARACTER, CONFIG, {}, out)
    assert not out.exists()


def test_texts_that_run_out_may_be_shared(tmp_path):
    text = "0123\n5678\n" * 2
    texts, out = write_texts(tmp_path / "t.parquet", text, windows=True), tmp_path / "out.parquet"
    config = {**CONFIG, "per_tier": 3}
    with pytest.raises(ValueError, match="let prompts share text"):
        stage.make_bucket([texts], BY_CHARACTER, config, {}, out)
    stage.make_bucket([texts], BY_CHARACTER, {**config, "when_short": "overlap"}, {}, out)
    rows = pq.read_table(out).to_pylist()
    assert [row["start"] for row in rows] == [0, 10, 5]
    assert rows[2]["turns"] == ["5678\n0123\n"]
    assert len({row["question_id"] for row in rows}) == 3


def test_rule_form_writes_tiers_in_order_with_both_counts(tmp_path, folder, encoder, monkeypatch):
    monkeypatch.setattr(stage, "o200k_is_local", lambda: False)
    files = [
        write_texts(
            tmp_path / f"{tier}.parquet", *[CORPUS[0] * 4 + str(i) for i in range(3)], tier=tier
        )
        for tier in ("mixed", "low_entropy")
    ]
    other = write_tiny_tokenizer(tmp_path / "other")
    config = {**CONFIG, "tiers": ["low_entropy", "mixed"], "length": 16}
    out = tmp_path / "bucket.parquet"
    run_stage(
        *("--config", json.dumps(config), "--texts", *files),
        *("--tokenizer", folder, "--target", other, "--out", out),
    )
    got = pq.read_table(out).to_pylist()
    assert [row["category"] for row in got] == ["low_entropy"] * 2 + ["mixed"] * 2
    assert [encoder.count(row["turns"][0]) for row in got] == [16] * 4
    assert [(row["n_tokens"], row["n_tokens_target"]) for row in got] == [(16, 16)] * 4
    assert {row["n_tokens_o200k"] for row in got} == {None}


def test_real_texts_are_cut_exactly_by_o200k_base(shared):
    if not o200k_is_local():
        pytest.skip("the data of o200k_base are not on this machine: set TIKTOKEN_CACHE_DIR")
    o200k = load_encoder("o200k_base")
    for path in sorted((shared / "data" / "longtext").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in itertools.islice(lines, 8)]
        joined = "\n\n".join(texts)
        for length in (1_000, 8_000):
            assert o200k.count(fit(joined, o200k, length)) == length
            made = cut_middle("Look:\n", joined, "\nWhy?", o200k, length)
            assert o200k.count(made) == length
