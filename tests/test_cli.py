"""The console command: exit status, JSON on the last line, one line for unusable input."""

import json

import pytest

from speedstudy.cli import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_unusable_input_is_one_line_and_status_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["measure", str(tmp_path)])
    assert stop.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "no cell.json" in lines[0]


def test_a_report_is_the_last_line_of_stdout(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plan", "--experiment", "ci", "--json"])
    assert stop.value.code == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(report["cells"]) == 8
