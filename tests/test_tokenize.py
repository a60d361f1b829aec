"""Which prompts a workload takes, and their token ids."""

import argparse
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy import tokenize as stage
from speedstudy.chat import conversation_ids, load_tokenizer
from speedstudy.workload import read_workload
from tiny_tokenizer import write_tiny_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


def rows(**counts):
    return [
        {
            "question_id": f"{category}{i}",
            "category": category,
            "turns": [f"question {i} of {category}"] * (1 + i % 2),
        }
        for category, count in counts.items()
        for i in range(count)
    ]


CONFIG = {
    "workload": {"kind": "qualitative", "ids": "real", "bucket": None},
    "categories": ["qa", "math"],
    "requests": 3,
    "warmup": 2,
    "seed": 5,
}
RANDOM = {**CONFIG, "workload": {**CONFIG["workload"], "ids": "random"}}


def ids_of(prompts):
    return [prompt.prompt_id for prompt in prompts]


def test_requests_go_round_robin_and_the_next_rows_warm_up(tokenizer):
    measured, warm = stage.make_workload(rows(math=3, qa=2, other=4), tokenizer, CONFIG)
    assert ids_of(measured) == ["qa0", "math0", "qa1"]
    assert ids_of(warm) == ["math1", "math2"]
    assert measured[0].turn_token_ids == conversation_ids(tokenizer, ["question 0 of qa"])
    assert len(measured[2].turn_token_ids) == 2


def test_warm_up_goes_on_with_random_ids_when_rows_run_out(tokenizer):
    measured, warm = stage.make_workload(rows(math=2, qa=2), tokenizer, CONFIG)
    assert ids_of(warm) == ["math1", "warmup-0"]
    assert [len(ids) for ids in warm[1].turn_token_ids] == [
        len(ids) for ids in measured[0].turn_token_ids
    ]
    assert warm[1].turn_token_ids != measured[0].turn_token_ids


def test_random_ids_have_the_real_lengths_and_no_special_tokens(tokenizer):
    real, _ = stage.make_workload(rows(math=3, qa=3), tokenizer, CONFIG)
    random, _ = stage.make_workload(rows(math=3, qa=3), tokenizer, RANDOM)
    assert ids_of(random) == ids_of(real)
    special = {tokenizer.convert_tokens_to_ids(t) for t in ("<|im_start|>", "<|im_end|>")}
    for one, other in zip(real, random, strict=True):
        assert [len(ids) for ids in one.turn_token_ids] == [
            len(ids) for ids in other.turn_token_ids
        ]
        assert one.turn_token_ids != other.turn_token_ids
        assert not special & {i for ids in other.turn_token_ids for i in ids}


def test_random_ids_of_a_prompt_do_not_depend_on_the_others(tokenizer):
    few, _ = stage.make_workload(rows(math=1, qa=2), tokenizer, {**RANDOM, "warmup": 0})
    many, _ = stage.make_workload(rows(math=9, qa=9), tokenizer, RANDOM)
    assert few == many
    reseeded, _ = stage.make_workload(rows(math=9, qa=9), tokenizer, {**RANDOM, "seed": 6})
    assert reseeded != many


def test_vocabulary_is_every_id_but_the_special_ones(tokenizer):
    vocabulary = stage.plain_vocabulary(tokenizer).tolist()
    assert vocabulary == sorted(vocabulary)
    specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    expected = {i for token, i in tokenizer.get_vocab().items() if token not in specials}
    assert set(vocabulary) == expected


def test_too_few_prompts_are_named(tokenizer):
    with pytest.raises(ValueError, match="3 requests, but 2 prompts"):
        stage.make_workload(rows(qa=2), tokenizer, CONFIG)


def test_command_writes_both_files(tmp_path, folder, tokenizer):
    pq.write_table(pa.Table.from_pylist(rows(math=3, qa=3)), tmp_path / "selected.parquet")
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    report = stage.run(
        parser.parse_args(
            [
                *("--config", json.dumps(CONFIG), "--tokenizer", str(folder)),
                *("--prompts", str(tmp_path / "selected.parquet")),
                *("--out", str(tmp_path / "w.parquet")),
                *("--warmup-out", str(tmp_path / "w.warmup.parquet")),
            ]
        )
    )
    assert (report["prompts"], report["warmup"]) == (3, 2)
    measured = read_workload(tmp_path / "w.parquet")
    assert ids_of(measured) == ["qa0", "math0", "qa1"]
    assert measured[1].turn_token_ids == conversation_ids(tokenizer, ["question 0 of math"])
    assert ids_of(read_workload(tmp_path / "w.warmup.parquet")) == ["math1", "qa2"]


def test_a_missing_workload_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"w\.parquet: no such workload; run speedstudy tokenize"):
        read_workload(tmp_path / "w.parquet")
