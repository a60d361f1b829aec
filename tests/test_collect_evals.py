import json
import random
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from speedstudy.collect import evals_few_shot, openai_evals
from speedstudy.collect.candidates import Candidate, Dropped, LongText
from speedstudy.collect.evals_rows import DATA, OTHER_TERMS, open_wheel, read_rows

ROOT = Path(__file__).parents[1]


def message(role: str, content: str, name: str = "") -> dict[str, str]:
    return {"role": role, "content": content} | ({"name": name} if name else {})


def row(*messages: dict[str, str], ideal: Any = "SECRET") -> str:
    return json.dumps({"input": list(messages), "ideal": ideal})


def wheel(tmp_path: Path, members: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    path = tmp_path / "evals-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, lines in members.items():
            archive.writestr(DATA + member, "\n".join(lines))
    return {path.name: path}


def turns(tmp_path: Path, line: str, **folder: Any) -> tuple[str, ...]:
    files = wheel(tmp_path, {"f/x.jsonl": [line]})
    options = {
        "max_chars": 500,
        "folders": [{"member": "f/x.jsonl", "category": "qa", "rows": 9} | folder],
    }
    (candidate,) = openai_evals.read("evals", files, options)
    assert isinstance(candidate, Candidate)
    assert "SECRET" not in "".join(candidate.turns)
    return candidate.turns


def test_system_and_user_text_become_one_turn(tmp_path: Path) -> None:
    line = row(message("system", "Be brief."), message("user", "Why?"))
    assert turns(tmp_path, line) == ("Be brief.\n\nWhy?",)
    assert turns(tmp_path, line, instruction="Explain.") == ("Explain.\n\nWhy?",)
    assert turns(tmp_path, line, instruction="") == ("Why?",)
    assert turns(tmp_path, line, remove=[" brief"]) == ("Be.\n\nWhy?",)


def test_a_row_with_only_system_text_asks_its_last_message(tmp_path: Path) -> None:
    assert turns(tmp_path, row(message("system", "A riddle"))) == ("A riddle",)
    puzzle = row(message("system", "Solve."), message("system", "Five houses ..."))
    assert turns(tmp_path, puzzle) == ("Solve.\n\nFive houses ...",)
    assert turns(tmp_path, puzzle, instruction="Try:") == ("Try:\n\nFive houses ...",)


@pytest.mark.parametrize(
    "pair",
    [
        (message("user", "2+2?"), message("assistant", "SECRET")),
        (
            message("system", "2+2?", "example_user"),
            message("system", "SECRET", "example_assistant"),
        ),
        (message("system", "Q: 2+2?"), message("system", "A: SECRET")),
    ],
    ids=["chat", "named", "labelled"],
)
def test_example_pairs_are_dropped_or_become_turns_without_answers(
    tmp_path: Path, pair: tuple[dict[str, str], dict[str, str]]
) -> None:
    line = row(message("system", "Add."), *pair, message("user", "Q: 3+3?"))
    assert turns(tmp_path, line) == ("Add.\n\n3+3?",)
    assert turns(tmp_path, line, conversation=True) == ("Add.\n\n2+2?", "3+3?")


def test_a_row_whose_task_shows_its_answer_is_dropped(tmp_path: Path) -> None:
    task = message("system", "Name them. Example: [Bank - ORG, Ann - PERSON]")
    answers = ["[Bank - ORG, Ann - PERSON]", "[Mill - Other Organisation]"]
    lines = [row(task, message("user", f"Text {a}"), ideal=[a[::-1], a]) for a in answers]
    files = wheel(tmp_path, {"f/x.jsonl": lines})
    folder = {"member": "f/x.jsonl", "category": "qa", "rows": 9}
    items = list(openai_evals.read("evals", files, {"max_chars": 500, "folders": [folder]}))
    (dropped,) = (item for item in items if isinstance(item, Dropped))
    (kept,) = (item for item in items if isinstance(item, Candidate))
    assert dropped.reason == "answer_in_instruction"
    assert kept.turns[0].endswith("Text [Mill - Other Organisation]")


def test_damaged_long_and_repeated_rows_are_counted(tmp_path: Path) -> None:
    good = row(message("user", "Why?"))
    lines = [
        good,
        good,
        row(message("user", "y" * 501)),
        row(message("user", "broken \ufffd")),
        '{"input": [',
        '{"input": "no messages", "ideal": "x"}',
        '{"input": [{"role": "user", "content": null}]}',
        '{"prompt": "other columns"}',
        row(message("assistant", "SECRET")),
        "",
    ]
    files = wheel(tmp_path, {"f/x.jsonl": lines})
    folder = {"member": "f/x.jsonl", "category": "qa", "rows": 9}
    items = list(openai_evals.read("evals", files, {"max_chars": 500, "folders": [folder]}))
    assert [item.turns for item in items if isinstance(item, Candidate)] == [("Why?",)]
    reasons = sorted(item.reason for item in items if isinstance(item, Dropped))
    assert reasons == ["broken_text", *["damaged_row"] * 5, "duplicate", "over_max_chars"]


def test_which_rows_stay_does_not_depend_on_their_order(tmp_path: Path) -> None:
    lines = [row(message("user", f"Question {number}?")) for number in range(40)]
    folder = {"member": "f/x.jsonl", "category": "qa", "rows": 7}
    options = {"max_chars": 500, "folders": [folder]}

    def kept() -> set[str]:
        files = wheel(tmp_path, {"f/x.jsonl": lines})
        items = openai_evals.read("evals", files, options)
        return {item.src_id for item in items if isinstance(item, Candidate)}

    first = kept()
    random.Random(1).shuffle(lines)
    assert kept() == first
    assert len(first) == 7


def test_most_rows_is_one_number_or_one_by_category(tmp_path: Path) -> None:
    lines = [row(message("user", f"Question {number}?")) for number in range(9)]
    files = wheel(tmp_path, {"f/x.jsonl": lines, "g/x.jsonl": lines})
    folders = [
        {"member": "f/x.jsonl", "category": "qa", "rows": 7},
        {"member": "g/x.jsonl", "category": "math", "rows": 8},
    ]

    def kept(most_rows: Any) -> list[int]:
        options = {"max_chars": 500, "folders": folders, "most_rows": most_rows}
        items = list(openai_evals.read("evals", files, options))
        kept = [item.category for item in items if isinstance(item, Candidate)]
        return [kept.count("qa"), kept.count("math")]

    assert kept(None) == [7, 8]
    assert kept(3) == [3, 3]
    assert kept({"math": 2}) == [7, 2]


def test_configuration_mistakes_name_the_thing(tmp_path: Path) -> None:
    files = wheel(tmp_path, {"f/x.jsonl": []})
    options = {"max_chars": 9, "folders": [{"member": "g/y.jsonl", "category": "qa", "rows": 1}]}
    with pytest.raises(ValueError, match=r"g/y.jsonl: no such file"):
        list(openai_evals.read("evals", files, options))
    options["folders"] = [{"member": "ballots/samples02.jsonl", "category": "qa", "rows": 1}]
    with pytest.raises(ValueError, match="names ballots under terms of its own"):
        list(openai_evals.read("evals", files, options))
    no_zip = tmp_path / "evals.whl"
    no_zip.write_text("not found")
    with pytest.raises(ValueError, match="not a wheel"):
        open_wheel({"evals.whl": no_zip})


def test_few_shot_texts_end_in_an_open_question_and_use_each_row_once(tmp_path: Path) -> None:
    lines = [row(message("user", f"What is {n} + {n}?"), ideal=[f"<{2 * n}>"]) for n in range(20)]
    options = {
        "licence": "MIT",
        "min_chars": 120,
        "instruction": "Answer the last one.",
        "folders": [{"member": "f/x.jsonl", "title": "Sums"}],
    }
    texts = list(evals_few_shot.read("evals", wheel(tmp_path, {"f/x.jsonl": lines}), options))
    assert len(texts) > 1
    asked: list[str] = []
    for number, text in enumerate(texts, start=1):
        assert isinstance(text, LongText)
        assert text.title == f"Sums, part {number}"
        whole = text.opening + text.text + text.closing
        assert whole.startswith("Answer the last one.\n\nQuestion: What is ")
        assert text.closing.startswith("Question: What is ")
        assert text.closing.endswith("?\nAnswer:")
        assert 120 <= len(whole) < 170
        asked += [part for part in whole.split("\n") if part.startswith("Question:")]
        assert whole.count("Question:") == whole.count("<") + 1
    assert len(asked) == len(set(asked)) <= 20
    random.Random(2).shuffle(lines)
    again = list(evals_few_shot.read("evals", wheel(tmp_path, {"f/x.jsonl": lines}), options))
    assert again == texts


@pytest.fixture(scope="module")
def real_wheel() -> Path:
    found = sorted((ROOT / "resources" / "artifacts").glob("**/evals-3.0.1.post1-*.whl"))
    if not found:
        pytest.skip("the evals wheel is not fetched; `make study` fetches it")
    return found[0]


def test_what_the_wheels_licence_names_is_left_out(real_wheel: Path) -> None:
    with zipfile.ZipFile(real_wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("/LICENSE.md"))
        lines = archive.read(licence).decode().splitlines()
    marker = "- **Location**: " + DATA
    assert {line[len(marker) :] for line in lines if line.startswith(marker)} == OTHER_TERMS


def test_known_answers_are_never_in_the_prompt(real_wheel: Path) -> None:
    """An answer of some length stands in a prompt only if the row's own question offers it."""
    config = yaml.safe_load((ROOT / "config/source/openai_evals.yaml").read_text())
    files = {real_wheel.name: real_wheel}
    items = openai_evals.read("openai_evals", files, config["options"])
    kept = {item.turns for item in items if isinstance(item, Candidate)}
    checked = 0
    with open_wheel(files) as archive:
        for folder in config["options"]["folders"]:
            for evals_row in read_rows(archive, folder["member"]):
                if evals_row is None:
                    continue
                prompt = openai_evals.row_turns(evals_row, folder)
                asked = "\n".join([*evals_row.questions, *evals_row.examples])
                for answer in evals_row.answers if prompt in kept else ():
                    if len(answer) >= openai_evals.MIN_ANSWER_CHARS and answer not in asked:
                        assert answer not in "\n".join(prompt), folder["member"]
                        checked += 1
    assert checked > 100
