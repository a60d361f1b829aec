"""`speedstudy load`, then `speedstudy measure`, against every dialect's scripted steps.

Two requests, three tokens drafted in every step: the first accepts 2, 0, 1 (7 tokens in 3 steps
after the prefill), the second 3, 0 (6 tokens in 2). By hand: 5 steps, 15 drafted, 6 accepted, so
al = 1 + 6/5, ar = 6/15; the means of the requests are (2 + 2.5)/2 and (3/9 + 3/6)/2. Of 5 steps 3
accepted one or more, 2 of those two or more, 1 of those three.
"""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from fixture_server import FixtureServer, Script
from speedstudy.cli import main

approx = pytest.approx
FIRST = Script(
    blocks=((1,), (2, 3, 4), (5,), (6, 7)), step_drafted=(3, 3, 3), first_s=0.03, gap_s=0.01
)
SECOND = Script(blocks=((1,), (2, 3, 4, 5), (6,)), step_drafted=(3, 3), first_s=0.03, gap_s=0.01)
TOTALS = {
    "al": approx(2.2),
    "al_drafted": approx(2.2),
    "al_emitted": approx(2.2),
    "al_full_draft": approx(2.2),
    "ar": approx(0.4),
    "steps": 5,
    "steps_drafted": 5,
    "drafted": 15,
    "accepted": 6,
    "conditional": approx([3 / 5, 2 / 3, 1 / 2]),
    "unconditional": approx([3 / 5, 2 / 5, 1 / 5]),
    "identity_gap": {"sum": 2, "counts": {"1": 2}},
}
NOTHING = {name: None for name in TOTALS} | {"identity_gap": {"sum": None, "counts": {}}}


def command(*words, capsys):
    """Run a subcommand; returns its exit status and its JSON object."""
    with pytest.raises(SystemExit) as stop:
        main([*map(str, words), "--json"])
    return stop.value.code, json.loads(capsys.readouterr().out.splitlines()[-1])


def load_and_measure(url, dialect, tmp_path, capsys):
    rows = tmp_path / "prompts.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"prompt_id": id_, "category": kind, "prompt_token_ids": [9, 8, first]})
            + "\n"
            for id_, kind, first in (("a", "math", 7), ("b", "coding", 6))
        )
    )
    out = tmp_path / "out"
    status, report = command(
        *("load", "--dialect", dialect, "--url", url, "--model", "m", "--prompts", rows),
        *("--concurrency", 1, "--max-tokens", 7, "--out", out),
        capsys=capsys,
    )
    assert (status, report["ok"]) == (0, True), report
    status, metrics = command("measure", out, capsys=capsys)
    assert status == 0
    return metrics, json.loads((out / "cell.json").read_text())


def measured(dialect, tmp_path, capsys, **change):
    scripts = [Script(**{**vars(script), **change}) for script in (FIRST, SECOND)]
    with FixtureServer(
        script=lambda number, body: scripts[number], dialect=dialect, counters=True
    ) as server:
        metrics, cell = load_and_measure(server.url, dialect, tmp_path, capsys)
    assert metrics["requests"]["ok"] == metrics["requests"]["total"] == 2
    assert metrics["latency"]["ttft_ms"]["mean"] >= 30
    assert metrics["latency"]["e2e_ms"]["mean"] >= 55  # 30 + 30 and 30 + 20
    assert cell["engine"] == {"version": "fixture"}
    return metrics["acceptance"], cell


def test_vllm(tmp_path, capsys):
    acceptance, cell = measured("vllm", tmp_path, capsys)
    assert acceptance["source"] == "steps"
    assert acceptance["pooled"] == TOTALS
    assert acceptance["per_request_mean"] == {"al": 2.25, "ar": approx(5 / 12)}
    assert acceptance["by_category"]["math"]["al"] == 2.0
    assert acceptance["by_category"]["coding"]["al"] == 2.5
    assert acceptance["cross_check"]["agrees"] is True
    assert acceptance["cross_check"]["counters"]["accepted"] == 6
    assert acceptance["notes"] == []
    assert cell["counters"]["after"]["num_accepted_tokens_per_pos"] == [3.0, 2.0, 1.0]


def test_vllm_totals_measure_as_its_lists_do(tmp_path, capsys):
    acceptance, _ = measured("vllm", tmp_path, capsys, told="totals")
    assert acceptance["source"] == "totals"
    assert acceptance["pooled"] == TOTALS


def test_vllm_whose_replies_tell_nothing_is_measured_by_its_counters(tmp_path, capsys):
    acceptance, _ = measured("vllm", tmp_path, capsys, told="none")
    assert acceptance["source"] == "counters"
    assert acceptance["pooled"] == TOTALS | {"identity_gap": {"sum": 2, "counts": {}}}
    assert acceptance["per_request_mean"] == {"al": None, "ar": None}
    assert acceptance["conventions"]["vllm"]["spec_decode_acceptance_rate"] == approx(40.0)


@pytest.mark.parametrize("incremental", [False, True])
def test_sglang(incremental, tmp_path, capsys):
    acceptance, cell = measured("sglang", tmp_path, capsys, incremental=incremental)
    assert acceptance["source"] == "totals"
    assert acceptance["pooled"] == TOTALS
    assert acceptance["per_request_mean"] == {"al": 2.25, "ar": approx(5 / 12)}
    assert acceptance["cross_check"]["compared"] == ["steps"]
    assert acceptance["cross_check"]["agrees"] is True
    # SGLang's own length counts the prefill token: (7/3 + 6/2) / 2.
    assert acceptance["conventions"]["sglang"]["spec_accept_length"] == approx(8 / 3)
    assert cell["load"]["body_example"]["input_ids"] == [9, 8, 7]


def test_sglang_whose_replies_tell_nothing_has_only_steps(tmp_path, capsys):
    acceptance, _ = measured("sglang", tmp_path, capsys, told="none")
    assert acceptance["source"] == "counters"
    known = {"steps": 5, "al_emitted": approx(2.2)}
    assert acceptance["pooled"] == NOTHING | known


def test_trtllm(tmp_path, capsys):
    acceptance, _ = measured("trtllm", tmp_path, capsys)
    assert acceptance["source"] == "blocks"
    assert acceptance["pooled"] == TOTALS  # what was drafted is in the counters only
    assert acceptance["per_request_mean"] == {"al": 2.25, "ar": None}
    assert acceptance["cross_check"]["compared"] == ["accepted"]


def test_trtllm_whose_replies_tell_nothing_is_measured_by_its_counters(tmp_path, capsys):
    acceptance, _ = measured("trtllm", tmp_path, capsys, told="none")
    assert acceptance["source"] == "counters"
    assert acceptance["pooled"] == TOTALS | {"identity_gap": {"sum": 2, "counts": {}}}


def test_llamacpp(tmp_path, capsys):
    acceptance, _ = measured("llamacpp", tmp_path, capsys)
    assert acceptance["source"] == "totals"
    assert acceptance["pooled"] == TOTALS | {"identity_gap": {"sum": 2, "counts": {}}}
    assert acceptance["per_request_mean"] == {"al": 2.25, "ar": approx(5 / 12)}
    assert acceptance["cross_check"]["compared"] == ["drafted", "accepted"]


def test_openai_tells_nothing_of_drafts(tmp_path, capsys):
    acceptance, cell = measured("openai", tmp_path, capsys)
    assert acceptance["source"] is None
    assert acceptance["pooled"] == NOTHING
    assert cell["client"]["assumed_chunks"] == 7


def test_counters_that_tell_otherwise_are_reported(tmp_path, capsys):
    name = "vllm:spec_decode_num_accepted_tokens_total"
    scripts = [FIRST, SECOND]
    with FixtureServer(
        script=lambda number, body: scripts[number], metrics_texts=[f"{name} 0\n", f"{name} 7\n"]
    ) as server:
        metrics, _ = load_and_measure(server.url, "vllm", tmp_path, capsys)
    acceptance = metrics["acceptance"]
    assert acceptance["pooled"] == TOTALS  # the replies stand
    assert acceptance["cross_check"] == {
        "agrees": False,
        "compared": ["accepted"],
        "responses": {"steps": 5, "steps_drafted": 5, "drafted": 15, "accepted": 6},
        "counters": {"steps": None, "steps_drafted": None, "drafted": None, "accepted": 7},
    }
    assert "the responses and the server's counters tell different totals" in acceptance["notes"]


def test_the_fixture_as_a_process_says_what_it_is_and_what_it_saw(tmp_path, capsys):
    scripts = tmp_path / "scripts.json"
    scripts.write_text(json.dumps([{"blocks": [[1], [2, 3]], "step_drafted": [2]}]))
    command = [sys.executable, "-m", "fixture_server", "--dialect", "sglang", "--scripts", scripts]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [*map(str, command), "--counters"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        hello = json.loads(process.stdout.readline())
        metrics, _ = load_and_measure(hello["url"], "sglang", tmp_path, capsys)
        with urllib.request.urlopen(hello["url"] + "/fixture/seen") as answer:
            seen = json.load(answer)
        process.kill()
    assert hello["name"] == seen["name"] == "speedstudy-fixture"
    assert (hello["pid"], answer.headers["Server"]) == (process.pid, "speedstudy-fixture")
    assert [body["input_ids"][2] for body in seen["bodies"]] == [7, 6]  # in order, one at a time
    assert (seen["requests"], seen["max_in_flight"], seen["in_flight"]) == (2, 1, 0)
    assert metrics["acceptance"]["pooled"]["al"] == 2.0
