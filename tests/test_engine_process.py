"""Starting, watching and ending an engine process, on small stand-ins that are not engines."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from speedstudy.engines.kind import Launch
from speedstudy.engines.process import EngineError, free_port, log_tail, running, wait_healthy
from speedstudy.records import RECORD_VERSION, write_json
from speedstudy.recover import drop_plain_outputs, end_stragglers, set_failed_aside

HEALTHY = (
    "import http.server, sys\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers()\n"
    "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
)
CHILD_BEARER = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def stand_in(code: str, *arguments: str) -> Launch:
    return Launch(argv=(sys.executable, "-c", code, *arguments))


def wait_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def child_in(log: Path) -> int:
    """The pid that a bearer of children prints."""
    deadline = time.monotonic() + 30
    while not log.is_file() or not (line := log.read_text().splitlines()[-1]).isdigit():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(line)


@pytest.fixture
def place(tmp_path):
    return {"log": tmp_path / "engine.log", "pid_file": tmp_path / "engine.pid.json"}


def test_a_healthy_engine_is_waited_for_and_ended(place):
    port = free_port()
    with running(stand_in(HEALTHY, str(port)), port=port, **place) as engine:
        wait_healthy(engine, timeout_s=30)
        assert engine.died() is None
        assert place["pid_file"].is_file()
        pid = engine.process.pid
    assert wait_gone(pid)
    assert not place["pid_file"].exists()
    assert place["log"].read_text().startswith("$ ")


def test_a_bad_flag_is_reported_with_the_logs_last_lines(place):
    launch = stand_in("import sys; sys.exit('error: no such flag --bad')")
    with running(launch, port=1, **place) as engine, pytest.raises(EngineError) as error:
        wait_healthy(engine, timeout_s=30)
    assert "exit status 1" in str(error.value)
    assert "no such flag --bad" in str(error.value)


def test_the_error_that_matters_is_told_from_further_up(tmp_path):
    log = tmp_path / "engine.log"
    error = "(EngineCore pid=7) ERROR [core.py:1] RuntimeError: not supported here"
    last = [f"line {number}" for number in range(20)]
    log.write_text("\n".join(["loading", error, error, *last]))
    told = ["RuntimeError: not supported here", *last[-8:]]
    assert log_tail(log) == " | ".join(told)


def test_an_engine_that_never_answers_is_reported(place):
    launch = stand_in("import time; print('loading'); time.sleep(600)")
    port = free_port()
    with (
        running(launch, port=port, **place) as engine,
        pytest.raises(EngineError, match="not healthy after 1 s"),
    ):
        wait_healthy(engine, timeout_s=1)


def test_a_taken_port_is_an_error_since_another_server_would_be_measured(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("SPEEDSTUDY_ENGINE_PORT", str(port))
        with pytest.raises(EngineError, match=f"port {port} is taken"):
            free_port()
    assert free_port() == port


def test_the_whole_process_group_ends(place):
    with running(stand_in(CHILD_BEARER), port=1, **place):
        child = child_in(place["log"])
    assert wait_gone(child)


PARENT = (
    "import pathlib, sys, time\n"
    "from speedstudy.engines.kind import Launch\n"
    "from speedstudy.engines.process import running\n"
    "base = pathlib.Path(sys.argv[1])\n"
    "launch = Launch(argv=(sys.executable, '-c', sys.argv[2]))\n"
    "with running(launch, port=1, log=base / 'log', pid_file=base / 'engine.pid.json') as engine:\n"
    "    print(engine.process.pid, flush=True)\n"
    "    time.sleep(600)\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_an_engine_dies_with_a_killed_measurement_and_so_do_its_children(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), CHILD_BEARER],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        child = child_in(tmp_path / "log")
        parent.send_signal(signal.SIGKILL)
    assert wait_gone(engine)
    assert wait_gone(child)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_the_signal_that_ended_the_engine_is_told(place, sign):
    code = f"import os; os.kill(os.getpid(), {int(sign)})"
    with running(stand_in(code), port=1, **place) as engine, pytest.raises(EngineError) as error:
        wait_healthy(engine, timeout_s=30)
    assert f"ended with signal {sign.name}" in str(error.value)


def test_recover_ends_stragglers_but_never_a_reused_pid(tmp_path):
    cell = tmp_path / "cells" / "some-cell"
    cell.mkdir(parents=True)
    straggler = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    started = psutil.Process(straggler.pid).create_time()
    write_json(
        cell / "engine.pid.json",
        {
            "owner": {"pid": os.getpid(), "started": 1.0},
            "engine": {"pid": straggler.pid, "started": started},
        },
    )
    assert end_stragglers(tmp_path) == [straggler.pid]
    straggler.wait(30)
    assert list(cell.iterdir()) == []


def write_cell(directory: Path, status: str) -> None:
    directory.mkdir(parents=True)
    (directory / "requests.parquet").write_bytes(b"rows")
    write_json(directory / "cell.json", {"record_version": RECORD_VERSION, "status": status})


def test_recover_sets_failed_cells_aside_and_only_those(tmp_path):
    cells, failed = tmp_path / "cells", tmp_path / "failed"
    write_cell(cells / "good", "ok")
    write_cell(cells / "bad", "failed")
    assert set_failed_aside(cells, failed) == ["bad"]
    assert (cells / "good" / "cell.json").is_file()
    assert not (cells / "bad" / "cell.json").exists()
    assert (failed / "bad" / "cell.json").is_file()
    assert (failed / "bad" / "requests.parquet").is_file()


def test_tables_and_figures_are_dropped_and_records_kept(tmp_path):
    write_cell(tmp_path / "cells" / "good", "ok")
    (tmp_path / "tables").mkdir()
    plain = [tmp_path / "pareto.pdf", tmp_path / "study.json", tmp_path / "tables" / "cells.csv"]
    for path in plain:
        path.write_text("made")
    assert drop_plain_outputs(tmp_path) == plain
    assert (tmp_path / "cells" / "good" / "cell.json").is_file()
