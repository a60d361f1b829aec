"""What a killed cell had received is kept as a failed record, and the cell is measured again."""

from pathlib import Path

import pytest

from fixture_server import FixtureServer
from speedstudy.client.load import JOURNAL, begin_journal, run_load
from speedstudy.client.options import LoadOptions
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.reply import Sampling
from speedstudy.records import RECORD_VERSION, read_cell, read_requests, write_json
from speedstudy.recover import record_killed, set_failed_aside
from speedstudy.workload import Prompt

RECORD = {"record_version": RECORD_VERSION, "status": "failed", "load": {"devices": 1}}
PROMPTS = [
    Prompt(prompt_id=f"p{index}", category=None, turn_token_ids=((index + 1,),))
    for index in range(3)
]


def kill_before_the_record(cell: Path) -> None:
    """Leave what a measurement leaves that is killed after its last reply."""
    begin_journal(cell, RECORD)
    with FixtureServer() as server:
        options = LoadOptions(
            url=server.url, model="m", concurrency=1, sampling=Sampling(max_tokens=4)
        )
        run_load(options, PROMPTS, (), DIALECTS["vllm"], cell)
    (cell / "requests.parquet").unlink()


def test_the_replies_of_a_killed_cell_are_kept_and_the_cell_is_measured_again(tmp_path):
    cells, failed = tmp_path / "cells", tmp_path / "failed"
    kill_before_the_record(cells / "killed")
    (whole,) = (cells / "killed" / JOURNAL).glob("*.exchanges")
    whole.write_bytes(whole.read_bytes()[:-1])  # the kill met the last of three entries

    assert record_killed(cells) == ["killed"]
    assert set_failed_aside(cells, failed) == ["killed"]
    assert list((cells / "killed").iterdir()) == []
    record = read_cell(failed / "killed")
    assert (record["status"], record["reason"]) == ("failed", "the client was killed")
    turns = read_requests(failed / "killed" / "requests.parquet")
    assert [turn.outcome for turn in turns] == ["ok", "ok", "cancelled"]
    assert [turn.token_ids for turn in turns] == [[11, 12], [11, 12], None]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_journal_without_a_reply_of_its_own_is_dropped(tmp_path, recorded):
    """The load was killed in its warm-up, or after its record was whole."""
    cell = tmp_path / "cell"
    begin_journal(cell, RECORD)
    if recorded:
        write_json(cell / "cell.json", RECORD)
    assert record_killed(tmp_path) == []
    assert not (cell / JOURNAL).exists()
    assert (cell / "cell.json").exists() == recorded


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("cell.json", {"record_version": 0}, "record_version 0"),
        ("load.json", {"options": {"trace_s": None}}, "another version of this program"),
    ],
)
def test_a_journal_of_another_version_is_named_and_left(tmp_path, caplog, file, change, message):
    cell = tmp_path / "cell"
    begin_journal(cell, RECORD)
    write_json(cell / JOURNAL / "load.json", {"options": {}})
    write_json(cell / JOURNAL / file, change)
    assert record_killed(tmp_path) == []
    assert message in caplog.text
    assert (cell / JOURNAL).is_dir()
