"""A session's engine: its supervisor, whose turn it is, and what happens when something is killed.

The engine is a small stand-in that answers as vLLM's API does and is no engine.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from speedstudy.engines.process import EngineError, identity, is_alive
from speedstudy.engines.session import (
    Endpoint,
    is_locked,
    joined,
    keep_finished,
    lock,
    read_endpoint,
    write_endpoint,
)
from speedstudy.ids import measured
from speedstudy.records import RECORD_VERSION, write_json
from speedstudy.recover import end_stragglers, put_finished_back
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine
from speedstudy.serve_engine import wait_for_ending_engines
from speedstudy.workload import Prompt, write_workload

COMMAND = "from speedstudy.cli import main; main()"
STAND_IN = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b'{"version": "2026.4.1.0"}', "application/json")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "text": "", "token_ids": [5], "finish_reason": "length"}
        chunk = {"id": "x", "object": "text_completion", "choices": [choice]}
        body = b"data: " + json.dumps(chunk).encode() + b"\\n\\ndata: [DONE]\\n\\n"
        self.answer(body, "text/event-stream")

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


@pytest.fixture
def endpoint(tmp_path):
    path = tmp_path / "sessions" / "one" / "endpoint.json"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def session():
    engine = Engine(
        name="openvino",
        kind="openvino",
        version="2026.4.1.0",
        precision="f32",
        kv_cache_precision="f32",
        threads=1,
        kv_cache_gib=1,
        gpus=0,
    )
    return {
        "engine": measured(engine),
        "target": {"name": "target", "context_length": 64},
        "drafter": measured(Drafter(name="none", method="none", k=0)),
        "max_concurrency": 2,
    }


@pytest.fixture
def serve(tmp_path, endpoint, session):
    """Start a supervisor; whatever is left of it is ended after the test."""
    workload = tmp_path / "workload.parquet"
    write_workload(workload, [Prompt(prompt_id="p", category=None, turn_token_ids=((1, 2, 3),))])
    started = []

    def start(code=STAND_IN, *, parent=()):
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(
            [
                *parent,
                *(sys.executable, "-c", COMMAND, "serve-engine"),
                *("--config", json.dumps(session), "--engine-command", json.dumps(command)),
                *("--workload", workload, "--model", tmp_path, "--endpoint", endpoint),
                *("--engine-log", tmp_path / "engine.log", "--startup-timeout-s", "30"),
            ]
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(30)
    end_stragglers(tmp_path)


def written_cell(results):
    cell = results / "cells" / "cell--1"
    cell.mkdir(parents=True)
    (cell / "requests.parquet").write_bytes(b"rows")
    write_json(cell / "cell.json", {"record_version": RECORD_VERSION, "status": "ok"})
    return cell


def state(endpoint, wanted):
    """Wait until the supervisor tells a state."""

    def told():
        with contextlib.suppress(EngineError):
            found = read_endpoint(endpoint)
            return found if found.state == wanted else None

    return wait_until(told)


def test_a_supervisor_serves_tells_that_its_engine_died_and_stays_until_it_is_ended(
    serve, endpoint, session
):
    supervisor = serve()
    ready = state(endpoint, "ready")
    with joined(endpoint, session, 30) as served:
        assert served.died() is None
        assert served.facts["version"] == "2026.4.1.0"
        assert served.facts["max_concurrency"] == 2
        assert served.facts["startup_s"] > 0
        os.kill(served.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(ready.engine))
        assert "ended with signal SIGKILL" in served.died()
    with (
        pytest.raises(EngineError, match=r"ended before this load: .*SIGKILL"),
        joined(endpoint, session, 30),
    ):
        pass
    assert supervisor.poll() is None
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(30) == 0


@pytest.mark.parametrize(("sign", "kept"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_the_end_of_a_supervisor_is_the_end_of_its_engine(serve, endpoint, tmp_path, sign, kept):
    """What was finished is kept apart if the session was cut short."""
    supervisor = serve()
    engine = state(endpoint, "ready").engine
    keep_finished(endpoint, written_cell(tmp_path))
    supervisor.send_signal(sign)
    assert supervisor.wait(30) == 0
    assert not is_alive(engine)
    assert not (endpoint.parent / "engine.pid.json").exists()
    assert (put_finished_back(tmp_path) != []) == kept


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_killing_who_started_the_supervisor_ends_both(serve, endpoint):
    parent = serve(
        parent=(sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])")
    )
    ready = state(endpoint, "ready")
    parent.kill()
    wait_until(lambda: not is_alive(ready.supervisor) and not is_alive(ready.engine))


def test_an_engine_that_does_not_start_is_told_with_its_logs_last_lines(serve, endpoint, session):
    supervisor = serve("import sys; sys.exit('error: no such flag --bad')")
    assert "no such flag --bad" in state(endpoint, "failed").reason
    with pytest.raises(EngineError, match="no such flag --bad"), joined(endpoint, session, 30):
        pass
    assert supervisor.poll() is None


def test_an_engine_that_dies_at_its_first_request_is_an_error_although_healthy(serve, endpoint):
    serve(
        STAND_IN.replace(
            'self.rfile.read(int(self.headers["Content-Length"]))',
            'import os; print("RuntimeError: no such kernel", flush=True); os._exit(3)',
        )
    )
    reason = state(endpoint, "failed").reason
    assert "healthy and ended at its first request" in reason
    assert "exit status 3" in reason
    assert "RuntimeError: no such kernel" in reason


def ready_endpoint(session, process):
    """What a supervisor tells whose engine is the same process."""
    return Endpoint(
        state="ready",
        supervisor=process,
        serves=session,
        url="http://x",
        engine=process,
        facts={},
    )


@pytest.fixture
def gone():
    """The identity of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        one = identity(process.pid)
    return one


def test_a_starting_engine_without_supervisor_is_an_error_not_a_wait(endpoint, session, gone):
    write_endpoint(endpoint, Endpoint(state="starting", supervisor=gone, serves=session))
    with (
        pytest.raises(EngineError, match="supervisor of the session ended"),
        joined(endpoint, session, 30),
    ):
        pass


def test_an_engine_whose_supervisor_was_killed_is_reported(endpoint, session, gone):
    write_endpoint(endpoint, ready_endpoint(session, gone))
    with (
        pytest.raises(EngineError, match="its supervisor was ended"),
        joined(endpoint, session, 30),
    ):
        pass


def test_a_session_that_is_over_is_an_error(endpoint, session):
    with (
        pytest.raises(EngineError, match="session of the engine is over"),
        joined(endpoint, session, 30),
    ):
        pass


def test_another_session_is_refused(endpoint, session):
    write_endpoint(endpoint, ready_endpoint(session, identity(os.getpid())))
    other = {**session, "drafter": measured(Drafter(name="ngram", method="suffix", k=5))}
    with pytest.raises(ValueError, match="serves another drafter"), joined(endpoint, other, 30):
        pass


def test_loads_take_turns(endpoint, session):
    me = identity(os.getpid())
    write_endpoint(endpoint, ready_endpoint(session, me))
    inside, most = [], []

    def load():
        with joined(endpoint, session, 30):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1] * 6
    assert not is_locked(endpoint)
    with lock(endpoint):
        assert is_locked(endpoint)


def test_what_an_interrupted_session_had_finished_comes_back(tmp_path, endpoint):
    cell = written_cell(tmp_path)
    keep_finished(endpoint, cell)
    half = endpoint.parent / "finished" / "cell--2.tmp"
    half.mkdir()
    for path in list(cell.iterdir()):  # as Snakemake does with an interrupted group of jobs
        path.unlink()

    assert put_finished_back(tmp_path) == [cell]
    assert (cell / "requests.parquet").read_bytes() == b"rows"
    assert json.loads((cell / "cell.json").read_text())["status"] == "ok"
    assert not half.exists()
    assert not (tmp_path / "cells" / "cell--2").exists()
    assert put_finished_back(tmp_path) == []


def other_session(endpoint: Path, name: str) -> Path:
    folder = endpoint.parent.parent / name
    folder.mkdir()
    return folder


def test_an_engine_that_is_still_ending_is_waited_for(endpoint):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        pid_file = other_session(endpoint, "over") / "engine.pid.json"
        write_json(pid_file, {"owner": identity(process.pid), "engine": identity(process.pid)})
        with pytest.raises(EngineError, match="session over does not end"):
            wait_for_ending_engines(endpoint, timeout_s=0.2)
        in_use = pid_file.with_name("endpoint.json")  # a session beside it, on another device
        in_use.write_text("{}")
        wait_for_ending_engines(endpoint, timeout_s=0.2)
        in_use.unlink()
        process.stdin.close()
        process.wait(30)
        wait_for_ending_engines(endpoint, timeout_s=0.2)


def test_a_measurement_that_only_waits_is_a_straggler_too(tmp_path):
    cell = tmp_path / "cells" / "some-cell"
    cell.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    write_json(
        cell / "engine.pid.json",
        {"owner": {"pid": process.pid, "started": psutil.Process(process.pid).create_time()}},
    )
    assert end_stragglers(tmp_path) == [process.pid]
    process.wait(30)
