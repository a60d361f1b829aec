import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from speedstudy.collect import coser, role_bench
from speedstudy.collect.candidates import Candidate, Dropped, keep_good

CONFIG = Path(__file__).parents[1] / "config/source"
SPLIT = "rolebench-eng/{}/role_specific/test.jsonl"


def question(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "question": text, "generated": ["SECRET"], "type": ["script_based"]}


def role_bench_files(folder: Path, rows: list[Any], descriptions: Any = None) -> dict[str, Path]:
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = {SPLIT.format("instruction-generalization"): path}
    if descriptions is not None:
        files["profiles-eng/desc.json"] = folder / "desc.json"
        (folder / "desc.json").write_text(json.dumps(descriptions), encoding="utf-8")
    return files


def collect_roles(files: dict[str, Path], at_most: int = 1) -> tuple[list[Candidate], Any]:
    return keep_good(role_bench.read("rb", files, {"conversations_per_role": at_most}))


ASKED = [question("Ada Rook", f" Ada Rook, what is in drawer {n}?") for n in range(12)]
OTHERS = [question("Old Tom", f"Old Tom, who lives in house {n}?") for n in range(3)]


def test_a_conversation_opens_with_the_role_and_asks_its_questions(tmp_path: Path) -> None:
    files = role_bench_files(tmp_path, ASKED + OTHERS, {"Ada Rook": "A retired lock-picker."})
    kept, dropped = collect_roles(files)
    ada, tom = sorted(kept, key=lambda item: item.src_id)
    assert ada.src_id == "rolebench_instruction-generalization_Ada Rook_0"
    assert tom.src_id == "rolebench_instruction-generalization_Old Tom_0"
    for item in kept:
        assert item.category == "roleplay"
        assert 1 <= len(item.turns) <= 5
    lines = ada.turns[0].split("\n")
    assert "Ada Rook" in lines[0]
    assert lines[1] == "A retired lock-picker."
    assert lines[3].startswith("Ada Rook, what is in drawer ")
    # Nothing stands in for a description that nobody wrote.
    assert len(tom.turns[0].split("\n")) == 3
    used = sum(len(item.turns) for item in kept)
    assert dropped == {"over_quota": 15 - used}


def test_all_questions_are_dealt_once_and_the_name_is_said_once(tmp_path: Path) -> None:
    kept, dropped = collect_roles(role_bench_files(tmp_path, ASKED), at_most=100)
    assert dropped == {}
    drawers = [turn.split("drawer ")[1] for item in kept for turn in item.turns]
    assert sorted(drawers) == sorted(f"{n}?" for n in range(12))
    for item in kept:
        assert all(turn.startswith("what is in drawer") for turn in item.turns[1:])


def test_templates_are_eight_and_differ() -> None:
    assert len(set(role_bench.TEMPLATES)) == 8
    assert all("{role}" in opening for opening, _ in role_bench.TEMPLATES)


def test_role_bench_does_not_depend_on_order(tmp_path: Path) -> None:
    rows = ASKED + OTHERS
    expected = collect_roles(role_bench_files(tmp_path, rows), at_most=2)
    shuffled = random.Random(5).sample(rows, len(rows))
    assert collect_roles(role_bench_files(tmp_path, shuffled), at_most=2) == expected


def test_role_bench_names_or_drops_what_is_damaged(tmp_path: Path) -> None:
    rows = [OTHERS[0], OTHERS[0], question("Old Tom", " "), OTHERS[0] | {"role": None}]
    kept, dropped = collect_roles(role_bench_files(tmp_path, rows))
    assert len(kept) == 1
    assert dropped == {"duplicate": 1, "damaged_row": 2}
    with pytest.raises(ValueError, match=r"source rb: .*line 1: columns \['name', 'question'\]"):
        collect_roles(role_bench_files(tmp_path, [{"name": "Old Tom", "question": "?"}]))
    with pytest.raises(ValueError, match=r"source rb: .*desc.json holds a list, expected a dict"):
        collect_roles(role_bench_files(tmp_path, OTHERS, ["Old Tom"]))
    path = role_bench_files(tmp_path, OTHERS)[SPLIT.format("instruction-generalization")]
    with pytest.raises(ValueError, match=r"source rb: file 'test.jsonl' is not at <split>"):
        collect_roles({"test.jsonl": path})


def test_the_real_roles_each_give_a_conversation(shared: Path) -> None:
    root = shared / "data/rolebench"
    files = {
        str(path.relative_to(root)): path for path in (root / "rolebench-eng").rglob("*.jsonl.gz")
    }
    kept, dropped = collect_roles(files)
    assert len(kept) == 95 + 10
    assert sum(len(item.turns) for item in kept) + sum(dropped.values()) == 4750 + 2534
    assert {len(item.turns) for item in kept} == {1, 2, 3, 4, 5}


SCENE: dict[str, Any] = {
    "book": "The Empty Harbour",
    "scenario": "Fog lies over the quay.",
    "topic": "A missing boat",
    "key_characters": [
        {"name": "Ines", "motivation": "I must find the boat before dawn."},
        {"name": "Karl", "motivation": "Nobody may learn what I sold."},
    ],
    "dialogues": [{"character": "Ines", "message": "SECRET"}],
    "speaking_characters_w_env": ["Ines", "Karl", "Environment"],
    "major_characters": ["Ines", "Karl"],
    "weight": 1.0,
    "plot": {"summary": "A boat is gone."},
    "character_profiles": {
        "Ines": "A fisher.",
        "Karl": "A dealer.",
        "Old Vos": "Karl's father.",
        "The cook": None,
    },
    "i_p": 3,
    "i_c": 0,
    "tag": "id",
}
BOOKS = {"books": ["The Empty Harbour"]}


def scenes(path: Path, rows: Any) -> dict[str, Path]:
    path.write_text(json.dumps(rows), encoding="utf-8")
    return {"test/test_set.json": path}


def test_a_scene_gives_its_character_all_parts(tmp_path: Path) -> None:
    (item,) = coser.read("coser", scenes(tmp_path / "t.json", [SCENE]), BOOKS)
    assert isinstance(item, Candidate)
    assert item.category == "roleplay"
    assert item.src_id.startswith("coser_The Empty Harbour_")
    # numpy.random.default_rng(12347).integers(0, 2) is 1.
    parts = item.turns[0].split("\n\n")
    assert parts[0] == "Act as Karl in a scene of the book The Empty Harbour."
    assert parts[1] == "## Who Karl is\nA dealer."
    assert parts[2] == "## The scene\nFog lies over the quay."
    assert parts[3:5] == ["## The other characters\nInes: A fisher.", "Old Vos: Karl's father."]
    assert parts[5] == "## What goes on inside Karl\nNobody may learn what I sold."
    assert parts[6].startswith("## How to answer\n")
    assert len(parts) == 7
    assert "SECRET" not in item.turns[0]


def test_a_character_has_a_profile_and_perhaps_a_thought(tmp_path: Path) -> None:
    lone = SCENE | {
        "character_profiles": {"Karl": None, "Ines": "A fisher."},
        "key_characters": [{"name": "Ines", "thought": "Where is it?"}],
    }
    unmoved = lone | {"scenario": "Noon.", "key_characters": []}
    first, second = coser.read("coser", scenes(tmp_path / "t.json", [lone, unmoved]), BOOKS)
    assert isinstance(first, Candidate)
    assert isinstance(second, Candidate)
    assert "## What goes on inside Ines\nWhere is it?" in first.turns[0]
    assert "other characters" not in first.turns[0]
    assert "What goes on" not in second.turns[0]
    assert first.src_id != second.src_id


def test_only_listed_books_and_whole_scenes(tmp_path: Path) -> None:
    rows = [
        SCENE | {"book": "A New Novel"},
        SCENE | {"scenario": None},
        SCENE | {"character_profiles": {"Karl": None}},
        SCENE,
    ]
    path = tmp_path / "t.json"
    kept, dropped = keep_good(coser.read("coser", scenes(path, rows), BOOKS))
    assert len(kept) == 1
    assert dropped == {"not_public_domain": 1, "damaged_row": 1, "no_profile": 1}
    rows.reverse()
    assert keep_good(coser.read("coser", scenes(path, rows), BOOKS)) == (kept, dropped)


def test_coser_names_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(ValueError, match=r"source coser: .*row 1: columns \['book'\], expected"):
        list(coser.read("coser", scenes(path, [SCENE, {"book": "x"}]), BOOKS))
    with pytest.raises(ValueError, match=r"source coser: .*holds a dict, expected a list"):
        list(coser.read("coser", scenes(path, {"a": SCENE}), BOOKS))
    path.write_text("[{")
    with pytest.raises(ValueError, match=r"source coser: .*no JSON"):
        list(coser.read("coser", {"test/test_set.json": path}, BOOKS))


def test_the_real_public_domain_books_are_listed(shared: Path) -> None:
    path = shared / "data/coser/test_set_public_domain.json"
    options = yaml.safe_load((CONFIG / "coser.yaml").read_text(encoding="utf-8"))["options"]
    items = list(coser.read("coser", {"test/test_set.json": path}, options))
    assert len(items) == 28
    assert not any(isinstance(item, Dropped) for item in items)
    books = {row["book"] for row in json.loads(path.read_text(encoding="utf-8"))}
    assert books == set(options["books"])
