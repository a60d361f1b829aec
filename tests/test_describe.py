"""The table of what was selected, by hand."""

import numpy as np
import pandas as pd
import pytest

from speedstudy import paper
from speedstudy.describe import describe, languages
from speedstudy.lengths import Encoder

WORDS = Encoder(name="words", count=lambda text: len(text.split()), ends=np.array)


def row(category, *turns, source="own", sub_category="", difficulty=""):
    return {
        "question_id": "",
        "category": category,
        "sub_category": sub_category,
        "turns": list(turns),
        "source": source,
        "difficulty": difficulty,
    }


ROWS = [
    row("qa", "one two", source="spec_bench"),
    row("qa", "one two three four"),
    row("multilingual", "eins zwei", "drei", sub_category="de_math", difficulty="hard"),
    row("multilingual", "un", sub_category="fr-de"),
    row("multilingual", "un", sub_category="fr-de"),
]


@pytest.fixture
def table():
    return describe(ROWS, WORDS).set_index(["by", "name"])


def test_lengths_are_summed_over_turns_and_the_overall_mean_is_of_categories(table):
    # qa: 2 and 4; multilingual: 3, 1 and 1.
    assert table.loc[("category", "qa"), "isl_mean"] == 3
    assert table.loc[("category", "multilingual"), "isl_mean"] == pytest.approx(5 / 3)
    assert table.loc[("category", "multilingual"), "isl_median"] == 1
    assert table.loc[("all", "all"), "isl_mean"] == pytest.approx((3 + 5 / 3) / 2)
    assert table.loc[("all", "all"), "isl_median"] == 2


def test_rows_are_counted_by_every_property(table):
    counts = table["rows"].to_dict()
    assert counts[("all", "all")] == 5
    assert counts[("source", "own")] == 4
    assert counts[("difficulty", "hard")] == 1
    assert ("difficulty", "") not in counts
    assert (counts[("language", "de")], counts[("language", "fr")]) == (3, 2)
    assert (counts[("turns", "1")], counts[("turns", "2")]) == (4, 1)
    assert table.loc[("all", "all"), "multiturn"] == 1
    assert table.loc[("all", "all"), "most_turns"] == 2


def test_the_paper_stands_beside(table):
    assert table.loc[("category", "qa"), "paper_isl_mean"] == 11.1
    assert table.loc[("source", "spec_bench"), "paper_rows"] == 201
    assert pd.isna(table.loc[("source", "own"), "paper_rows"])
    assert sum(paper.ROWS_BY_SOURCE.values()) == paper.ROWS == 80 * len(paper.ISL)
    assert sum(paper.MULTITURN.values()) == 167


def test_without_a_tokenizer_there_are_no_lengths():
    table = describe(ROWS, None, "without hle: qa 2 of 80")
    assert table["isl_mean"].isna().all()
    assert set(table["coverage"]) == {"without hle: qa 2 of 80"}


def test_languages_are_known_of_multilingual_rows_only():
    assert languages(row("multilingual", "", sub_category="it_summarization")) == ("it",)
    assert languages(row("multilingual", "", sub_category="Physics")) == ()
    assert languages(row("qa", "", sub_category="de")) == ()
