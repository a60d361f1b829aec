"""Cells to tables: what is compared with what, what is refused, what a failed cell leaves."""

import argparse

import pandas as pd
import pytest

from metric_records import reply, stepped, write_cell
from speedstudy.aggregate import Tables, aggregate, run, write_tables
from speedstudy.cells import Cell
from speedstudy.records import read_cell
from speedstudy.workload import Prompt, digest, write_workload

approx = pytest.approx

DIGESTS = {"qualitative--1": "a" * 64}


def aggregate_dirs(directories, digests):
    return aggregate([Cell(directory, read_cell(directory)) for directory in directories], digests)


def plain(prompt_id, gap_s, ids, category="math"):
    """A reply of one token a chunk."""
    chunks = [(0.1 + gap_s * i, 1) for i in range(len(ids))]
    return reply(chunks, prompt_id=prompt_id, category=category, token_ids=ids)


def speculated(prompt_id, gap_s, ids, category="math"):
    """The same reply of 5 tokens in two steps, of 3 drafts with 2 accepted and of none."""
    return stepped(
        [3, 3],
        [2, 0],
        tokens=5,
        steps=2,
        sizes=[1, 3, 1],
        prompt_id=prompt_id,
        category=category,
        token_ids=ids,
    ), gap_s


def paced(turn_and_gap):
    turn, gap_s = turn_and_gap
    turn.chunk_s = [0.1 + gap_s * i for i in range(len(turn.chunk_s))]
    return turn


@pytest.fixture
def study(tmp_path):
    ids = [11, 12, 13, 14, 15]
    # 4 tokens follow the first: 25 ms each without a drafter, so 40 tok/s for both prompts.
    none = [plain("p", 0.025, ids), plain("q", 0.025, ids, category="coding")]
    # Two chunks of 40 ms for 4 tokens: 20 ms a token, 50 tok/s; two of 20 ms: 100 tok/s.
    ngram = [
        paced(speculated("p", 0.04, ids)),
        paced(speculated("q", 0.02, [11, 12, 99, 14, 15], category="coding")),
    ]
    return [
        write_cell(tmp_path, "ngram--c1", ngram, method="ngram", k=3),
        write_cell(tmp_path, "none--c1", none),
        write_cell(tmp_path, "ngram--c2", ngram, method="ngram", k=3, concurrency=2),
        write_cell(
            tmp_path,
            "none--c2",
            concurrency=2,
            status="failed",
            reason="the engine ended with status 1",
            engine=None,
            load=None,
            client=None,
        ),
    ]


def test_one_row_a_cell_in_the_given_order(study):
    cells = aggregate_dirs(study, DIGESTS).cells.set_index("cell_id")
    assert list(cells.index) == ["ngram--c1", "none--c1", "ngram--c2", "none--c2"]
    row = cells.loc["ngram--c1"]
    assert (row["engine"], row["engine_version"]) == ("openvino", "2026.4.1-build")
    assert (row["drafter"], row["method"], row["k"], row["concurrency"]) == ("ngram", "ngram", 3, 1)
    assert (row["workload"], row["ids"], row["verdict"]) == ("qualitative", "real", "valid")
    assert row["al"] == approx(2.0)  # 1 + 4 accepted / 4 steps
    assert row["user_tok_per_s"] == approx(75)
    assert row["completion_tokens"] == 10
    assert row["startup_s"] == 2.5
    assert cells.loc["none--c1", "al"] == 1.0


def test_drafter_against_none_at_the_same_load(study):
    cells = aggregate_dirs(study, DIGESTS).cells.set_index("cell_id")
    row = cells.loc["ngram--c1"]
    assert row["speedup_user"] == approx(75 / 40)
    assert row["speedup_user_low"] == approx(50 / 40)
    assert row["speedup_user_high"] == approx(100 / 40)
    assert row["speedup_prompts"] == 2
    # 10 tokens in 180 ms (the slower reply) against 10 in 200 ms.
    assert row["speedup_output"] == approx(0.2 / 0.18)
    assert row["output_length_drift"] == 1.0
    assert (row["replies_compared"], row["replies_equal"]) == (2, 1)
    assert pd.isna(cells.loc["none--c1", "speedup_user"])


CHANGE = ["al_change", "al_change_low", "al_change_high"]


def verified(prompt_id, step_accepted):
    """A reply with all its verify steps, each of 3 drafts."""
    steps = len(step_accepted)
    tokens = 1 + steps + sum(step_accepted)
    return stepped([3] * steps, step_accepted, tokens=tokens, steps=steps, prompt_id=prompt_id)


def drafting(folder, name, turns, concurrency, k=3, **fields):
    return write_cell(folder, name, turns, method="ngram", k=k, concurrency=concurrency, **fields)


def test_acceptance_length_has_an_interval(study):
    cells = aggregate_dirs(study, DIGESTS).cells.set_index("cell_id")
    # Both prompts have AL 2, and so has each draw of them.
    assert cells.loc["ngram--c1", ["al_low", "al_high"]].tolist() == [2.0, 2.0]
    assert cells.loc["none--c1", ["al_low", "al_high"]].tolist() == [1.0, 1.0]
    assert cells.loc["none--c2", ["al_low", "al_high"]].isna().all()


def test_acceptance_length_against_the_fewest_requests_in_flight(study, tmp_path):
    worse = [verified("p", [1, 0]), verified("q", [0, 0])]
    cells = aggregate_dirs(
        [
            # AL of p and q falls from 2 to 1.5 and 1: by 0.5 in pp, 0.75 in pq, 1 in qq.
            drafting(tmp_path, "ngram--c8", worse, 8),
            *study,
            drafting(tmp_path, "ngram-k5--c8", worse, 8, k=5),
            drafting(tmp_path, "ngram-k5--c4", worse, 4, k=5, status="failed", reason="died"),
        ],
        DIGESTS,
    ).cells.set_index("cell_id")
    assert cells.loc["ngram--c8", CHANGE].tolist() == [-0.75, -1.0, -0.5]
    assert cells.loc["ngram--c2", CHANGE].tolist() == [0.0, 0.0, 0.0]
    # The fewest itself, without a drafter, the only one of its drafter that did not fail.
    for name in ("ngram--c1", "none--c1", "none--c2", "ngram-k5--c8", "ngram-k5--c4"):
        assert cells.loc[name, CHANGE].isna().all()


def test_change_of_acceptance_length_is_over_common_prompts_and_known_steps(tmp_path):
    unknown = stepped([3, 3], [2, 1], tokens=8, prompt_id="q")
    cells = aggregate_dirs(
        [
            drafting(tmp_path, "c1", [verified("p", [2]), verified("q", [1, 1])], 1),
            drafting(tmp_path, "c2", [verified("p", [1]), verified("r", [0] * 9)], 2),
            drafting(tmp_path, "c4", [verified("p", [2]), unknown], 4),
        ],
        DIGESTS,
    ).cells.set_index("cell_id")
    assert cells.loc["c2", "al_change"] == -1.0  # p alone, so without an interval
    assert cells.loc["c2", CHANGE[1:]].isna().all()
    assert cells.loc["c4", [*CHANGE, "al_low", "al_high"]].isna().all()


def test_a_failed_cell_is_a_row_of_nulls_and_no_baseline(study):
    cells = aggregate_dirs(study, DIGESTS).cells.set_index("cell_id")
    failed = cells.loc["none--c2"]
    assert failed["status"] == "failed"
    assert failed["reason"] == "the engine ended with status 1"
    for name in ("al", "user_tok_per_s", "output_tok_per_s", "ttft_ms_p50", "verdict", "requests"):
        assert pd.isna(failed[name])
    assert cells.loc["ngram--c2", "al"] == approx(2.0)
    assert pd.isna(cells.loc["ngram--c2", "speedup_user"])


def test_prompts_categories_and_accepted_lengths(study):
    tables = aggregate_dirs(study, DIGESTS)
    prompts = tables.prompts[tables.prompts["cell_id"] == "ngram--c1"]
    assert prompts["prompt_id"].tolist() == ["p", "q"]
    assert prompts["category"].tolist() == ["math", "coding"]
    assert prompts["user_tok_per_s"].tolist() == approx([50, 100])
    assert prompts["al"].tolist() == approx([2, 2])
    categories = tables.categories[tables.categories["cell_id"] == "ngram--c1"]
    assert categories["category"].tolist() == ["coding", "math"]
    assert categories["requests"].tolist() == [1, 1]
    accepted = tables.accepted[tables.accepted["cell_id"] == "ngram--c1"]
    rows = accepted[["category", "accepted", "steps", "listed"]].to_numpy().tolist()
    assert rows == [["coding", 0, 1, "all"], ["coding", 2, 1, "all"],
                    ["math", 0, 1, "all"], ["math", 2, 1, "all"]]  # fmt: skip
    assert "none--c2" not in set(tables.prompts["cell_id"])


def test_mixed_prompts_are_refused(study, tmp_path):
    workload = {"name": "qualitative--1", "digest": "b" * 64, "prompts": 2}
    stale = write_cell(tmp_path, "stale", concurrency=4, workload=workload)
    with pytest.raises(ValueError, match=r"qualitative--1: stale used .*bbbb.*aaaa.*remove"):
        aggregate_dirs([*study, stale], DIGESTS)


def test_unknown_workload_and_doubled_cells_are_refused(study, tmp_path):
    with pytest.raises(ValueError, match="no such file among the workloads"):
        aggregate_dirs(study, {})
    with pytest.raises(ValueError, match=r"none--c1 comes twice"):
        aggregate_dirs([*study, study[1]], DIGESTS)
    second = write_cell(tmp_path, "none--again")
    with pytest.raises(ValueError, match=r"none--c1, none--again: cells without a drafter"):
        aggregate_dirs([*study, second], DIGESTS)
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(ValueError, match=r"no cell\.json"):
        aggregate_dirs([tmp_path / "unfinished"], DIGESTS)


def test_tables_survive_the_files(study, tmp_path):
    tables = aggregate_dirs(study, DIGESTS)
    out = tmp_path / "tables"
    write_tables(out, tables)
    assert sorted(path.name for path in out.iterdir()) == [
        "accepted.parquet",
        "categories.parquet",
        "cells.csv",
        "cells.parquet",
        "prompts.parquet",
    ]
    for name, table in vars(tables).items():
        pd.testing.assert_frame_equal(pd.read_parquet(out / f"{name}.parquet"), table)
    assert pd.read_csv(out / "cells.csv")["cell_id"].tolist() == tables.cells["cell_id"].tolist()
    assert "nan" not in (out / "cells.csv").read_text().lower()


def test_no_cell_gives_empty_tables_with_their_columns():
    tables = aggregate_dirs([], {})
    assert isinstance(tables, Tables)
    assert len(tables.cells) == 0
    assert "speedup_user" in tables.cells.columns


def test_the_command_finds_cells_by_their_hashes(tmp_path):
    prompts = [Prompt(prompt_id="p", category=None, turn_token_ids=((1, 2),))]
    write_workload(tmp_path / "qualitative--1.parquet", prompts)
    cells = tmp_path / "cells"
    cells.mkdir()
    workload = {"name": "qualitative--1", "digest": digest(prompts), "prompts": 1}
    write_cell(cells, "none--1", [plain("p", 0.02, [1, 2])], workload=workload)
    write_cell(
        cells, "none--2", concurrency=2, workload=workload, status="failed", reason="port taken"
    )
    report = run(
        argparse.Namespace(
            config=["1", "2"],
            cells=cells,
            workloads=[tmp_path / "qualitative--1.parquet"],
            out=tmp_path / "tables",
        )
    )
    assert report == {"cells": 2, "failed": ["none--2"]}
    assert (tmp_path / "tables" / "cells.parquet").is_file()


def test_tokens_per_joule_are_of_the_gpus_energy_and_null_without_one(tmp_path):
    replies = [plain("p", 0.025, [11, 12, 13, 14, 15]), plain("q", 0.025, [11, 12, 13, 14, 15])]
    cells = aggregate_dirs(
        [
            write_cell(tmp_path, "gpu", replies, telemetry={"energy_j": 4.0}),
            write_cell(tmp_path, "cpu", replies, concurrency=2, telemetry=None),
        ],
        DIGESTS,
    ).cells.set_index("cell_id")
    assert cells.loc["gpu", "output_tok_per_joule"] == 2.5  # 10 tokens, 4 J
    assert pd.isna(cells.loc["cpu", "output_tok_per_joule"])
