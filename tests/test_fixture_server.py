"""The fixture's faults in every dialect, as the client records them."""

import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from fixture_server import FixtureServer, Script
from speedstudy import records
from speedstudy.client.load import run_load
from speedstudy.client.options import LoadOptions, Timeouts
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt

NAMES = sorted(DIALECTS)
PROMPTS = [
    Prompt(prompt_id=f"p{i}", category=None, turn_token_ids=((100 + i, 1),)) for i in range(3)
]
SHORT = Timeouts(connect_s=5.0, first_token_s=0.2, between_tokens_s=0.2, total_s=5.0)


def play(dialect, script, prompts=1, timeouts=SHORT, **more):
    """Send so many prompts to the fixture; returns the record and the server."""
    with (
        FixtureServer(script=lambda number, body: script, dialect=dialect, **more) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        options = LoadOptions(
            url=server.url,
            model="m",
            concurrency=1,
            sampling=Sampling(max_tokens=4, seed=0),
            timeouts=timeouts,
        )
        run_load(options, PROMPTS[:prompts], [], DIALECTS[dialect], Path(folder))
        turns = records.read_requests(Path(folder) / "requests.parquet")
    return turns, server


@pytest.mark.parametrize("dialect", NAMES)
@pytest.mark.parametrize(
    ("fault", "outcome", "text", "tokens"),
    [
        ({"fault": "status", "status": 429, "body": "slow down"}, "error", "429: slow down", 0),
        ({"fault": "status", "status": 503, "body": ""}, "error", "503: no body", 0),
        ({"fault": "error_event"}, "error", "engine died", 2),
        ({"fault": "reset"}, "incomplete", "", 2),
        ({"fault": "cut"}, "incomplete", "without a finish reason", 2),
        ({"fault": "silent"}, "timeout", "no first token", 0),
        ({"fault": "stall", "blocks": ()}, "timeout", "no first token", 0),
        ({"fault": "stall"}, "timeout", "no more tokens", 2),
        ({"blocks": ()}, "empty", "no token", 0),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_every_fault_in_every_dialect(dialect, fault, outcome, text, tokens):
    (turn,), _ = play(dialect, Script(**fault))
    assert turn.outcome == outcome
    assert turn.error
    assert text in turn.error
    assert sum(turn.chunk_tokens) == tokens  # what was received is kept


@pytest.mark.parametrize("dialect", NAMES)
def test_a_slow_accept_is_waited_for(dialect):
    patient = Timeouts(connect_s=5.0, first_token_s=5.0, between_tokens_s=5.0, total_s=10.0)
    (turn,), _ = play(dialect, Script(), timeouts=patient, accept_delay_s=0.3)
    assert turn.outcome == "ok"


@pytest.mark.parametrize("dialect", NAMES)
def test_a_server_that_dies_names_what_it_left(dialect):
    turns, server = play(dialect, Script(), prompts=3, dies_after=1)
    assert [turn.outcome for turn in turns] == ["ok", "error", "error"]
    assert all(turn.error for turn in turns[1:])
    assert len(server.bodies) == 2


def test_it_says_what_it_is_and_has_no_route_of_another_dialect():
    with FixtureServer(dialect="sglang") as server:
        with urllib.request.urlopen(server.url + "/version") as answer:
            assert answer.headers["Server"] == "speedstudy-fixture"
            assert answer.read() == b'{"version": "fixture"}'
        request = urllib.request.Request(server.url + "/v1/completions", b"{}")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request)
