"""Counters of draft acceptance out of Prometheus text, and what is wrong between two scrapes."""

import asyncio

import aiohttp
import pytest

from fixture_server import FixtureServer, Script
from speedstudy.client.counters import read_counters, reset_error, scrape
from speedstudy.dialects import DIALECTS

VLLM = DIALECTS["vllm"].counter_names
TRTLLM = DIALECTS["trtllm"].counter_names
NAME = "vllm:spec_decode_num"


def text(*lines):
    return "\n".join(lines) + "\n"


def test_label_sets_of_all_engines_are_summed_whatever_is_in_their_labels():
    snapshot = read_counters(
        text(
            f"# HELP {NAME}_drafts_total Drafts, {{all}} of them.",
            f"# TYPE {NAME}_drafts_total counter",
            f'{NAME}_drafts_total{{engine="0",model_name="a\\"b, c=\\"d}}"}} 4',
            f'{NAME}_drafts_total{{engine="1",model_name="a\\\\b\\n#"}} 6.0',
        ),
        VLLM,
    )
    assert snapshot["num_drafts"] == 10.0
    assert len(snapshot["series"]) == 2


def test_created_lines_exponents_and_time_stamps():
    snapshot = read_counters(
        text(
            f"# TYPE {NAME}_draft_tokens counter",
            f"{NAME}_draft_tokens_total 1.5e+06 1700000000000",
            f"{NAME}_draft_tokens_created 1.7e9",
            f"# TYPE {NAME}_draft_tokens_created gauge",
            f"{NAME}_draft_tokens_created 1.7e9",
        ),
        VLLM,
    )
    assert snapshot["num_draft_tokens"] == 1_500_000.0


def test_positions_are_a_list_and_those_without_a_series_count_as_0():
    lines = [
        f'trtllm_spec_decode_accepted_tokens_total{{token_position="{k}"}} {n}'
        for k, n in ((0, 8), (2, "3e0"))
    ]
    drafted = 'trtllm_spec_decode_drafted_tokens_total{token_position="0"} 9'
    snapshot = read_counters(text(*lines, drafted), TRTLLM)
    assert snapshot["num_accepted_tokens_per_pos"] == [8.0, 0.0, 3.0]
    assert snapshot["num_draft_tokens_per_pos"] == [9.0]
    assert snapshot["num_drafts"] is None  # TensorRT-LLM has no such counter


def test_a_server_without_the_counters_has_nulls():
    snapshot = read_counters(text("# nothing", "up 1"), VLLM)
    assert snapshot.pop("series") == {}
    assert set(snapshot.values()) == {None}


@pytest.mark.parametrize(
    "line",
    [
        f"{NAME}_drafts_total NaN",
        f"{NAME}_drafts_total -1",
        f"{NAME}_drafts_total +Inf",
        f'{NAME}_accepted_tokens_per_pos_total{{position="last"}} 1',
        f"{NAME}_accepted_tokens_per_pos_total 1",
        f"{NAME}_drafts_total one",
    ],
)
def test_what_is_no_count_is_an_error(line):
    with pytest.raises(ValueError, match=r"NaN|nan|-1|inf|position|one"):
        read_counters(text(line), VLLM)


def drafts(**engines):
    lines = [f'{NAME}_drafts_total{{engine="{name}"}} {value}' for name, value in engines.items()]
    return read_counters(text(*lines), VLLM)


def test_a_reset_is_seen_on_the_series_that_fell_also_where_the_sum_grew():
    before = drafts(a=1000, b=100)
    assert reset_error(before, drafts(a=1000, b=100)) is None
    assert reset_error(before, drafts(a=1001, b=100, c=5)) is None
    fell = reset_error(before, drafts(a=40, b=2000))
    assert 'num_drafts_total{engine="a"} fell to 40 from 1000' in fell
    assert "vanished" in reset_error(before, drafts(b=2000))


def scraped(dialect, **more):
    async def run(url):
        async with aiohttp.ClientSession() as session:
            return await scrape(session, url, DIALECTS[dialect])

    with FixtureServer(dialect=dialect, **more) as server:
        return asyncio.run(run(server.url))


def test_llama_cpp_rounds_large_counters_and_they_are_refused():
    name = "llamacpp:spec_decode_num_draft_tokens_total"
    snapshot, why = scraped("llamacpp", metrics_texts=[f"{name} 1.23457e+06\n"])
    assert snapshot is None
    assert "rounded from 1e+06 on" in why
    snapshot, why = scraped("llamacpp", metrics_texts=[f"{name} 999999\n"])
    assert (snapshot["num_draft_tokens"], why) == (999_999.0, None)


@pytest.mark.parametrize(
    ("dialect", "texts", "words"),
    [
        ("vllm", (), "HTTP status 404"),
        ("vllm", [f"{NAME}_drafts_total one\n"], "not counters in Prometheus text"),
        ("openai", (), "names no counters"),
    ],
)
def test_why_there_are_no_counters(dialect, texts, words):
    snapshot, why = scraped(dialect, metrics_texts=texts)
    assert snapshot is None
    assert words in why


def test_counters_as_each_engine_prints_them():
    # Three steps: 3 drafted and 2 accepted, nothing drafted, 2 drafted and none accepted.
    script = Script(blocks=((1,), (2, 3, 4), (5,), (6,)), step_drafted=(3, 0, 2))
    for dialect, known in {
        "vllm": {"num_drafts": 2, "num_draft_tokens": 5, "num_accepted_tokens": 2},
        "llamacpp": {"num_drafts": 2, "num_draft_tokens": 5, "num_accepted_tokens": 2},
        "sglang": {"num_steps": 3},
        "trtllm": {"num_draft_tokens_per_pos": [2, 2, 1]},
    }.items():
        server = FixtureServer(dialect=dialect, counters=True)
        server.tally.add(script)
        snapshot = read_counters(server.tally.text(dialect), DIALECTS[dialect].counter_names)
        assert {name: snapshot[name] for name in known} == known
        if dialect != "sglang":
            assert snapshot["num_accepted_tokens_per_pos"][:2] == [1, 1]
