"""The vectors of the project's list (reference/peers.md, section 3B), one test an id.

Each has its input and the answer by hand; what other tools make of it is in the list. Numbers
that the list leaves out (V5, V10, ...) have no input there.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixture_server import FixtureServer, Script
from metric_records import PREFILL, VERIFY, counters, drafter_cell, reply, stepped
from speedstudy import chat, cli, records
from speedstudy.client.counters import read_counters
from speedstudy.client.load import run_load
from speedstudy.client.options import LoadOptions
from speedstudy.collect import hle_few_shot, prepared_split
from speedstudy.collect.candidates import SENTINEL, Candidate
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Chunk, Sampling
from speedstudy.dialects.sse import split_events
from speedstudy.metrics.acceptance import acceptance
from speedstudy.metrics.conventions import chunk_rates
from speedstudy.metrics.measure import measure
from speedstudy.metrics.positions import al_full_draft, conditional_rates, unconditional_rates
from speedstudy.metrics.throughput import throughput
from speedstudy.metrics.timing import latency
from speedstudy.study import load_study
from speedstudy.workload import Prompt
from tiny_tokenizer import CHATML, write_tiny_tokenizer

approx = pytest.approx


def pooled(turns, cell=PREFILL):
    return acceptance(turns, cell)["pooled"]


def means(turns):
    return {name: values["mean"] for name, values in latency(turns).items()}


def stream(*payloads, end=b"\n\n"):
    lines = [p if isinstance(p, bytes) else b"data: " + json.dumps(p).encode() for p in payloads]
    return b"".join(line + end for line in lines)


def parse(dialect, body):
    return DIALECTS[dialect].parse(split_events([body]))


def text(value, **more):
    return {"choices": [{"index": 0, "text": value, **more}]}


# Acceptance


def test_v1_the_prefill_token_is_no_step():
    # 1 + 3 steps of 3 tokens: A = 6, 1 + 6/3 = 3; SPEED-Bench's harness has 10 tokens / 4 chunks,
    # SGLang 10 / 3.
    turn = stepped([2, 2, 2], [2, 2, 2], tokens=10, sizes=[1, 3, 3, 3])
    result = acceptance([turn], PREFILL)
    assert result["pooled"]["al"] == 3.0
    assert result["pooled"]["al_emitted"] == 3.0
    assert result["pooled"]["ar"] == 1.0
    assert result["pooled"]["identity_gap"] == {"sum": 1, "counts": {"1": 1}}
    assert result["conventions"]["specdec_bench"]["Average_AL"] == 2.5
    assert result["conventions"]["sglang"]["spec_accept_length"] == approx(10 / 3)
    assert result["conventions"]["vllm"]["spec_decode_acceptance_length"] == 3.0
    assert result["conventions"]["vllm"]["spec_decode_per_position_acceptance_rates"] == [1, 1]


@pytest.mark.parametrize("sizes", [[1, 3], None])
def test_v2_eos_inside_a_step(sizes):
    # The step verified 5 drafts and its bonus token, the reply kept 3: one pass, 1 + 5/1. With
    # the stream it is seen to be the only step. Without it nothing is derived.
    turn = stepped([5], [5], tokens=4, sizes=sizes, finish_reason="stop")
    result = acceptance([turn], PREFILL)
    numbers = result["pooled"]
    assert numbers["al_drafted"] == 6.0
    assert numbers["identity_gap"] == {"sum": -2, "counts": {"-2": 1}}
    assert numbers["al"] == (6.0 if sizes else None)
    assert numbers["al_emitted"] == (3.0 if sizes else None)
    flagged = any("1 of 1 requests end inside a verify step" in note for note in result["notes"])
    assert flagged == (sizes is not None)


def histogram_of(told, drafted):
    """The record of a vLLM reply that tells this histogram, as the dialect reads it."""
    event = {
        "choices": [],
        "metrics": {"speculative_decoding": told | {"num_draft_tokens": drafted}},
    }
    has = parse("vllm", stream(text("", token_ids=[1]), event)).acceptance
    return reply(
        completion_tokens=1 + has.steps_drafted + has.accepted,
        steps_drafted=has.steps_drafted,
        drafted=has.drafted,
        accepted=has.accepted,
        step_accepted=has.step_accepted,
        acceptance_source=has.source,
    )


@pytest.mark.parametrize("histogram", [[39, 1, 0, 3], {"0": 39, "1": 1, "3": 3}])
def test_v3_histogram_dense_and_sparse(histogram):
    # S 43, A = 1 + 3*3 = 10; j >= 1: 4, j >= 2: 3, j >= 3: 3.
    numbers = pooled([histogram_of({"acceptance_histogram": histogram}, 129)])
    assert (numbers["steps"], numbers["accepted"]) == (43, 10)
    assert numbers["al"] == approx(1.23256, abs=5e-6)
    assert numbers["ar"] == approx(0.07752, abs=5e-6)
    assert numbers["unconditional"] == approx([0.0930, 0.0698, 0.0698], abs=5e-5)
    assert numbers["conditional"] == approx([0.0930, 0.75, 1.0], abs=5e-5)


def test_v4_histogram_with_a_length_that_never_occurred():
    # S 20, A = 12 + 18 = 30; j >= 1: 12, j >= 2: 12, j >= 3: 6.
    numbers = pooled([histogram_of({"acceptance_histogram": [8, 0, 6, 6]}, 60)])
    assert (numbers["al"], numbers["ar"]) == (2.5, 0.5)
    assert numbers["unconditional"] == approx([0.6, 0.6, 0.3])
    assert numbers["conditional"] == approx([0.6, 1.0, 0.5])


def test_v6_conditional_rates_of_lengths_that_never_occurred():
    # Emitted 1 five times and 3 five times: j = 0 and 2, so c_1 = 5/10 and c_2 = 5/5.
    pairs = Counter({(2, 0): 5, (2, 2): 5})
    assert conditional_rates(pairs) == [0.5, 1.0]
    assert chunk_rates({1: 5, 3: 5}) == ({1: 1.0, 3: 0.5}, {1: 1.0, 3: 0.5})


def test_v7_varying_draft_length_and_a_step_without_a_draft():
    # A = 4, sum L = 7; 4 steps, 3 drafted. j >= 1: 2 of 3 with L >= 1; j >= 2: 1 of the 1 that
    # had j >= 1 and L >= 2, of the 2 with L >= 2.
    numbers = pooled([stepped([3, 1, 0, 3], [3, 1, 0, 0], tokens=9, steps=4)])
    assert numbers["al"] == 2.0
    assert numbers["al_drafted"] == approx(7 / 3)
    assert numbers["ar"] == approx(4 / 7)
    assert numbers["conditional"] == approx([2 / 3, 1.0, 1.0])
    assert numbers["unconditional"] == approx([2 / 3, 0.5, 0.5])
    # 1 + 2/3 + 2/3 + 2/3: longer than any al, since short drafts end early.
    assert numbers["al_full_draft"] == approx(3.0)


def test_v8_no_verify_step_is_null_and_stays_in_the_latencies():
    turn = stepped([], [], tokens=1, sizes=[1])
    numbers = pooled([turn])
    assert numbers["steps"] == 0
    for name in ("al", "al_drafted", "al_emitted", "ar", "conditional", "unconditional"):
        assert numbers[name] is None
    assert latency([turn])["ttft_ms"]["mean"] == approx(100)


def test_v9_pooled_and_mean_of_requests_are_two_numbers():
    # A: 10 steps accept 30, 1 + 3 = 4. B: 90 steps accept 0, 1. Pooled 1 + 30/100, mean 2.5.
    a = stepped([3] * 10, [3] * 10, tokens=41, prompt_id="a")
    b = stepped([3] * 90, [0] * 90, tokens=91, prompt_id="b")
    result = acceptance([a, b], PREFILL)
    assert result["pooled"]["al"] == approx(1.3)
    assert result["per_request_mean"] == {"al": 2.5, "ar": 0.5}


def test_v11_counters_that_fell_give_no_number_and_say_why():
    cell = {
        **PREFILL,
        "counters": {"before": counters(1000, 1, 1, []), "after": counters(40, 1, 1, [])},
    }
    result = acceptance([reply([(0.1, 1), (0.2, 1)])], cell)
    assert result["pooled"]["al_drafted"] is None
    assert result["pooled"]["steps_drafted"] is None
    assert any("num_drafts fell from 1000 to 40" in note for note in result["notes"])


def test_v14_counters_of_the_warm_up_do_not_count():
    # Warm-up: 100 steps, nothing accepted. Measured: 100 steps accept 200, AL 3; the lifetime
    # average would be 2. One reply of 301 tokens: 301 - 1 - 200 = 100 steps, all drafted.
    cell = {
        **drafter_cell("eagle3", 2),
        "counters": {
            "before": counters(100, 200, 0, [0, 0]),
            "after": counters(200, 400, 200, [100, 100]),
        },
    }
    result = acceptance([reply([(0.1, 1), (0.2, 300)])], cell)
    assert result["source"] == "counters"
    numbers = result["pooled"]
    assert (numbers["al"], numbers["al_drafted"], numbers["ar"]) == (3.0, 3.0, 1.0)
    assert (numbers["steps"], numbers["steps_drafted"]) == (100, 100)
    assert numbers["unconditional"] == [1.0, 1.0]
    assert numbers["conditional"] == [1.0, 1.0]
    assert numbers["identity_gap"] == {"sum": 1, "counts": {}}


def test_v15_lengths_are_averaged_over_steps_and_no_gauge_is_read():
    # Length 2.0 over 10 steps, 4.0 over 90: (20 + 360) / 100 = 3.8, not the mean of the two.
    turns = [
        reply(completion_tokens=21, steps=10, accepted=10, drafted=30),
        reply(completion_tokens=361, steps=90, accepted=270, drafted=270),
    ]
    assert pooled(turns)["al"] == approx(3.8)
    gauge = "# TYPE sglang:spec_accept_length gauge\nsglang:spec_accept_length 4.0\n"
    assert read_counters(gauge, DIALECTS["sglang"].counter_names)["series"] == {}


def test_v16_too_few_steps_for_the_servers_interval_give_no_value_and_a_valid_run():
    # SGLang's gauge appears after 40 steps. 39 ran, nothing else tells: null, and the run stands.
    event = {"output_ids": [1, 2], "meta_info": {"completion_tokens": 2, "prompt_tokens": 3}}
    assert parse("sglang", stream(event)).acceptance is None
    names = ("num_steps", "num_drafts", "num_draft_tokens", "num_accepted_tokens")
    absent = dict.fromkeys(names)
    cell = {**PREFILL, "counters": {"before": absent, "after": absent, "error": None}}
    result = measure([reply([(0.1, 1), (0.2, 39)])], cell)
    assert result["acceptance"]["source"] is None
    assert result["acceptance"]["pooled"]["al"] is None
    assert result["requests"]["ok"] == 1
    assert result["latency"]["tpot_ms"]["mean"] == approx(100 / 39)


def test_v46_averages_of_tensorrt_llm_are_pooled_by_their_iterations():
    # 4 tokens at 1.0 a iteration are 4 iterations, 9 at 3.0 are 3: 3 + 2 verify steps, 3 + 8
    # tokens after the prefill's. The mean of the two averages, or the last one, is neither.
    turns = []
    for blocks, average in (([[1]] * 4, 1.0), ([[1], [1] * 4, [1] * 4], 3.0)):
        events = [text("", token_ids=block) for block in blocks]
        events[-1]["choices"][0]["avg_decoded_tokens_per_iter"] = average
        told = parse("trtllm", stream(*events))
        turns.append(
            reply(
                completion_tokens=told.completion_tokens,
                steps=told.acceptance.steps,
                accepted=told.acceptance.accepted,
            )
        )
    numbers = pooled(turns)
    assert (numbers["steps"], numbers["accepted"]) == (5, 6)
    assert numbers["al"] == numbers["al_emitted"] == approx(11 / 5)
    # Without the tokens there is no weight, and no number.
    nothing = parse("trtllm", stream(text("", avg_decoded_tokens_per_iter=3.0)))
    assert nothing.acceptance is None


def test_v47_a_length_counts_the_bonus_token():
    # TensorRT-LLM's switch takes accepted drafts a step: 2.5 of them are a length of 3.5.
    assert pooled([stepped([3, 3], [2, 3], tokens=8)])["al"] == 3.5


def test_v48_one_length_and_two_histograms():
    # Two engines forced to 2.5 at k = 3: always 1 and half the time 2; or one p for all three
    # positions with p + p^2 + p^3 = 1.5. What is recorded tells them apart.
    vllm = Counter({(3, 1): 500, (3, 2): 500})
    assert unconditional_rates(vllm) == [1.0, 0.5, 0.0]
    assert al_full_draft(conditional_rates(vllm)) == 2.5
    p = 0.69141
    # 1e5 steps: at least k with p^k.
    at_least = [100_000, 69_141, 47_805, 33_053, 0]
    llamacpp = Counter({(3, j): at_least[j] - at_least[j + 1] for j in range(4)})
    assert unconditional_rates(llamacpp) == approx([0.691, 0.478, 0.331], abs=5e-4)
    assert al_full_draft(conditional_rates(llamacpp)) == approx(2.5, abs=1e-4)
    assert al_full_draft([p] * 3) == approx(2.5, abs=1e-4)


def test_v51_identity_gap():
    turns = [
        stepped([3], [2], tokens=4),  # 4 - 1 - 2 = 1: prefill token apart
        reply(completion_tokens=111, steps=30, accepted=81, drafted=90),  # 0: verified together
        stepped([3], [1], tokens=7),  # 7 - 1 - 1 = 5: four steps without a draft
        stepped([5], [5], tokens=4),  # -2: EOS cut
    ]
    assert pooled(turns)["identity_gap"] == {
        "sum": 4,
        "counts": {"-2": 1, "0": 1, "1": 1, "5": 1},
    }
    mlx = pooled(turns[1:2], VERIFY)
    assert mlx["al"] == approx(3.7)
    assert mlx["ar"] == approx(0.9)
    assert mlx["al_emitted"] == approx(3.7)  # 111 / 30: no prefill token apart


# Timing


def test_v20_steps_of_four_tokens():
    # Sent at 0, 1 token at 100 ms, then 4 chunks of 4 every 40 ms: 17 tokens, last at 260 ms.
    turn = reply([(0.1, 1), (0.14, 4), (0.18, 4), (0.22, 4), (0.26, 4)])
    assert means([turn]) == approx(
        {**means([turn]), "ttft_ms": 100, "tpot_ms": 10, "itl_ms": 10, "chunk_gap_ms": 40}
    )
    assert means([turn])["e2e_ms"] == approx(260)
    rates = throughput([turn], PREFILL)
    assert rates["output_tok_per_s"] == approx(17 / 0.26)  # 65.4
    assert rates["user_tok_per_s"] == approx(100)
    # The window is the span (shorter than 1 s) and holds all 17 tokens.
    assert rates["peak_tok_per_s"] == approx(17 / 0.26)
    # In a load of 2 s the busiest second holds the 17.
    later = reply([(2.0, 1)], sent_s=1.9)
    assert throughput([turn, later], PREFILL)["peak_tok_per_s"] == approx(17)


def test_v22_one_chunk_has_no_gap():
    turn = reply([(0.1, 8)])
    distributions = latency([turn])
    for name in ("tpot_ms", "itl_ms", "chunk_gap_ms"):
        assert set(distributions[name].values()) == {None}
    assert distributions["ttft_ms"]["mean"] == approx(100)
    assert throughput([turn], PREFILL)["user_tok_per_s"] is None
    assert throughput([turn], PREFILL)["output_tok_per_s"] == approx(80)


def test_v23_one_token():
    distributions = latency([reply([(0.1, 1)])])
    assert distributions["tpot_ms"]["mean"] is None
    assert distributions["ttft_ms"] == distributions["e2e_ms"]


def test_v24_a_role_is_no_token():
    role = {"choices": [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]}
    told = parse("vllm", stream(role, text("", token_ids=[]), text("Hi", token_ids=[7])))
    assert told.chunks == [Chunk(2, 1)]  # the first chunk, and TTFT, is the third event's
    assert means([reply([(0.1, 1), (0.2, 1)])])["ttft_ms"] == approx(100)


def test_v25_an_empty_text_with_an_id_is_a_token():
    told = parse("vllm", stream(text("", token_ids=[5]), text("a", token_ids=[6])))
    assert told.chunks == [Chunk(0, 1), Chunk(1, 1)]
    assert told.token_ids == [5, 6]


def test_v26_a_trailing_usage_is_read_and_is_no_chunk():
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    told = parse("openai", stream(text("a", finish_reason="stop"), usage))
    assert told.chunks == [Chunk(0, 1)]  # E2E ends with the last chunk
    assert (told.prompt_tokens, told.completion_tokens, told.error) == (3, 1, None)


def test_v27_usage_inside_the_last_choices_event():
    last = text("b", finish_reason="stop") | {"usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    told = parse("openai", stream(text("a"), last))
    assert told.chunks == [Chunk(0, 1), Chunk(1, 1)]
    assert (told.prompt_tokens, told.completion_tokens) == (3, 2)


def test_v28_without_usage_the_ids_count_or_nothing():
    told = parse("vllm", stream(text("a", token_ids=[5, 6]), text("b", token_ids=[7])))
    assert told.completion_tokens == 3
    told = parse("openai", stream(text("a b c"), text("d", finish_reason="length")))
    assert told.completion_tokens is None


def test_v34_goodput_is_of_what_was_sent():
    # 2 sent, 1 good and 1 failed, within 1 s.
    turns = [reply([(0.5, 1), (1.0, 1)]), reply(outcome="error", prompt_id="q")]
    result = measure(turns, PREFILL)
    assert result["throughput"]["requests_per_s"] == approx(1.0)
    assert result["requests"]["ok"] / result["requests"]["total"] == 0.5


def test_v35_waiting_for_a_slot_is_in_the_latency_from_schedule():
    # 8 arrivals, one every 100 ms, one slot, 500 ms each: sent at 500 i, done 500 ms later, so
    # that arrival i waits and is served for 500 + 400 i.
    turns = [
        reply([(0.5 * i + 0.5, 1)], sent_s=0.5 * i, scheduled_s=0.1 * i, prompt_id=str(i))
        for i in range(8)
    ]
    assert means(turns)["e2e_ms"] == approx(500)
    assert means(turns)["e2e_scheduled_ms"] == approx(1900)


def test_v49_tpot_divides_by_the_tokens_that_follow():
    # First of 11 tokens at 1 s, the last at 2 s: ten gaps in one second.
    assert means([reply([(1 + i / 10, 1) for i in range(11)])])["tpot_ms"] == approx(100)


# Stream parsing and outcome


def test_v29a_two_events_by_crlf_in_one_read():
    events = split_events([b'data: {"a":1}\r\n\r\ndata: {"a":2}\r\n\r\n'])
    assert [event.data for event in events] == [b'{"a":1}', b'{"a":2}']


def test_v29b_no_space_event_lines_and_comments():
    body = b'data:{"a":1}\n\nevent: x\ndata: {"a":2}\n\n: ping\n\n'
    assert [event.data for event in split_events([body])] == [b'{"a":1}', b'{"a":2}']


def test_v29c_every_cut_also_inside_a_character():
    body = stream(text("\u20ac\u2028", token_ids=[5]), text("b", token_ids=[6]))
    whole = parse("vllm", body)
    assert whole.token_ids == [5, 6]
    for place in range(len(body)):
        assert DIALECTS["vllm"].parse(split_events([body[:place], body[place:]])) == whole
    reads = [body[i : i + 1] for i in range(len(body))]
    assert DIALECTS["vllm"].parse(split_events(reads)) == whole


VLLM_PROMPTS = [Prompt(prompt_id="p", category=None, turn_token_ids=((100, 1),))]


def play(script, prompts=VLLM_PROMPTS, concurrency=1, **more):
    """Send the prompts to a fixture that answers by the script; returns turns, result, server."""
    answer = script if callable(script) else lambda number, body: script
    with FixtureServer(script=answer, **more) as server, tempfile.TemporaryDirectory() as folder:
        options = LoadOptions(
            url=server.url,
            model="m",
            concurrency=concurrency,
            sampling=Sampling(max_tokens=4, seed=0),
        )
        result = run_load(options, prompts, [], DIALECTS["vllm"], Path(folder))
        turns = records.read_requests(Path(folder) / "requests.parquet")
    return turns, result, server


def test_v29e_events_of_one_read_share_its_time_and_are_flagged():
    (turn,), result, _ = play(Script(blocks=((11,), (12,), (13,)), one_write=True))
    assert (turn.chunk_tokens, turn.coalesced_reads) == ([1, 1, 1], 2)
    assert len(set(turn.chunk_s)) == 1
    assert result.client["coalesced_share"] == approx(2 / 3)


def test_v30_an_error_inside_a_200_stream_is_a_failure_with_its_text():
    (turn,), _, _ = play(Script(fault="error_event"))
    assert turn.outcome == "error"
    assert "engine died" in turn.error


@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_v31_a_stream_that_breaks_off_is_incomplete_and_in_no_latency(fault):
    (turn,), _, _ = play(Script(fault=fault))
    assert turn.outcome == "incomplete"
    assert turn.error
    assert turn.token_ids == [11, 12]  # what came is kept
    assert set(latency([turn])["ttft_ms"].values()) == {None}


def test_v32_no_token_is_a_class_of_its_own():
    (turn,), _, _ = play(Script(blocks=((),)))
    assert (turn.outcome, turn.completion_tokens, turn.chunk_tokens) == ("empty", 0, [])
    measured = measure([turn], PREFILL)
    assert measured["requests"]["empty"] == 1
    assert measured["latency"]["ttft_ms"]["mean"] is None


def test_v33_every_request_failed_is_null_and_a_status(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt_id": "p", "prompt_token_ids": [1, 2]}))
    with FixtureServer(script=lambda number, body: Script(fault="status")) as server:
        words = ["load", "--dialect", "vllm", "--url", server.url, "--model", "m"]
        words += ["--prompts", str(rows), "--concurrency", "1", "--max-tokens", "4"]
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, "--out", str(tmp_path / "out")])
    capsys.readouterr()
    assert stop.value.code not in (0, None)
    cell = records.read_cell(tmp_path / "out")
    rates = measure(records.read_requests(tmp_path / "out" / "requests.parquet"), cell)
    assert set(rates["throughput"].values()) == {None}
    assert rates["requests"]["error"] == 1


def test_v54_a_refused_request_is_not_sent_again():
    def first_fails(number, body):
        return Script(fault="status", status=503, body="busy") if number == 0 else Script()

    (turn,), _, server = play(first_fails)
    assert (turn.outcome, turn.error) == ("error", "HTTP status 503: busy")
    assert len(server.bodies) == 1


def test_v55_as_many_in_flight_as_asked_for():
    prompts = [
        Prompt(prompt_id=f"p{i}", category=None, turn_token_ids=((100 + i,),)) for i in range(128)
    ]
    turns, _, server = play(Script(), prompts=prompts, concurrency=128, hold=128)
    assert server.max_in_flight == 128
    assert {turn.outcome for turn in turns} == {"ok"}


# Tokens, cache, data


def test_v36_prompts_from_the_prefix_cache_flag_the_run():
    (turn,), result, _ = play(Script(cached_tokens=2))
    assert turn.cached_tokens == 2
    # The verdict names the first bound crossed, which on a busy machine may be another.
    assert any(text.startswith("cached: ") for text in result.client["crossed"])


def test_v37_text_is_never_tokenised_to_count():
    # Three pieces of a reply of two ids, fifteen spaces that a tokenizer would join, four
    # one-token pieces to each of which a tokenizer would add a BOS.
    usage = {"choices": [], "usage": {"completion_tokens": 2}}
    pieces = parse("openai", stream(text("Hel"), text("lo"), text(" world"), usage))
    assert pieces.completion_tokens == 2
    spaces = parse("vllm", stream(*(text(" ", token_ids=[220]) for _ in range(15))))
    assert spaces.completion_tokens == 15
    four = parse("vllm", stream(*(text("a", token_ids=[i]) for i in range(4))))
    assert four.completion_tokens == 4


def test_v38_another_prompt_length_than_the_ids_sent_fails_the_cell():
    _, result, server = play(Script(prompt_tokens=3))
    assert server.bodies[0]["prompt"] == [100, 1]  # ids, not a text that comes back longer
    assert "counted or echoed another prompt" in result.failure()


def test_v39_one_bos_where_template_and_tokenizer_both_add_one(tmp_path):
    folder = write_tiny_tokenizer(tmp_path / "t", chat_template="<|endoftext|>" + CHATML)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    single = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}]
    single.append({"Sequence": {"id": "A", "type_id": 0}})
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
        },
    }
    path.write_text(json.dumps(tokenizer))
    loaded = chat.load_tokenizer(folder)
    assert loaded("fox")["input_ids"][0] == 0  # the tokenizer adds a BOS of its own
    (ids,) = chat.conversation_ids(loaded, ["The quick brown fox"])
    assert ids.count(0) == 1


ROW = {
    "question_id": "ab" * 16,
    "category": "math",
    "sub_category": "s",
    "source": "https://example.org/rows",
    "src_id": "7",
    "difficulty": "",
}


def read_split(path, **row):
    path.write_text(json.dumps(ROW | row) + "\n")
    return list(prepared_split.read("prepared_split", {path.name: path}, {}))


def test_v42_placeholder_and_both_layouts(tmp_path):
    path = tmp_path / "qualitative.jsonl"
    with pytest.raises(ValueError, match=f"row {'ab' * 16}: placeholder"):
        read_split(path, turns=[SENTINEL])
    (by_turns,) = read_split(path, turns=["Who?", "Why?"])
    messages = [{"role": "user", "content": content} for content in ("Who?", "Why?")]
    (by_messages,) = read_split(path, messages=messages)
    assert isinstance(by_turns, Candidate)
    assert by_turns == by_messages


def test_v42_two_turns_are_two_requests_with_the_models_own_reply_between():
    prompts = [Prompt(prompt_id="p", category=None, turn_token_ids=((100, 1), (2, 3)))]
    turns, _, server = play(Script(blocks=((11,), (12,))), prompts=prompts)
    assert [body["prompt"] for body in server.bodies] == [[100, 1], [100, 1, 11, 12, 2, 3]]
    assert [turn.outcome for turn in turns] == ["ok", "ok"]


def test_v42a_the_marker_in_a_list_is_refused_and_braces_of_a_real_prompt_are_not(tmp_path):
    path = tmp_path / "qualitative.jsonl"
    with pytest.raises(ValueError, match="placeholder"):
        read_split(path, turns=["Hello", f"{SENTINEL}\n\nSummarize: {{article}}"])
    (real,) = read_split(path, turns=["What does {article} stand for in this template?"])
    assert real.turns == ("What does {article} stand for in this template?",)


def test_v42b_1k_is_1000_tokens_of_o200k_base():
    study = load_study(Path(__file__).parents[1] / "config", ["experiment=speed_bench"])
    assert {b.name: (b.length, b.tokenizer) for b in study.buckets.values()} == {
        f"{thousand}k": (1000 * thousand, "o200k_base") for thousand in (1, 2, 8, 16, 32)
    }


def test_v42c_rows_in_any_order_build_the_same_prompts(tmp_path):
    def built(rows):
        path = tmp_path / "test.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        options = {"licence": "MIT", "max_chars": 200, "max_texts": 4}
        return {
            item.text_id: item
            for item in hle_few_shot.read("hle_few_shot", {path.name: path}, options)
            if hasattr(item, "text_id")
        }

    rows = [
        {
            "id": f"{i:024x}",
            "question": f"Question {i}?",
            "image": "",
            "rationale": f"Since {i}.",
            "category": "Math",
        }
        for i in range(40)
    ]
    serial = built(rows)
    assert len(serial) == 4
    assert built(rows[::-1]) == built([*rows[7:], *rows[:7]]) == serial
    # Rows of another subject, filtered out or not, change nothing in these.
    assert built([*rows, rows[0] | {"id": "f" * 24, "category": "Law", "image": "x"}]) == serial


def test_v43_replies_keep_to_the_limit_and_the_share_that_hit_it_is_told():
    # Limit 64: one reply ran into it, one ended by itself after 10.
    turns = [
        reply([(0.1, 1), (0.2, 63)], finish_reason="length"),
        reply([(0.1, 1), (0.2, 9)], finish_reason="stop", prompt_id="q"),
    ]
    told = measure(turns, PREFILL)["output_length"]
    assert told == {"mean_tokens": 37.0, "capped_share": 0.5}
    # With ignore_eos every engine is asked for all 64 in its own words.
    sampling = Sampling(max_tokens=64, ignore_eos=True)
    asked = {name: json.dumps(d.body("m", (1,), sampling)) for name, d in DIALECTS.items()
             if name != "openai"}  # fmt: skip
    assert all('"ignore_eos": true' in body and ": 64" in body for body in asked.values())
    with pytest.raises(ValueError, match="ignore_eos"):
        DIALECTS["openai"].body("m", (1,), sampling)
