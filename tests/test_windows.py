"""Which prompts come out of long texts, and that reading them needs no order."""

import random

import numpy as np
import pytest

from speedstudy.collect.candidates import LongText, write_long_texts
from speedstudy.lengths import Encoder
from speedstudy.windows import check_columns, tier_windows

# One token a character: what a window must hold can be counted by hand.
BY_CHARACTER = Encoder("characters", len, lambda text: np.arange(1, len(text) + 1))


def long_text(text_id, text, **fields):
    fields = {"tier": "mixed", "title": text_id, "source": "book", "licence": "MIT"} | fields
    return LongText(text_id=text_id, text=text, **fields)


def windows(tmp_path, *files, length=10, overlap=False, seed=1):
    paths = []
    for number, texts in enumerate(files):
        paths.append(tmp_path / f"{number}.parquet")
        write_long_texts(paths[-1], texts)
    return list(tier_windows(paths, "mixed", BY_CHARACTER, length, seed, overlap=overlap))


def test_windows_begin_at_line_starts_and_follow_one_another(tmp_path):
    text = "line 1 of a book\nline 2 of a book\nline 3\nline 4\n"
    got = windows(tmp_path, [long_text("a", text, opening="Go: ", windows=True)], length=14)
    # 4 characters of opening and 10 of text; a window's rest of a line is not used.
    assert [window.prompt for window in got] == [
        "Go: line 1 of ",
        "Go: line 2 of ",
        "Go: line 3\nlin",
    ]
    assert [window.start for window in got] == [0, 17, 34]
    assert got[0].question_id == "a"
    assert len({window.question_id for window in got}) == 3


def test_a_text_that_is_too_short_gives_nothing(tmp_path):
    assert windows(tmp_path, [long_text("a", "012345678", windows=True)]) == []


def test_overlapping_windows_never_begin_twice_at_a_line(tmp_path):
    text = "".join(f"line {number}\n" for number in range(10, 40))  # 8 characters each
    texts = [long_text("a", text, windows=True)]
    apart = [window.start for window in windows(tmp_path, texts, length=32)]
    assert apart == [0, 32, 64, 96, 128, 160, 192]
    starts = [window.start for window in windows(tmp_path, texts, length=32, overlap=True)]
    assert starts[: len(apart)] == apart
    assert starts[len(apart)] == 16  # half a window on
    assert sorted(starts) == list(range(0, 209, 8))  # every line with 32 characters to come


def test_a_closing_stays_and_the_beginning_of_the_text_goes(tmp_path):
    texts = [long_text("a", "0123456789", opening="<", closing="end", windows=False)]
    assert [window.prompt for window in windows(tmp_path, texts)] == ["<456789end"]
    assert windows(tmp_path, texts, length=4) == []  # no room for any text
    assert windows(tmp_path, texts, length=15) == []


@pytest.mark.parametrize(
    ("chars", "prompt"),
    [(6, None), (7, "0123456Ans"), (10, "0123456789"), (20, "0123456789"), (21, None)],
)
def test_shares_of_the_length_decide_what_is_padded_or_left_out(tmp_path, chars, prompt):
    texts = [long_text("a", ("0123456789" * 3)[:chars], min_share=0.7, max_share=2.0)]
    assert [window.prompt for window in windows(tmp_path, texts)] == ([prompt] if prompt else [])


def test_files_take_turns_and_other_tiers_stay_out(tmp_path):
    many = [long_text(f"a{i}", f"first  {i} ....") for i in range(3)]
    few = [long_text("b0", "second 0 ...."), long_text("b1", "second 1 ..", tier="low_entropy")]
    sources = [window.prompt[:6].strip() for window in windows(tmp_path, many, few)]
    assert sources == ["first", "second", "first", "first"]


def test_order_depends_on_seed_and_ids_only(tmp_path):
    texts = [long_text(f"{i:x}" * 32, f"text {i} of many\n" * 3, windows=True) for i in range(16)]
    keys = [window.question_id for window in windows(tmp_path, texts)]
    random.Random(3).shuffle(texts)
    assert [window.question_id for window in windows(tmp_path, texts)] == keys
    other = [window.question_id for window in windows(tmp_path, texts, seed=2)]
    assert other != keys
    assert sorted(other) == sorted(keys)


def test_texts_that_are_read_again_are_the_same(tmp_path, monkeypatch):
    texts = [long_text(f"{i:x}" * 32, f"text {i} of many\n" * 9, windows=True) for i in range(16)]
    everything = windows(tmp_path, texts * 1, overlap=True)
    monkeypatch.setattr("speedstudy.windows._MAX_KEPT_CHARS", 1)
    assert windows(tmp_path, texts, overlap=True) == everything


def test_a_file_of_another_layout_is_named(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text_id": ["a"], "text": ["b"]}), tmp_path / "old.parquet")
    with pytest.raises(ValueError, match=r"old.parquet: no column tier, title.*found text_id"):
        check_columns([tmp_path / "old.parquet"])
