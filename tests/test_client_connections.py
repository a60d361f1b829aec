"""Connections: kept, closed, renewed, dead, and through TLS."""

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fixture_server import FixtureServer
from raw_server import BODY, RawServer, with_length
from speedstudy import records
from speedstudy.client.load import allow_open_files, run_load
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt

SAMPLING = Sampling(max_tokens=2)


def send(server, count, **more):
    prompts = [
        Prompt(prompt_id=f"p{index}", category=None, turn_token_ids=((index + 1,),))
        for index in range(count)
    ]
    options = LoadOptions(
        **{"url": server.url, "model": "m", "concurrency": 1, "sampling": SAMPLING, **more}
    )
    with tempfile.TemporaryDirectory() as folder:
        result = run_load(options, prompts, (), DIALECTS["vllm"], Path(folder))
        turns = records.read_requests(Path(folder) / "requests.parquet")
    return SimpleNamespace(turns=turns, **vars(result))


def test_a_connection_is_used_again_after_a_reply_with_a_length():
    with RawServer(reply=lambda number: with_length()) as server:
        result = send(server, 5)
    assert result.outcomes["ok"] == 5
    assert result.client["connections"] == 1
    assert [json.loads(body)["prompt"] for body in server.requests] == [[n] for n in range(1, 6)]


@pytest.mark.parametrize(
    ("reply", "close"),
    [
        (with_length(b"Connection: close\r\n"), True),
        (b"HTTP/1.1 200 OK\r\n\r\n" + BODY, True),  # no framing: the end is the end
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, True),
        (with_length() + b"surplus", False),
    ],
)
def test_a_connection_that_is_over_is_replaced(reply, close):
    with RawServer(reply=lambda number: reply, close=close) as server:
        result = send(server, 3)
    assert result.outcomes["ok"] == 3
    assert result.client["connections"] == 3


def test_connections_that_the_server_closed_while_idle_are_renewed_in_time():
    with RawServer(reply=lambda number: with_length(), idle_s=0.1) as server:
        more = {"arrivals": "trace", "trace_s": (0.0, 0.4, 0.8)}
        result = send(server, 3, **more)
    assert result.outcomes["ok"] == 3
    assert len(server.requests) == 3


def test_a_request_that_may_have_arrived_is_never_sent_again():
    with RawServer(reply=lambda number: with_length() if number else None) as server:
        result = send(server, 3)
        assert len(server.requests) == 3
    assert [turn.outcome for turn in result.turns] == ["error", "ok", "ok"]
    assert "closed the connection without a reply" in result.turns[0].error


def test_a_reply_that_ends_early_keeps_what_came():
    with RawServer(reply=lambda number: with_length()[:-15], close=True) as server:
        (turn,) = send(server, 1).turns
    assert turn.outcome == "incomplete"
    assert turn.token_ids == [11, 12]


def test_a_server_that_speaks_no_http_is_named():
    with RawServer(reply=lambda number: b"220 mail.example ready\r\n\r\n") as server:
        (turn,) = send(server, 1).turns
    assert turn.outcome == "error"
    assert "not sound HTTP" in turn.error


def test_a_connection_that_does_not_come_about_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door:
        address = door.getsockname()
        # Nobody accepts: with the queue full, Linux leaves further attempts without an answer.
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        server = SimpleNamespace(url=f"http://127.0.0.1:{address[1]}")
        (turn,) = send(server, 1, timeouts=Timeouts(connect_s=0.2)).turns
        for one in waiting:
            one.close()
    assert (turn.outcome, turn.error) == ("timeout", "no connection in 0.2 s")
    assert turn.sent_s is None


def test_a_limit_of_open_files_that_is_too_low_is_named():
    with pytest.raises(ValueError, match=r"concurrency 2000000000 needs .* open files"):
        allow_open_files(2_000_000_000)


def test_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("no openssl that makes a certificate")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt_id": "a", "prompt_token_ids": [1]}\n')
    with RawServer(reply=lambda number: with_length(), tls=context) as server:
        command = [
            sys.executable,
            "-c",
            "from speedstudy.cli import main; main()",
            "load",
            "--json",
        ]
        command += ["--dialect", "vllm", "--url", server.url, "--model", "m", "--prompts", rows]
        command += ["--concurrency", "1", "--requests", "3", "--max-tokens", "2"]
        command += ["--out", tmp_path / "out"]
        trusting = {**os.environ, "SSL_CERT_FILE": str(certificate)}
        ended = subprocess.run(command, env=trusting, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["requests"]["ok"] == 3


@pytest.mark.parametrize(
    ("dialect", "connections"),
    [("llamacpp", 4), ("sglang", 1)],
)
def test_a_server_that_ends_each_connection_is_asked_to_say_so(dialect, connections):
    """llama-server closes after each streamed reply although its head says keep-alive."""
    prompts = [
        Prompt(prompt_id=f"p{index}", category=None, turn_token_ids=((index + 1,),))
        for index in range(4)
    ]
    with FixtureServer(dialect=dialect) as server, tempfile.TemporaryDirectory() as folder:
        options = LoadOptions(url=server.url, model="m", concurrency=1, sampling=SAMPLING)
        result = run_load(options, prompts, (), DIALECTS[dialect], Path(folder))
        assert result.outcomes["ok"] == 4
        assert len(server.sockets) == connections
