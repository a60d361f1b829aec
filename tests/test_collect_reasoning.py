import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy.collect import mmlu_pro, mt_bench_101
from speedstudy.collect.candidates import Candidate, Dropped, keep_good

DIALOGUES: list[dict[str, Any]] = [
    {
        "task": "GR",
        "id": 1,
        "history": [
            {"user": "Ann is older than Bo. Who is older?", "bot": "Ann is."},
            {"user": "Cy is older than Ann. Who is oldest?", "bot": "Cy is."},
        ],
    },
    {"task": "CM", "id": 2, "history": [{"user": "Do you remember?", "bot": "Yes."}]},
    {
        "task": "MR",
        "id": 449,
        "history": [
            {"user": "What is 3 + 4?", "bot": "7"},
            {"user": "Twice that?", "bot": "14"},
            {"user": "Its half?", "bot": "7"},
        ],
    },
]


def read_dialogues(folder: Path, rows: Sequence[Any]) -> list[Candidate | Dropped]:
    path = folder / "mtbench101.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(mt_bench_101.read("mt_bench_101", {"data/mtbench101.jsonl": path}, {}))


def test_reasoning_dialogues_keep_what_the_user_says_under_the_published_ids(
    tmp_path: Path,
) -> None:
    general, dropped, mathematical = read_dialogues(tmp_path, DIALOGUES)
    assert isinstance(general, Candidate)
    assert isinstance(mathematical, Candidate)
    assert (general.src_id, general.sub_category) == ("mtbench_101_0", "general")
    assert general.turns == (
        "Ann is older than Bo. Who is older?",
        "Cy is older than Ann. Who is oldest?",
    )
    assert (mathematical.src_id, mathematical.sub_category) == ("mtbench_101_448", "mathematical")
    assert {general.category, mathematical.category} == {"reasoning"}
    assert len(mathematical.turns) == 3
    assert dropped == Dropped(src_id="mtbench_101_1", reason="not_used_by_the_paper")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"task": "GR", "history": []}, "mt_bench_101.*no column id; found task, history"),
        ({"task": "GR", "id": "one", "history": []}, "column id is str, expected int"),
        ({"task": "GR", "id": 1, "history": "Hello"}, "column history is str, expected list"),
        ({"task": "GR", "id": 1, "history": [{"bot": "Hi."}]}, "list of {user, bot}"),
        ({"task": "GR", "id": 1, "history": None}, "column history is null"),
    ],
)
def test_a_damaged_dialogue_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_dialogues(tmp_path, [row])


def test_the_order_of_dialogues_does_not_matter(tmp_path: Path) -> None:
    expected, _ = keep_good(read_dialogues(tmp_path, DIALOGUES))
    assert keep_good(read_dialogues(tmp_path, DIALOGUES[::-1]))[0] == expected


def test_the_real_dialogues_give_the_papers_pool(shared: Path) -> None:
    path = shared / "data" / "mtbench101" / "mtbench101.jsonl.gz"
    kept, dropped = keep_good(mt_bench_101.read("mt_bench_101", {path.name: path}, {}))
    assert Counter(item.sub_category for item in kept) == {"general": 71, "mathematical": 108}
    assert Counter(len(item.turns) for item in kept) == {2: 102, 3: 70, 4: 7}
    assert all(item.multiturn for item in kept)
    assert dropped == {"not_used_by_the_paper": 1388 - 179}


def question(number: int, subject: str, **changes: Any) -> dict[str, Any]:
    return {
        "question_id": number,
        "question": f"Question {number}?",
        "options": ["yes", "no", "it depends"],
        "answer": "B",
        "answer_index": 1,
        "cot_content": "",
        "category": subject,
        "src": "ori_mmlu",
    } | changes


QUESTIONS = [question(number, "law") for number in (4, 5, 6, 8, 9)] + [question(7, "physics")]


def read_questions(folder: Path, rows: list[dict[str, Any]], turns: Any = 2) -> list[Any]:
    path = folder / "test.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return list(mmlu_pro.read("mmlu_pro", {"data/test.parquet": path}, {"turns": turns}))


def test_neighbours_of_one_subject_become_a_conversation(tmp_path: Path) -> None:
    items = read_questions(tmp_path, QUESTIONS)
    candidates = [item for item in items if isinstance(item, Candidate)]
    assert [item.src_id for item in candidates] == ["mmlu_pro_4_5", "mmlu_pro_8_9"]
    assert candidates[0].turns == (
        "The following are multiple choice questions (with answers) about law. Think step by step "
        'and then finish your answer with "the answer is (X)" where X is the correct letter '
        "choice.\n\nQuestion: Question 4?\n\nOptions: (A) yes\n(B) no\n(C) it depends\n\n",
        "Question: Question 5?\n\nOptions: (A) yes\n(B) no\n(C) it depends\n\n",
    )
    assert {(item.category, item.sub_category) for item in candidates} == {("reasoning", "law")}
    assert all(item.multiturn for item in candidates)
    # 6 and 7 are neighbours of different subjects.
    assert [item for item in items if isinstance(item, Dropped)] == [
        Dropped(src_id="mmlu_pro_6", reason="no_partner"),
        Dropped(src_id="mmlu_pro_7", reason="no_partner"),
    ]


def test_one_question_to_a_conversation_is_not_multi_turn(tmp_path: Path) -> None:
    items = read_questions(tmp_path, QUESTIONS, turns=1)
    assert len(items) == 6
    assert not any(item.multiturn for item in items)


def test_braces_in_a_question_stay_as_they_are(tmp_path: Path) -> None:
    (item,) = read_questions(tmp_path, [question(4, "math", question="Is {} in {1}?")], turns=1)
    assert "Question: Is {} in {1}?\n" in item.turns[0]


def test_a_new_question_changes_no_other_conversation(tmp_path: Path) -> None:
    before = read_questions(tmp_path, QUESTIONS)
    after = read_questions(tmp_path, [*QUESTIONS, question(2, "law"), question(3, "law")])
    assert [item for item in after if item in before] == before


def test_the_order_of_questions_does_not_matter(tmp_path: Path) -> None:
    shuffled = random.Random(5).sample(QUESTIONS, len(QUESTIONS))
    assert read_questions(tmp_path, shuffled) == read_questions(tmp_path, QUESTIONS)


def test_an_option_that_is_no_text_drops_the_conversation(tmp_path: Path) -> None:
    rows = [question(4, "law", options=["yes", None]), question(5, "law")]
    assert [item.reason for item in read_questions(tmp_path, rows)] == ["not_text", "not_text"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question_id": 4, "question": "?", "category": "law"}, "mmlu_pro.*no column options"),
        (question(4, "law", question=None), "column question is null, expected str"),
        (question(4, "law", options="A or B"), "column options is str, expected list"),
    ],
)
def test_a_damaged_question_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_questions(tmp_path, [row])


def test_a_question_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="question_id 4 comes twice"):
        read_questions(tmp_path, [question(4, "law"), question(4, "law")])


@pytest.mark.parametrize("turns", [0, "two"])
def test_a_wrong_number_of_turns_is_refused(tmp_path: Path, turns: Any) -> None:
    with pytest.raises(ValueError, match=r"options\.turns"):
        read_questions(tmp_path, QUESTIONS, turns=turns)


def test_the_real_sample_gives_pairs_of_every_subject(shared: Path) -> None:
    path = shared / "data" / "mmlu_pro" / "test_sample.jsonl.gz"
    kept, dropped = keep_good(mmlu_pro.read("mmlu_pro", {path.name: path}, {"turns": 2}))
    # 1,627 questions: 781 pairs of ids 2n and 2n + 1 within a subject, and 65 without one.
    assert len(kept) == 781
    assert dropped == {"no_partner": 65}
    assert len({item.sub_category for item in kept}) == 14
    assert all(len(item.turns) == 2 and item.multiturn for item in kept)
