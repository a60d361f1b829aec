"""What was received survives: entries, cut entries, killed and interrupted commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fixture_server import FixtureServer, Script
from speedstudy import load, measure, merge_journal, records
from speedstudy.client.exchange import Exchange, Failure
from speedstudy.client.journal import Journal, entries, read_exchange

COMMAND = [sys.executable, "-c", "from speedstudy.cli import main; main()", "load", "--json"]


def exchange(job, **more):
    return Exchange(job=job, turn=0, scheduled_s=1.0, ready_s=1.5, **more)


def test_entries_come_back_as_they_were(tmp_path):
    path = tmp_path / "a.exchanges"
    whole = exchange(3, sent_s=1.75, reads=[b"\x00\xff", b"x" * 70_000], read_s=[2.0, 2.5])
    whole.ended_s = 2.5
    failed = exchange(4, failure=Failure("error", "refused: é"))
    journal = Journal(path)
    journal.append(whole)
    journal.append(failed)
    journal.close()
    places = list(entries([path]))
    assert [(entry.job, entry.turn, entry.file) for entry in places] == [(3, 0, 0), (4, 0, 0)]
    assert journal.newest == places[1].offset
    with path.open("rb") as file:
        assert [read_exchange(file, entry.offset) for entry in places] == [whole, failed]


def test_an_entry_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "a.exchanges"
    journal = Journal(path)
    for job in range(2):
        journal.append(exchange(job, sent_s=1.0, reads=[b"abc"], read_s=[2.0]))
    journal.close()
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert [entry.job for entry in entries([path])] == [0][: size >= len(whole) // 2]


def write_rows(path, count):
    rows = [{"prompt_id": f"p{i}", "prompt_token_ids": [i + 1]} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def arguments(server, rows, out, concurrency=2):
    return [
        *("--dialect", "vllm", "--url", server.url, "--model", "m", "--prompts", str(rows)),
        *("--concurrency", str(concurrency), "--max-tokens", "4", "--out", str(out)),
    ]


def wait_for(condition):
    for _ in range(1500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def stalls_from(first):
    return lambda number, body: Script(fault="stall" if number >= first else None)


@pytest.fixture
def running(tmp_path):
    """A ``load`` in a process of its own: 5 of 8 requests are done, 2 are open."""
    rows = write_rows(tmp_path / "rows.jsonl", 8)
    out = tmp_path / "out"
    with FixtureServer(script=stalls_from(5)) as server:

        def start(*more):
            command = [*COMMAND, *arguments(server, rows, out), *more]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            wait_for(lambda: len(server.bodies) == 7)
            wait_for(lambda: len(list(entries(sorted((out / "journal").glob("*.exchanges"))))) == 5)
            time.sleep(0.2)  # the blocks of the stalled replies are out long before
            return process

        yield SimpleNamespace(start=start, out=out, server=server, rows=rows)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_killed_load_leaves_what_was_received(running, processes):
    process = running.start("--processes", processes)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    wait_for(lambda: not any(child.is_running() for child in children))

    assert not (running.out / "cell.json").exists()
    with pytest.raises(ValueError, match="merge-journal"):
        load.run(parsed(load, *arguments(running.server, running.rows, running.out)))
    report = merge_journal.run(parsed(merge_journal, str(running.out)))
    assert (report["requests"]["ok"], report["requests"]["total"]) == (5, 8)
    turns = records.read_requests(running.out / "requests.parquet")
    assert [turn.prompt_id for turn in turns] == [f"p{i}" for i in range(8)]
    assert all(turn.token_ids == [11, 12] for turn in turns if turn.outcome == "ok")
    assert {turn.outcome for turn in turns} == {"ok", "cancelled"}
    assert all(turn.error for turn in turns if turn.outcome == "cancelled")
    if processes == "2":  # workers outlive the one that led them and write down what is open
        assert sum(turn.token_ids == [11, 12] for turn in turns) == 7
    cell = records.read_cell(running.out)
    assert (cell["status"], cell["reason"]) == ("failed", "the client was killed")
    assert cell["load"]["body_example"]["prompt"] == [1]
    assert not (running.out / "journal").exists()
    metrics = measure.run(parsed(measure, str(running.out)))
    assert metrics["requests"]["ok"] == 5
    assert metrics["latency"]["ttft_ms"]["p50"] > 0
    with pytest.raises(ValueError, match="no such folder"):
        merge_journal.run(parsed(merge_journal, str(running.out)))


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_interrupted_load_writes_its_record(running, processes):
    process = running.start("--processes", processes)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    report = json.loads(output.splitlines()[-1])
    assert (report["ok"], report["reason"]) == (False, "interrupted by SIGINT")
    assert (report["requests"]["ok"], report["requests"]["cancelled"]) == (5, 3)
    turns = records.read_requests(running.out / "requests.parquet")
    assert sum(turn.token_ids == [11, 12] for turn in turns) == 7
    assert records.read_cell(running.out)["status"] == "failed"
    assert not (running.out / "journal").exists()


def test_a_client_process_that_dies_ends_the_load(running):
    process = running.start("--processes", "2")
    workers = [
        child
        for child in psutil.Process(process.pid).children()
        if "spawn_main" in " ".join(child.cmdline())
    ]
    os.kill(workers[0].pid, signal.SIGKILL)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    report = json.loads(output.splitlines()[-1])
    assert "died (exit status -9)" in report["reason"]
    assert (report["requests"]["ok"], report["requests"]["cancelled"]) == (5, 3)


def test_a_server_that_dies_leaves_the_good_ones(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    server = subprocess.Popen(
        [sys.executable, "-m", "fixture_server", "--dies-after", "100"],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    rows, out = write_rows(tmp_path / "rows.jsonl", 140), tmp_path / "out"
    command = [*COMMAND, *arguments(SimpleNamespace(url=url), rows, out, concurrency=1)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert server.wait(10) == 1
    assert ended.returncode == 1
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["requests"]["ok"], report["requests"]["error"]) == (100, 40)
    turns = records.read_requests(out / "requests.parquet")
    assert [turn.outcome for turn in turns] == ["ok"] * 100 + ["error"] * 40
    assert "without a reply" in turns[100].error
    assert all(turn.error for turn in turns[100:])
    assert "Cannot connect" in turns[-1].error
    assert turns[-1].sent_s is None
    metrics = measure.run(parsed(measure, str(out)))
    assert metrics["requests"]["ok"] == 100
    assert metrics["throughput"]["output_tok_per_s"] > 0


def parsed(module, *words):
    import argparse

    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(words)
