"""The client against the fixture server: outcomes, concurrency, conversations, records."""

import argparse
import itertools
import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixture_server import FixtureServer, Script
from speedstudy import load, records
from speedstudy.client import selfcheck
from speedstudy.client.arrivals import poisson
from speedstudy.client.load import run_load
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.client.worker import WorkerReport
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt, continue_ids
from tiny_tokenizer import write_tiny_tokenizer

VLLM = DIALECTS["vllm"]


def prompts(count, turns=1, first=100):
    """Prompts whose first ids differ: [100, 1], [101, 1], ..., later turns [2, 3]."""
    return [
        Prompt(
            prompt_id=f"p{index}",
            category="coding" if index % 2 else None,
            turn_token_ids=((first + index, 1), *(((2, 3),) * (turns - 1))),
        )
        for index in range(count)
    ]


def options(server, concurrency=1, **more):
    sampling = Sampling(max_tokens=4, seed=0)
    return LoadOptions(
        url=server.url, model="m", concurrency=concurrency, sampling=sampling, **more
    )


def send(server, what, concurrency=1, warmup=(), **more):
    return run_and_read(options(server, concurrency, **more), what, warmup)


def run_and_read(load_options, what, warmup=()):
    """The fields of the load's result, and the turns of its record."""
    with tempfile.TemporaryDirectory() as folder:
        result = run_load(load_options, what, warmup, VLLM, Path(folder))
        turns = records.read_requests(Path(folder) / "requests.parquet")
    return SimpleNamespace(turns=turns, failure=result.failure, **vars(result))


def play(script, **more):
    """The record of one request that gets this reply."""
    with FixtureServer(script=lambda number, body: script) as server:
        result = send(server, prompts(1), **more)
    (turn,) = result.turns
    assert (turn.error is None) == (turn.outcome == "ok")
    assert turn.error != ""
    return turn, result


def test_an_ok_request_is_recorded_whole():
    handler = signal.getsignal(signal.SIGINT)
    told = {"per_step_accepted": [1, 0], "per_step_drafted": None}
    turn, result = play(Script(blocks=((11,), (12, 13), (14,)), speculative=told, cached_tokens=0))
    assert (turn.prompt_id, turn.category, turn.turn, turn.outcome) == ("p0", None, 0, "ok")
    assert turn.chunk_tokens == [1, 2, 1]
    assert turn.token_ids == [11, 12, 13, 14]
    assert (turn.prompt_tokens, turn.completion_tokens, turn.cached_tokens) == (2, 4, 0)
    assert turn.finish_reason == "length"
    assert (turn.steps, turn.steps_drafted, turn.drafted, turn.accepted) == (2, None, None, 1)
    assert (turn.step_accepted, turn.acceptance_source) == ([1, 0], "steps")
    assert 0 <= turn.scheduled_s <= turn.sent_s < turn.chunk_s[0]
    assert turn.chunk_s == sorted(turn.chunk_s)
    assert result.failure() is None
    assert signal.getsignal(signal.SIGINT) is handler
    assert result.server == {"version": "fixture"}
    assert result.body_example["prompt"] == [100, 1]
    assert result.counters is None


@pytest.mark.parametrize(
    "script",
    [
        Script(newline=b"\r\n", piece_bytes=1),
        Script(piece_bytes=7),
        Script(one_write=True),
        Script(usage="last"),
        Script(usage="none"),
        Script(done=False),
        Script(finish_reason=None),
        Script(blocks=((), (11,), (), (12,))),
    ],
)
def test_forms_of_a_whole_reply_give_the_same_record(script):
    turn, _ = play(script)
    assert turn.outcome == "ok"
    assert (turn.token_ids, turn.chunk_tokens, turn.completion_tokens) == ([11, 12], [1, 1], 2)


def test_chunks_of_one_read_share_its_stamp_and_are_counted_as_coalesced():
    turn, _ = play(Script(blocks=((11,), (12,), (13,)), one_write=True))
    assert turn.coalesced_reads == 2
    assert len(set(turn.chunk_s)) == 1


@pytest.mark.parametrize(
    ("script", "outcome", "text", "ids"),
    [
        (Script(fault="status"), "error", "HTTP status 500: out of memory", None),
        (Script(fault="error_event"), "error", "engine died", [11, 12]),
        (Script(fault="reset"), "incomplete", "within the reply", [11, 12]),
        (Script(fault="cut"), "incomplete", "without a finish reason", [11, 12]),
        (Script(blocks=((),)), "empty", "no token", []),
        (Script(blocks=(), usage="none", done=False), "empty", "no token", []),
        (Script(blocks=((11,), (12,)), finish_reason="abort"), "error", "abort", [11, 12]),
    ],
)
def test_every_fault_has_one_outcome_a_reason_and_what_was_received(script, outcome, text, ids):
    turn, result = play(script)
    assert turn.outcome == outcome
    assert text in turn.error
    assert turn.token_ids == ids
    assert len(turn.chunk_s) == len(ids or [])
    assert turn.error in result.failure()


@pytest.mark.parametrize(
    ("script", "limits", "text", "chunks"),
    [
        (Script(fault="silent"), {"first_token_s": 0.1}, "no first token 0.1 s", 0),
        (Script(fault="stall"), {"between_tokens_s": 0.1}, "no more tokens 0.1 s", 2),
        (Script(fault="stall"), {"total_s": 0.1}, "not finished 0.1 s", 2),
    ],
)
def test_timeouts_name_the_limit_and_keep_what_was_received(script, limits, text, chunks):
    turn, _ = play(script, timeouts=Timeouts(**limits))
    assert turn.outcome == "timeout"
    assert text in turn.error
    assert len(turn.chunk_s) == chunks


def test_refused_connection_is_an_error_with_a_name():
    with FixtureServer() as server:
        gone = options(server, 2)
    result = run_and_read(gone, prompts(3))
    assert [turn.outcome for turn in result.turns] == ["error"] * 3
    assert all("Connect" in turn.error for turn in result.turns)
    assert result.turns[0].completion_tokens is None


def test_a_failed_request_is_not_sent_again():
    def first_fails(number, body):
        return Script(fault="status") if number == 0 else Script()

    with FixtureServer(script=first_fails) as server:
        result = send(server, prompts(2))
        assert [body["prompt"][0] for body in server.bodies] == [100, 101]
    assert [turn.outcome for turn in result.turns] == ["error", "ok"]


def test_server_that_dies_leaves_the_good_ones_and_names_the_rest():
    with FixtureServer(dies_after=10) as server:
        result = send(server, prompts(25), concurrency=1)
    assert [turn.outcome for turn in result.turns] == ["ok"] * 10 + ["error"] * 15
    assert "10 ok, 15 error" in result.failure()


@pytest.mark.parametrize("concurrency", [1, 3, 128])
def test_exactly_c_requests_are_in_flight_over_as_many_sockets(concurrency):
    with FixtureServer(hold=concurrency) as server:
        result = send(server, prompts(2 * concurrency), concurrency)
        assert server.max_in_flight == concurrency
        assert len(server.sockets) <= concurrency
    assert result.client["max_in_flight"] == concurrency
    assert [turn.outcome for turn in result.turns] == ["ok"] * 2 * concurrency


def test_order_repeats_and_number_of_requests():
    with FixtureServer() as server:
        result = send(server, prompts(3), requests=5)
        assert [body["prompt"][0] for body in server.bodies] == [100, 101, 102, 100, 101]
    assert [turn.prompt_id for turn in result.turns] == ["p0", "p0", "p1", "p1", "p2"]


def test_duration_starts_requests_until_it_is_over_and_finishes_them():
    with FixtureServer() as server:
        result = send(server, prompts(2), concurrency=2, duration_s=0.3)
        assert len(result.turns) == len(server.bodies) > 2
    assert {turn.outcome for turn in result.turns} == {"ok"}
    assert max(turn.sent_s for turn in result.turns) < 0.3 + 1
    assert result.span_s >= 0.3


def test_open_loop_keeps_its_schedule_apart_from_sending():
    with FixtureServer() as server:
        result = send(
            server, prompts(8), concurrency=1, arrivals="poisson", rate_per_s=100, arrival_seed=5
        )
    due = list(itertools.islice(poisson(100, 5), 8))
    assert [turn.scheduled_s for turn in result.turns] == pytest.approx(due)
    assert all(turn.sent_s >= turn.scheduled_s for turn in result.turns)
    order = sorted(result.turns, key=lambda turn: turn.sent_s)
    assert [turn.prompt_id for turn in order] == [f"p{i}" for i in range(8)]


def test_poisson_arrivals_are_seeded_and_have_the_rate():
    times = list(itertools.islice(poisson(50, 1), 20_000))
    assert times == list(itertools.islice(poisson(50, 1), 20_000))
    assert times != list(itertools.islice(poisson(50, 2), 20_000))
    # Mean gap 20 ms; its standard error over 20,000 exponential gaps is 0.14 ms.
    assert times[-1] / 20_000 == pytest.approx(0.02, abs=0.001)


def test_a_conversation_goes_on_from_the_ids_sent_and_received():
    def ends_with_2(number, body):
        return Script(blocks=((11,), (12, 2)), finish_reason="stop")

    with FixtureServer(script=ends_with_2) as server:
        result = send(server, prompts(1, turns=3))
        assert [body["prompt"] for body in server.bodies] == [
            [100, 1],
            [100, 1, 11, 12, 2, 3],
            [100, 1, 11, 12, 2, 3, 11, 12, 2, 3],
        ]
    assert [(turn.turn, turn.outcome) for turn in result.turns] == [(0, "ok"), (1, "ok"), (2, "ok")]
    assert [turn.prompt_tokens for turn in result.turns] == [2, 6, 10]
    assert result.failure() is None


def test_the_seam_of_a_reply_and_the_template_is_not_doubled():
    assert continue_ids([1], [5, 2], [2, 3, 4]) == [1, 5, 2, 3, 4]
    assert continue_ids([1], [5, 6], [2, 3]) == [1, 5, 6, 2, 3]
    assert continue_ids([1], [5, 2, 3], [2, 3, 4]) == [1, 5, 2, 3, 4]
    assert continue_ids([1], [3], [2, 3]) == [1, 3, 2, 3]
    assert continue_ids([1], [], [2]) == [1, 2]
    assert continue_ids([1], [2], [2]) == [1, 2]


def test_a_conversation_holds_its_slot():
    with FixtureServer() as server:
        send(server, prompts(2, turns=2), concurrency=1)
        assert [body["prompt"][0] for body in server.bodies] == [100, 100, 101, 101]


def test_a_failed_turn_ends_its_conversation_and_names_what_was_left_out():
    def second_fails(number, body):
        return Script(fault="error_event") if number == 1 else Script()

    with FixtureServer(script=second_fails) as server:
        result = send(server, prompts(1, turns=4))
        assert len(server.bodies) == 2
    assert [turn.outcome for turn in result.turns] == ["ok", "error", "cancelled", "cancelled"]
    assert result.turns[3].error == "not sent: turn 1 ended as error"
    assert result.turns[3].sent_s is None


def test_warm_up_stays_within_the_limit_and_out_of_record_and_counters():
    texts = [f"vllm:spec_decode_num_drafts_total {drafts}\n" for drafts in (7, 8)]
    with FixtureServer(metrics_texts=texts) as server:
        result = send(server, prompts(2), warmup=prompts(5, first=500), concurrency=2)
        assert server.max_in_flight <= 2
        assert len(server.bodies) == 7
    assert [turn.prompt_id for turn in result.turns] == ["p0", "p1"]
    assert result.warmup["requests"] == result.warmup["outcomes"]["ok"] == 5
    assert result.counters["before"]["num_drafts"] == 7
    assert result.counters["after"]["num_drafts"] == 8
    assert result.counters["error"] is None
    assert min(turn.sent_s for turn in result.turns) >= 0


def test_a_warm_up_prompt_that_is_measured_is_refused():
    with FixtureServer() as server, pytest.raises(ValueError, match="'p0' is also measured"):
        send(server, prompts(2), warmup=prompts(1))


@pytest.fixture
def restored_signals():
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, former, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("restored_signals")
def test_interrupt_keeps_what_was_received_and_names_the_rest():
    def second_stalls(number, body):
        return Script(fault="stall") if number == 1 else Script()

    with FixtureServer(script=second_stalls) as server:

        def interrupt():
            while len(server.bodies) < 2:
                time.sleep(0.01)
            time.sleep(0.3)  # both blocks of the stalled reply are out long before
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        result = send(server, prompts(4, turns=2)[:1] + prompts(4)[1:], concurrency=1)
        assert len(server.bodies) == 2
    assert [(turn.prompt_id, turn.turn, turn.outcome) for turn in result.turns] == [
        ("p0", 0, "ok"),
        ("p0", 1, "cancelled"),
        ("p1", 0, "cancelled"),
        ("p2", 0, "cancelled"),
        ("p3", 0, "cancelled"),
    ]
    assert result.turns[1].token_ids == [11, 12]
    assert all(turn.error == "interrupted by SIGINT" for turn in result.turns[1:])
    assert result.failure() == "interrupted by SIGINT"
    # A second signal would cost the record that the caller is about to write.
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_another_prompt_length_than_was_sent_fails_the_measurement():
    _, result = play(Script(prompt_tokens=3))
    assert "another prompt" in result.failure()


def test_cached_prompts_are_named():
    with FixtureServer(script=lambda number, body: Script(cached_tokens=number)) as server:
        fresh = send(server, prompts(1))
        again = send(server, prompts(1))
    assert fresh.client["verdict"] != "cached"
    assert fresh.client["cached_share"] == 0
    assert again.client["cached_share"] == 0.5
    assert any(text.startswith("cached: share of cached") for text in again.client["crossed"])


def test_prefix_that_all_prompts_share():
    assert selfcheck.shared_prefix([(1, 2, 3), (1, 2), (1, 2, 4)]) == 2
    assert selfcheck.shared_prefix([(1, 2), (3,)]) == 0
    assert selfcheck.shared_prefix([(1, 2)]) == 0  # the prompt itself is no template
    assert selfcheck.shared_prefix([]) == 0


def assess(lag_ms, cpu_share):
    report = WorkerReport(name="w", cpu_s=cpu_share * 2, span_s=2.0, lags_ms=[lag_ms] * 10)
    return selfcheck.assess(selfcheck.Tally(), [WorkerReport(name="idle"), report])


def test_verdict_tells_own_work_from_a_taken_cpu():
    assert assess(1.0, 0.9)["verdict"] == "valid"
    assert assess(20.0, 0.9)["verdict"] == "client_bound"
    assert assess(20.0, 0.1)["verdict"] == "contended"
    assert assess(20.0, 0.1)["crossed"] == ["contended: p99 loop lag, ms is 20, bound 10"]
    assert assess(1.0, 0.9)["coalesced_share"] is None


def test_summary_by_nearest_rank():
    assert selfcheck.summary([4.0, 1.0, 3.0, 2.0]) == {
        **{"mean": 2.5, "p50": 2.0, "p90": 4.0, "p99": 4.0, "max": 4.0}
    }
    assert selfcheck.summary([])["p50"] is None


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"arrivals": "constant", "rate_per_s": 0.0}, "rate_per_s"),
        ({"rate_per_s": 1.0}, "a rate belongs"),
        ({"arrivals": "poisson"}, "a rate belongs"),
        ({"arrivals": "uniform", "rate_per_s": 1.0}, "choose closed, poisson"),
        ({"arrivals": "poisson", "rate_per_s": 1.0, "burstiness": 0.5}, "gamma"),
        ({"arrivals": "trace"}, "a trace belongs"),
        ({"arrivals": "trace", "trace_s": ()}, "no arrivals"),
        ({"arrivals": "trace", "trace_s": (1.0, 0.5)}, "must not fall"),
        ({"arrivals": "trace", "trace_s": (-1.0,)}, "from 0"),
        ({"arrivals": "trace", "trace_s": (1.0,), "requests": 2}, "trace of 1"),
        ({"ramp_steps": 2}, "ramp_s"),
        ({"ramp_s": -1.0}, "ramp_s"),
        ({"processes": 0}, "processes is 0"),
        ({"processes": 2}, "from 1 to the concurrency"),
        ({"requests": 1, "duration_s": 1.0}, "choose one"),
        ({"url": "localhost:8000"}, "http://"),
        ({"sampling": Sampling(max_tokens=0)}, "max_tokens"),
    ],
)
def test_unusable_options_are_named(more, text):
    good = {"url": "http://h", "model": "m", "concurrency": 1, "sampling": Sampling(max_tokens=1)}
    with pytest.raises(ValueError, match=text):
        LoadOptions(**{**good, **more})


# The subcommand.


def arguments(*words):
    parser = argparse.ArgumentParser()
    load.add_arguments(parser)
    return parser.parse_args(words)


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def command(server, rows, out, *more):
    return arguments(
        *("--dialect", "vllm", "--url", server.url, "--model", "m", "--prompts", str(rows)),
        *("--concurrency", "2", "--max-tokens", "4", "--out", str(out), *more),
    )


def test_load_writes_the_record(tmp_path):
    rows = write_rows(
        tmp_path / "rows.jsonl",
        {"prompt_id": "a", "category": "math", "turns": ["x"], "prompt_token_ids": [1, 2]},
        {"prompt_id": "b", "prompt_token_ids": [3]},
    )
    warm = write_rows(tmp_path / "warm.jsonl", {"prompt_id": "w", "prompt_token_ids": [9]})
    with FixtureServer() as server:
        more = ("--warmup", "1", "--warmup-prompts", str(warm), "--seed", "4", "--devices", "2")
        report = load.run(command(server, rows, tmp_path / "out", *more))
    assert report["ok"] is True
    assert (report["requests"]["total"], report["requests"]["ok"]) == (2, 2)
    turns = records.read_requests(tmp_path / "out" / "requests.parquet")
    assert [(turn.prompt_id, turn.category) for turn in turns] == [("a", "math"), ("b", None)]
    cell = records.read_cell(tmp_path / "out")
    assert (cell["status"], cell["reason"], cell["cell_id"]) == ("ok", None, None)
    assert cell["load"]["body_example"]["prompt"] == [1, 2]
    assert cell["load"]["body_example"]["seed"] == cell["load"]["seed"] == 4
    assert (cell["load"]["devices"], cell["load"]["concurrency"]) == (2, 2)
    assert cell["workload"]["prompts"] == 2
    assert cell["first_token"] == "prefill"
    assert cell["engine"] == {"version": "fixture"}
    assert cell["warmup"]["outcomes"]["ok"] == 1
    assert {"verdict", "loop_lag_ms", "coalesced_share"} <= set(cell["client"])
    assert cell["hardware"]["logical_cores"] >= 1
    assert cell["software"]["packages"]["aiohttp"]


def test_a_trace_is_replayed_from_a_file(tmp_path):
    rows = write_rows(
        tmp_path / "rows.jsonl", *({"prompt_id": i, "prompt_token_ids": [1]} for i in "ab")
    )
    trace = tmp_path / "trace.txt"
    trace.write_text("0.0\n0.05\n\n0.1\n")
    with FixtureServer() as server:
        report = load.run(command(server, rows, tmp_path / "out", "--trace", str(trace)))
    assert report["requests"]["ok"] == 3
    turns = records.read_requests(tmp_path / "out" / "requests.parquet")
    assert [(turn.prompt_id, turn.scheduled_s) for turn in turns] == [
        ("a", pytest.approx(0.0)),
        ("a", pytest.approx(0.1)),
        ("b", pytest.approx(0.05)),
    ]
    cell = records.read_cell(tmp_path / "out")
    assert (cell["load"]["arrivals"], cell["load"]["trace_s"]) == ("trace", [0.0, 0.05, 0.1])


def test_a_trace_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "trace.txt").write_text("0.0\nsoon\n")
    with pytest.raises(ValueError, match="line 2: 'soon' is no number"):
        load.read_trace(tmp_path / "trace.txt")
    with pytest.raises(ValueError, match="no such file"):
        load.read_trace(tmp_path / "none.txt")


def test_rows_of_text_are_rendered_and_given_ids_replace_the_first_turn(tmp_path):
    tokenizer = load.chat.load_tokenizer(write_tiny_tokenizer(tmp_path / "model"))
    rows = write_rows(
        tmp_path / "rows.jsonl",
        {"prompt_id": "a", "turns": ["Answer now please.", "And of the fox?"]},
        {"prompt_id": "b", "turns": ["unused", "And of the fox?"], "prompt_token_ids": [5, 6]},
    )
    text, given = load.read_prompts(rows, tokenizer)
    first, second = text.turn_token_ids
    assert tokenizer.decode(first) == (
        "<|im_start|>user\nAnswer now please.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.decode(second) == (
        "<|im_end|>\n<|im_start|>user\nAnd of the fox?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert given.turn_token_ids == ((5, 6), second)


def test_load_where_every_request_fails_writes_the_record_and_is_not_ok(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", {"prompt_id": "a", "prompt_token_ids": [1]})
    with FixtureServer(script=lambda number, body: Script(fault="status")) as server:
        report = load.run(command(server, rows, tmp_path / "out"))
    assert report["ok"] is False
    cell = records.read_cell(tmp_path / "out")
    assert cell["status"] == "failed"
    assert "out of memory" in cell["reason"]
    (turn,) = records.read_requests(tmp_path / "out" / "requests.parquet")
    assert turn.outcome == "error"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt_id": "a", "turns": ["x"]}, "line 2: its text needs --tokenizer"),
        ({"prompt_id": "a", "turns": ["x", "y"], "prompt_token_ids": [1]}, "--tokenizer"),
        ({"prompt_id": "", "prompt_token_ids": [1]}, "prompt_id"),
        ({"prompt_id": "a", "turns": []}, "turns"),
        ({"prompt_id": "a"}, "turns"),
        ({"prompt_id": "a", "prompt_token_ids": []}, "prompt_token_ids"),
        ({"prompt_id": "a", "prompt_token_ids": [True]}, "prompt_token_ids"),
        ({"prompt_id": "a", "prompt_token_ids": ["1"]}, "prompt_token_ids"),
        ({"prompt_id": "a", "category": 3, "prompt_token_ids": [1]}, "category"),
        ({"prompt_id": "first", "prompt_token_ids": [1]}, "twice"),
        ([1], "not a JSON object"),
    ],
)
def test_unusable_rows_are_named_with_their_line(tmp_path, row, text):
    rows = write_rows(tmp_path / "r.jsonl", {"prompt_id": "first", "prompt_token_ids": [7]}, row)
    with pytest.raises(ValueError, match=r"r\.jsonl, line 2") as raised:
        load.read_prompts(rows, None)
    assert text in str(raised.value)


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load.read_prompts(tmp_path / "none.jsonl", None)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="no prompts"):
        load.read_prompts(tmp_path / "empty.jsonl", None)
    (tmp_path / "broken.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match="line 1"):
        load.read_prompts(tmp_path / "broken.jsonl", None)


def test_a_dialect_that_is_not_there_is_not_offered(capsys):
    with pytest.raises(SystemExit) as raised:
        arguments("--dialect", "tgi")
    assert raised.value.code == 2
    assert "vllm" in capsys.readouterr().err
