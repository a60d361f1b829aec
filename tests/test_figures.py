"""Figures: their numbers by hand, and that they are drawn whatever is missing."""

from argparse import Namespace

import numpy as np
import pandas as pd
import pytest

from speedstudy.figures import plot_acceptance, plot_pareto, plot_random_vs_real
from speedstudy.figures.estimates import acceptance_length
from speedstudy.figures.inputs import read_settings, read_table
from speedstudy.figures.notes import first_words, missing_notes
from speedstudy.figures.plot_acceptance import (
    batch_changes,
    category_lengths,
    change_definitions,
    change_notes,
    choose_load,
    considered,
    step_shares,
)
from speedstudy.figures.plot_pareto import pareto_front, pareto_points
from speedstudy.figures.plot_random_vs_real import pair_random_with_real
from speedstudy.figures.point_labels import place_labels
from speedstudy.figures.style import COLOURS, looks, shorten_notes, wrap_notes

CELL = {
    "engine": "openvino",
    "target": "tiny",
    "drafter": "ngram",
    "method": "ngram",
    "k": 3,
    "load": "qualitative",
    "workload": "qualitative",
    "ids": "real",
    "concurrency": 1,
    "max_tokens": 48,
    "temperature": 0.0,
    "seed": 0,
    "repeat": 1,
    "status": "ok",
    "reason": None,
    "verdict": "valid",
    "coverage": None,
    "requests": 4,
    "requests_ok": 4,
    "completion_tokens": 160,
    "al": 1.5,
    "al_change": None,
    "al_change_low": None,
    "al_change_high": None,
    "output_tok_per_s": 100.0,
    "output_tok_per_s_per_device": 100.0,
    "user_tok_per_s": 50.0,
}
FAILED = {
    "status": "failed",
    "reason": "engine killed by signal 9 after 3 of 4 requests, see its log in logs/engine.log",
    **dict.fromkeys(("verdict", "requests", "requests_ok", "completion_tokens", "al")),
    **dict.fromkeys(("output_tok_per_s", "output_tok_per_s_per_device", "user_tok_per_s")),
}
NONE = {"drafter": "none", "method": "none", "k": 0, "al": 1.0}
BUCKET = {"load": "bucket_1k", "workload": "1k", "max_tokens": 32}
RANDOM = {**BUCKET, "load": "bucket_1k_random", "ids": "random"}


def table(*rows):
    """Cells of these differences from ``CELL``, typed as ``aggregate`` types them."""
    frame = pd.DataFrame([{**CELL, **row} for row in rows])
    texts = ("engine", "target", "drafter", "method", "load", "workload", "ids", "status")
    types = dict.fromkeys((*texts, "reason", "verdict", "coverage"), "string")
    wholes = ("k", "concurrency", "max_tokens", "seed", "repeat", "requests", "requests_ok")
    types |= dict.fromkeys((*wholes, "completion_tokens"), "Int64")
    rates = ("al", "output_tok_per_s", "output_tok_per_s_per_device", "user_tok_per_s")
    rates += ("al_change", "al_change_low", "al_change_high")
    return frame.astype(types | dict.fromkeys(rates, "float64"))


def prompts(*rows, **same):
    """Rows of the table of prompts: (prompt_id, category, accepted, steps)."""
    names = ("prompt_id", "category", "accepted", "steps")
    frame = pd.DataFrame([{**CELL, **dict(zip(names, row, strict=True)), **same} for row in rows])
    return frame.astype({"accepted": "Int64", "steps": "Int64"})


class TestParetoFront:
    def test_by_hand(self):
        # (3, 1) is beaten by (3, 2) in one coordinate, (1, 1) in both; the other three are not.
        x, y = [1, 2, 3, 3, 1], [9, 5, 2, 1, 1]
        assert pareto_front(x, y).tolist() == [True, True, True, False, False]

    def test_equal_points_are_both_on_it_or_both_off_it(self):
        assert pareto_front([1, 1], [2, 2]).tolist() == [True, True]
        assert pareto_front([1, 1, 2], [2, 2, 2]).tolist() == [False, False, True]

    def test_unknown_point_is_off_it_and_beats_none(self):
        assert pareto_front([1, np.nan, 9], [1, 9, np.nan]).tolist() == [True, False, False]

    def test_one_point_and_none(self):
        assert pareto_front([1], [1]).tolist() == [True]
        assert pareto_front([], []).tolist() == []


def test_pareto_points_average_repeats_order_batches_and_leave_failures_out():
    cells = table(
        {"concurrency": 4, "user_tok_per_s": 20.0},
        {"concurrency": 1, "user_tok_per_s": 50.0},
        {"concurrency": 1, "user_tok_per_s": 60.0, "repeat": 2, "verdict": "contended"},
        {"concurrency": 2, **FAILED},
    )
    points = pareto_points(cells)
    assert points["concurrency"].tolist() == [1, 4]
    assert points["user_tok_per_s"].tolist() == [55.0, 20.0]
    assert points["doubtful"].tolist() == [True, False]
    assert points["label"].tolist() == ["ngram k=3"] * 2


def test_load_in_words():
    cells = table(BUCKET, {**BUCKET, "concurrency": 4, "completion_tokens": 80})
    # 160 + 80 tokens over 8 replies
    words = "ISL 1k, 4 requests, OSL 30 of at most 32, greedy"
    assert plot_pareto.describe_load(pareto_points(cells)) == words


class TestNotes:
    def test_failed_cells_are_named_with_the_first_words_of_the_reason(self):
        cells = table({}, {"concurrency": 8, **FAILED}, {"concurrency": 2, **FAILED})
        assert missing_notes(cells) == [
            "Missing, 2 failed (engine killed by signal 9 after 3 of 4 requests, see its …): "
            "qualitative, ngram k=3, batch 2, 8."
        ]

    def test_doubtful_and_unknown_cells_are_named(self):
        cells = table({"verdict": "contended"}, {**NONE, "user_tok_per_s": None})
        assert missing_notes(cells, ("user_tok_per_s",)) == [
            "Missing, no user_tok_per_s: qualitative, no drafter, batch 1.",
            "Hollow, the client's self-check says contended: qualitative, ngram k=3, batch 1.",
        ]

    def test_a_skipped_source_is_named_once(self):
        words = "without hle: stem 6 of 80"
        notes = missing_notes(table({"coverage": words}, {"coverage": words, "concurrency": 2}))
        assert notes == ["Coverage: without hle: stem 6 of 80."]

    def test_nothing_missing_nothing_said(self):
        assert missing_notes(table({}, NONE), ("al",)) == []

    def test_no_reason(self):
        assert first_words(None) == first_words(pd.NA) == "no reason recorded"

    def test_many_notes_are_counted_and_long_ones_cut(self):
        assert shorten_notes(["a", "b", "c", "d"]) == ["a", "b", "c", "d"]
        assert shorten_notes(["a", "b", "c", "d", "e"])[3].startswith("2 more notes")
        assert len(wrap_notes(["word " * 500], 9.0)) == 2


class TestAcceptanceLength:
    def test_pooled_over_steps_not_mean_of_prompts(self):
        rows = prompts(("a", "qa", 9, 10), ("b", "qa", 0, 90))
        estimate = acceptance_length([rows])
        assert estimate.value == pytest.approx(1.09)  # the mean of 1.9 and 1.0 would be 1.45
        assert 1.0 <= estimate.low <= 1.09 <= estimate.high <= 1.9

    def test_equal_prompts_have_no_spread_and_one_has_no_interval(self):
        estimate = acceptance_length([prompts(("a", "qa", 5, 10), ("b", "qa", 5, 10))])
        assert (estimate.low, estimate.high) == (1.5, 1.5)
        assert acceptance_length([prompts(("a", "qa", 5, 10))]).low is None

    def test_undefined(self):
        assert acceptance_length([prompts(("a", "qa", None, None))]) is None
        assert acceptance_length([prompts(("a", "qa", 5, None))]) is None
        known = acceptance_length([prompts(("a", "qa", 5, 10), ("b", "qa", None, None))])
        assert known.value == 1.5

    def test_macro_mean_weighs_categories_alike_and_repeats_are_added_up(self):
        rows = prompts(("a", "qa", 10, 10), ("b", "math", 0, 90), ("b", "math", 0, 10))
        lengths = category_lengths(rows).set_index("category")["al"].to_dict()
        assert lengths == {"math": 1.0, "qa": 2.0, "macro mean": 1.5}


def test_load_of_the_acceptance_figure():
    few = prompts(("a", "high", 1, 2), ("b", "low", 1, 2), **BUCKET)
    many = prompts(*((name, name, 1, 2) for name in ("qa", "math", "rag")), concurrency=2)
    chosen = choose_load(pd.concat([few, many, many.assign(concurrency=8)]))
    assert (chosen.load, chosen.concurrency, chosen.temperature) == ("qualitative", 2, 0.0)
    assert choose_load(few.iloc[:0]) is None


def test_failed_cells_that_would_have_been_shown_are_considered():
    cells = table(FAILED, {"concurrency": 2}, {"concurrency": 4}, BUCKET, {**FAILED, "load": "x"})
    rows = prompts(("a", "qa", 1, 2), ("b", "math", 1, 2), concurrency=2)
    rows = pd.concat([rows, prompts(("a", "high", 1, 2), **BUCKET)])
    kept = considered(cells, rows, choose_load(rows))
    assert kept[["load", "concurrency"]].to_numpy().tolist() == [
        ["qualitative", 1],
        ["qualitative", 2],
        ["x", 1],
    ]


def changed(batch, al, low, high, **row):
    """A cell whose AL differs from 1.5 at the least batch, with the interval of the difference."""
    change = {"al_change": al - 1.5, "al_change_low": low, "al_change_high": high}
    return {"concurrency": batch, "al": al, **change, **row}


class TestChangeWithBatch:
    def test_largest_change_of_each_drafter_the_largest_first(self):
        eagle = {"drafter": "EAGLE-3", "engine": "llamacpp"}
        changes = batch_changes(
            table(
                changed(4, 1.25, -0.3, -0.2),
                {},
                changed(8, 1.28, -0.3, -0.14),
                changed(8, 1.9, -0.1, 0.9, k=5),  # the interval holds 0
                {"k": 5},
                eagle,
                changed(8, 1.03, -0.612, -0.288, **eagle),
                changed(8, 1.3, -0.21, -0.19, k=7),  # smaller than that of k=3
                {"k": 7},
                {"concurrency": 16, **FAILED},
            )
        )
        assert change_notes(changes) == [
            "AL changes with batch: EAGLE-3 k=3, llamacpp: 1.50 at 1, 1.03 at 8 (change -0.61 to "
            "-0.29); ngram k=3, openvino: 1.50 at 1, 1.25 at 4 (change -0.3 to -0.2)."
        ]
        assert change_definitions(changes) == []

    def test_each_repeat_has_its_own_least_batch(self):
        cells = table({}, {"repeat": 2, "al": 1.4}, changed(2, 1.7, 0.1, 0.5, repeat=2))
        (note,) = change_notes(batch_changes(cells))
        assert "1.40 at 1, 1.70 at 2 (change 0.1 to 0.5)" in note

    def test_several_targets_are_named(self):
        other = {"target": "small"}
        cells = table({}, changed(2, 1.3, -0.3, -0.1), other, changed(2, 1.2, -0.4, -0.2, **other))
        (note,) = change_notes(batch_changes(cells))
        assert "ngram k=3, openvino, small: 1.50 at 1, 1.20 at 2" in note
        assert "ngram k=3, openvino, tiny: 1.50 at 1, 1.30 at 2" in note

    def test_no_change_is_said_with_its_range(self):
        changes = batch_changes(table({}, changed(2, 1.5, 0.0, 0.0), changed(8, 1.48, -0.05, 0.04)))
        assert change_notes(changes) == []
        assert change_definitions(changes) == [
            "AL is the same at batch 1, 2, 8 within the 95% interval of its change (-0.05 to 0.04)."
        ]

    def test_what_has_no_interval_is_not_called_the_same(self):
        none_told = {"k": 5, "al": None}
        changes = batch_changes(
            table({}, {"concurrency": 2, "al": 1.1}, none_told, {"concurrency": 2, **none_told})
        )
        assert change_notes(changes) == [
            "AL by batch without an interval of its change: ngram k=3, openvino: 1.50 at 1, "
            "1.10 at 2; ngram k=5, openvino: unknown."
        ]
        assert change_definitions(changes) == []

    def test_one_batch_says_nothing(self):
        changes = batch_changes(table({}, {"repeat": 2}, {"concurrency": 4, **FAILED}))
        assert (change_notes(changes), change_definitions(changes)) == ([], [])


def test_step_shares_by_hand():
    rows = [{**CELL, "accepted": j, "steps": n, "listed": "all"} for j, n in ((0, 5), (2, 4))]
    rows.append({**CELL, "accepted": 0, "steps": 1, "listed": "all"})
    shares = step_shares(pd.DataFrame(rows))
    assert shares["accepted"].tolist() == [0, 1, 2, 3]
    assert shares["share"].tolist() == pytest.approx([0.6, 0, 0.4, 0])


class TestPairs:
    def test_by_hand(self):
        cells = table(
            BUCKET,
            {**BUCKET, "concurrency": 4, "output_tok_per_s": 200.0},
            {**RANDOM, "output_tok_per_s": 60.0, "al": 1.1},
            {**RANDOM, "concurrency": 4, **FAILED},
            {**RANDOM, "k": 5},  # no real counterpart
            {**RANDOM, "max_tokens": 64},  # nor this
            {},  # nor has the qualitative load a random one
        )
        pairs = pair_random_with_real(cells)
        assert pairs["concurrency"].tolist() == [1, 4]
        assert pairs["ratio"].iloc[0] == pytest.approx(0.6)
        assert pairs[["al_real", "al_random"]].iloc[0].tolist() == [1.5, 1.1]
        assert pd.isna(pairs["ratio"].iloc[1])
        assert pairs["output_tok_per_s_real"].iloc[1] == 200.0


def test_looks_put_no_drafter_first_and_differ():
    styles = looks(table({}, {"k": 5}, NONE))
    assert list(styles) == ["no drafter", "ngram k=3", "ngram k=5"]
    assert len({(look.colour, look.marker, look.line) for look in styles.values()}) == 3


def test_neighbouring_colours_differ_in_grey_print():
    def lightness(colour):
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    greys = [lightness(colour) for colour in COLOURS[:3]]
    assert min(abs(np.diff([0, *greys]))) > 40


def test_labels_neither_overlap_nor_leave_the_panel():
    points = np.array([(50.0, 50.0), (52.0, 50.0), (54.0, 50.0), (2.0, 98.0)])
    sizes = np.full((4, 2), (8.0, 6.0))
    centres = place_labels(points, sizes, points, np.array([0.0, 0.0, 100.0, 100.0]))
    for one in range(4):
        for other in range(one):
            assert np.any(np.abs(centres[one] - centres[other]) >= sizes[0])
    assert np.all(centres - sizes / 2 >= 0)
    assert np.all(centres + sizes / 2 <= 100)


@pytest.fixture
def study(tmp_path):
    """A study with one failed and one doubtful cell, as files."""
    cells = table(
        NONE,
        {**NONE, "concurrency": 4, "user_tok_per_s": 20.0, "output_tok_per_s_per_device": 80.0},
        {"verdict": "contended"},
        {"concurrency": 4, **FAILED},
        BUCKET,
        RANDOM,
    )
    rows = [("a", "qa", 5, 10), ("b", "math", 2, 12), ("c", "math", 4, 12)]
    every = [prompts(*rows), prompts(*rows, **BUCKET), prompts(*rows, **RANDOM)]
    steps = [{**CELL, "accepted": j, "steps": n, "listed": "all"} for j, n in ((0, 20), (1, 14))]
    return write(tmp_path, cells, pd.concat(every), pd.DataFrame(steps))


SETTINGS = {"figure": {"width_in": 6.0, "height_in": 4.0}, "dpi": 60, "title": "A study"}


def write(folder, cells, prompt_rows, accepted):
    tables = {"cells": cells, "prompts": prompt_rows, "accepted": accepted}
    for name, frame in tables.items():
        frame.to_parquet(folder / f"{name}.parquet")
    return folder


def draw(module, folder):
    name = module.__name__.rsplit(".", 1)[1]
    paths = {part: folder / f"{part}.parquet" for part in ("cells", "prompts", "accepted")}
    out = folder / f"{name}.pdf"
    report = module.run(Namespace(config=SETTINGS, out=out, **paths))
    assert out.read_bytes().startswith(b"%PDF")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob("*.tmp"))
    return report["notes"]


def test_pareto_names_the_failed_cell_and_is_reproducible(study):
    notes = draw(plot_pareto, study)
    assert any("engine killed" in note and "ngram k=3, batch 4" in note for note in notes)
    assert any("contended" in note for note in notes)
    before = (study / "plot_pareto.pdf").read_bytes()
    draw(plot_pareto, study)
    assert (study / "plot_pareto.pdf").read_bytes() == before


def test_acceptance_is_drawn(study):
    (note,) = draw(plot_acceptance, study)
    assert "contended" in note  # the failed cell has another batch than the one shown


def test_acceptance_that_changes_with_batch_is_noted_first(tmp_path):
    cells = table(
        {}, changed(4, 1.2, -0.4, -0.2), {**BUCKET}, changed(8, 1.1, -0.5, -0.3, **BUCKET)
    )
    rows = prompts(("a", "qa", 5, 10), ("b", "math", 2, 12))
    steps = pd.DataFrame([{**CELL, "accepted": 0, "steps": 20, "listed": "all"}])
    notes = draw(plot_acceptance, write(tmp_path, cells, rows, steps))
    # Of the load that is shown only; the other one's change is larger.
    assert notes[0] == (
        "AL changes with batch: ngram k=3, openvino: 1.50 at 1, 1.20 at 4 (change -0.4 to -0.2)."
    )


def test_random_vs_real_is_drawn(study):
    assert draw(plot_random_vs_real, study) == []


@pytest.mark.parametrize("module", [plot_pareto, plot_acceptance, plot_random_vs_real])
def test_a_study_that_failed_whole_gives_a_figure_that_says_so(tmp_path, module):
    cells = table(*({**row, **FAILED} for row in ({}, BUCKET, RANDOM)))
    accepted = pd.DataFrame([{**CELL, "accepted": 0, "steps": 1, "listed": "all"}])
    write(tmp_path, cells, prompts(("a", "qa", 1, 1)).iloc[:0], accepted.iloc[:0])
    assert any("engine killed" in note for note in draw(module, tmp_path))


def test_a_single_point_is_drawn(tmp_path):
    empty = prompts(("a", "qa", 1, 1)).iloc[:0]
    assert draw(plot_pareto, write(tmp_path, table(NONE), empty, empty)) == []


def test_unusable_input_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cells\.parquet: no such file"):
        read_table(tmp_path / "cells.parquet", ["al"])
    table({}).to_parquet(tmp_path / "cells.parquet")
    with pytest.raises(ValueError, match="no column energy_j"):
        read_table(tmp_path / "cells.parquet", ["energy_j"])
    with pytest.raises(ValueError, match=r"--config: needs figure\.width_in"):
        read_settings({"dpi": 100})
