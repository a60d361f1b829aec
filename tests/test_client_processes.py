"""Several client processes: the same load as one, and the same record."""

import tempfile
from pathlib import Path

import pytest

from fixture_server import FixtureServer, Script
from speedstudy import records
from speedstudy.client.crew import default_processes
from speedstudy.client.load import run_load
from speedstudy.client.options import LoadOptions
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt


def prompts(count, turns=1):
    return [
        Prompt(
            prompt_id=f"p{index}",
            category=None,
            turn_token_ids=((100 + index, 1), *(((2, 3),) * (turns - 1))),
        )
        for index in range(count)
    ]


def send(server, what, **more):
    options = LoadOptions(url=server.url, model="m", sampling=Sampling(max_tokens=4), **more)
    with tempfile.TemporaryDirectory() as folder:
        result = run_load(options, what, (), DIALECTS["vllm"], Path(folder))
        return result, records.read_requests(Path(folder) / "requests.parquet")


def test_exactly_c_are_in_flight_and_each_is_sent_once():
    with FixtureServer(hold=40) as server:
        result, turns = send(server, prompts(100), concurrency=40, processes=3)
        assert server.max_in_flight == 40
        assert sorted(body["prompt"][0] for body in server.bodies) == list(range(100, 200))
        assert len(server.sockets) == 40
    assert result.client["max_in_flight"] == 40
    assert result.client["connections"] == 40
    assert [worker["connections"] for worker in result.client["workers"]] == [14, 13, 13]
    assert [turn.prompt_id for turn in turns] == [f"p{index}" for index in range(100)]
    assert {turn.outcome for turn in turns} == {"ok"}


def test_one_process_and_three_give_the_same_record_but_for_times():
    def script(number, body):
        last = body["prompt"][-1]
        return Script(
            blocks=((last,), (last + 1, 2)), fault="cut" if body["prompt"][0] == 103 else None
        )

    with FixtureServer(script=script) as server:
        seen = [
            send(server, prompts(7, turns=3), concurrency=6, processes=processes)[1]
            for processes in (1, 3)
        ]
    for turn in (*seen[0], *seen[1]):
        assert turn.chunk_s == sorted(turn.chunk_s)
        turn.chunk_s, turn.scheduled_s, turn.coalesced_reads = [], 0.0, 0
        turn.sent_s = turn.sent_s is not None
    assert seen[0] == seen[1]
    assert [turn.turn for turn in seen[0]] == [0, 1, 2] * 7


@pytest.mark.parametrize("processes", [1, 2])
def test_open_loop_and_duration_share_one_schedule(processes):
    with FixtureServer() as server:
        more = {"arrivals": "constant", "rate_per_s": 50.0, "duration_s": 0.5}
        _, turns = send(server, prompts(100), concurrency=10, processes=processes, **more)
        assert len(server.bodies) == 25
    assert [turn.scheduled_s for turn in turns[:25]] == pytest.approx([n / 50 for n in range(25)])
    assert all(turn.sent_s >= turn.scheduled_s for turn in turns)


def test_slots_ramp_up():
    stalling = Script(gap_s=0.5)
    with FixtureServer(script=lambda number, body: stalling) as server:
        _, turns = send(server, prompts(4), concurrency=4, ramp_s=0.4)
    scheduled = [turn.scheduled_s for turn in turns]
    assert scheduled == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert all(turn.sent_s >= turn.scheduled_s for turn in turns)
    assert server.max_in_flight == 4


def test_processes_by_default():
    assert default_processes(1, cores=64) == 1
    assert default_processes(1024, cores=64) == 1
    assert default_processes(1025, cores=64) == 2
    assert default_processes(4096, cores=64) == 4
    assert default_processes(4096, cores=2) == 1
    assert default_processes(4096, cores=1) == 1
