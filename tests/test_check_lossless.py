"""First differences between greedy replies with and without a drafter, and their logit gaps."""

import pytest

from metric_records import reply, write_cell
from speedstudy.cells import Cell
from speedstudy.check_lossless import Difference, agreements, differences, logit_gaps
from speedstudy.records import read_cell
from speedstudy.workload import Prompt

WORKLOADS = {
    "qualitative--1": [
        Prompt(prompt_id="p", category=None, turn_token_ids=((1, 2), (9, 3))),
        Prompt(prompt_id="q", category=None, turn_token_ids=((4,),)),
    ]
}


def turn(prompt_id, ids, index=0):
    chunks = [(0.1 * (i + 1), 1) for i in range(len(ids))]
    return reply(chunks, prompt_id=prompt_id, category=None, turn=index, token_ids=ids)


@pytest.fixture
def cells(tmp_path):
    def write(baseline, drafter, **fields):
        directories = [
            write_cell(tmp_path, "none--1", baseline, **fields),
            write_cell(tmp_path, "ngram--2", drafter, method="ngram", k=3, **fields),
        ]
        return [Cell(directory, read_cell(directory)) for directory in directories]

    return write


def test_equal_replies_have_no_difference(cells):
    replies = [turn("p", [5, 6]), turn("q", [7])]
    assert differences(cells(replies, replies), WORKLOADS) == []


def test_a_later_turn_is_named_with_all_that_came_before_it(cells):
    first = turn("p", [5, 9])  # ends with 9, which the continuation (9, 3) starts with
    before = [first, turn("p", [7, 8], 1), turn("q", [7])]
    after = [first, turn("p", [7, 6], 1), turn("q", [7])]
    (found,) = differences(cells(before, after), WORKLOADS)
    assert (found.cell_id, found.baseline_cell_id) == ("ngram--2", "none--1")
    assert (found.prompt_id, found.turn, found.position) == ("p", 1, 1)
    assert (found.baseline_token_id, found.drafter_token_id) == (8, 6)
    assert found.prefix == (1, 2, 5, 9, 3, 7)


def test_a_reply_that_ends_early_has_no_second_token(cells):
    (found,) = differences(cells([turn("q", [7, 8])], [turn("q", [7])]), WORKLOADS)
    assert (found.position, found.baseline_token_id, found.drafter_token_id) == (1, 8, None)


def test_sampled_and_failed_cells_are_not_compared(cells, tmp_path):
    before, after = [turn("q", [7])], [turn("q", [8])]
    made = cells(before, after)
    made[1].record["status"] = "failed"
    assert differences(made, WORKLOADS) == []
    made[1].record["status"] = "ok"
    for cell in made:
        cell.record["cell"]["sampling"]["temperature"] = 1.0
    assert differences(made, WORKLOADS) == []


def test_a_gap_is_the_distance_of_two_logits_of_the_target(tmp_path):
    """A model whose head is the identity over one-hot embeddings and whose layers add nothing."""
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=4,
        hidden_size=4,
        intermediate_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.model.embed_tokens.weight[2] = 1.0  # every hidden value 1, so the norm keeps it
        model.model.norm.weight.fill_(1.0)
        model.lm_head.weight[0] = 1.0  # logit 4
        model.lm_head.weight[1] = 0.25  # logit 1
    model.save_pretrained(tmp_path)
    common = {"cell_id": "a", "baseline_cell_id": "b", "target": "t", "prompt_id": "p"}
    one = Difference(
        **common, turn=0, position=0, baseline_token_id=0, drafter_token_id=1, prefix=(3, 2)
    )
    ended = Difference(
        **common, turn=1, position=0, baseline_token_id=0, drafter_token_id=None, prefix=(3, 2)
    )
    gaps = logit_gaps([one, ended], tmp_path)
    assert gaps[one] == pytest.approx(3.0, abs=1e-4)
    assert gaps[ended] is None


def test_drafters_are_measured_by_what_the_engine_agrees_in_with_itself(tmp_path):
    """Eight replies of two tokens; the pairs' shares by hand."""

    def replies(changed, position):
        return [
            turn(f"p{i}", [1, 9] if i < changed and position else [9, 2] if i < changed else [1, 2])
            for i in range(8)
        ]

    def cell(name, changed, position=1, *, concurrency=1, repeat=1, engine="one", **drafter):
        directory = write_cell(tmp_path, name, replies(changed, position), **drafter)
        made = Cell(directory, read_cell(directory))
        made.record["cell"]["engine"] = {**made.record["cell"]["engine"], "name": engine}
        made.record["cell"]["load"]["concurrency"] = concurrency
        made.record["cell"]["repeat"] = repeat
        return made

    rows = agreements(
        [
            cell("none--1", 0),
            cell("none--2", 2, repeat=2),
            cell("none--3", 4, 0, concurrency=8),
            cell("ngram--4", 1, concurrency=8, method="ngram", k=3),
            cell("ngram--5", 0, concurrency=4, method="ngram", k=3),  # nothing to compare with
            cell("none--6", 3, engine="other"),
            cell("none--7", 3, 0, engine="other", concurrency=8),
        ]
    )
    told = [
        (row["kind"], row["cell_id"], row["other_cell_id"], row["replies_equal"]) for row in rows
    ]
    assert told == [
        ("repeat", "none--2", "none--1", 6),
        ("batch", "none--3", "none--1", 4),
        ("drafter", "ngram--4", "none--3", 4),  # p0 to p3: [1, 9] or [1, 2] beside [9, 2]
        ("engine", "none--6", "none--1", 5),
        ("batch", "none--7", "none--6", 5),
        ("engine", "none--7", "none--3", 7),  # p0 to p2 are [9, 2] in both
    ]
    assert [row["share_equal"] for row in rows] == [0.75, 0.5, 0.5, 0.625, 0.625, 0.875]
    assert [row["median_first_difference"] for row in rows] == [1, 0, 0, 1, 0, 0]
