"""Near duplicates, by hand and against every pair compared one by one."""

import itertools
import random
import re

import pytest

from speedstudy.near_duplicates import near_duplicates


def words(*ranges):
    return " ".join(f"w{number}" for numbers in ranges for number in numbers)


# Of 24 words, 20 shingles. A text that goes on two words longer has the same 20 of 22, and one
# with its last words changed 16 of 24 together.
TEXT = words(range(24))
LONGER = words(range(26))
EDGE = words(range(29))  # 20 of 25: exactly 0.8
OVER = words(range(30))  # 20 of 26
CHANGED = words(range(20), range(100, 104))


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (TEXT, True),
        (LONGER, True),
        (EDGE, True),
        (OVER, False),
        (CHANGED, False),
        (TEXT.upper().replace(" ", ",\n") + "!", True),
        (words(range(100, 124)), False),
        ("", False),
    ],
)
def test_four_fifths_of_all_shingles_are_shared(text, near):
    got = near_duplicates(["a", "b"], [TEXT, text], ["mine", "yours"])
    assert got == ({"b": "a"} if near else {})


def test_rows_of_one_source_are_not_compared():
    assert near_duplicates(["a", "b"], [TEXT, LONGER], ["mine", "mine"]) == {}
    assert near_duplicates([], [], []) == {}


def test_short_texts_are_near_if_their_words_are_the_same():
    ids, sources = ["a", "b", "c"], ["x", "y", "z"]
    assert near_duplicates(ids, ["Who am I?", "who am i", "Who is it?"], sources) == {"b": "a"}
    assert near_duplicates(["a", "b"], ["!!!", "???"], ["x", "y"]) == {}


def test_text_without_spaces_is_compared_by_characters():
    text = "从前有一个国王他有三个女儿每一个都很美丽"
    assert near_duplicates(["a", "b"], [text, text + "。"], ["x", "y"]) == {"b": "a"}
    assert near_duplicates(["a", "b"], [text, text[::-1]], ["x", "y"]) == {}


def test_a_row_that_is_left_out_leaves_no_other_out():
    # The middle one is near both; without it the outer two are not near each other.
    short, middle, long = words(range(24)), words(range(28)), words(range(33))
    ids, sources = ["a", "b", "c"], ["x", "y", "z"]
    assert near_duplicates(["a", "c"], [short, long], ["x", "z"]) == {}
    assert near_duplicates(ids, [short, middle, long], sources) == {"b": "a"}


def brute_force(rows):
    """The rule, on word tuples and sets, every pair."""

    def shingles(text):
        found = re.findall(r"\w+", text.casefold())
        return {tuple(found[i : i + 5]) for i in range(max(len(found) - 4, 1))}

    kept, left_out = [], {}
    for row_id, text, source in sorted(rows):
        one = shingles(text)
        for other_id, other, other_source in kept:
            two = shingles(other)
            if source != other_source and 5 * len(one & two) >= 4 * len(one | two):
                left_out[row_id] = other_id
                break
        else:
            kept.append((row_id, text, source))
    return left_out


def test_the_filter_loses_no_pair_and_the_order_does_not_matter():
    generator = random.Random(0)
    bases = [[f"w{generator.randrange(300)}" for _ in range(40)] for _ in range(12)]
    rows = []
    for number, base in enumerate(itertools.chain.from_iterable([bases] * 12)):
        text = list(base[: generator.randrange(30, 41)])
        for _ in range(generator.randrange(3)):
            text[generator.randrange(len(text))] = f"w{generator.randrange(300)}"
        row_id = f"{generator.randrange(10**6):06d}-{number}"
        rows.append((row_id, " ".join(text), generator.choice("xyz")))
    expected = brute_force(rows)
    assert len(expected) > 20
    for _ in range(3):
        generator.shuffle(rows)
        ids, texts, sources = zip(*rows, strict=True)
        assert near_duplicates(ids, texts, sources) == expected
