"""Spec-Bench's question file (GitHub hemingkx/Spec-Bench, Apache-2.0), as the paper uses it.

One JSON line a row: ``question_id`` (81 to 560), ``category``, ``turns``. The paper takes
MT-Bench's eight categories (extraction counts as rag), qa, rag and GSM8K (``math_reasoning``);
translation and summarization are not used.

Options: ``all_rows`` (default false): give Spec-Bench itself instead, every one of its 480 rows as
it stands, to set a selection beside it; its categories are then merged as in the paper's Table 2
(math_reasoning is math, extraction rag, translation multilingual).

Two things that the paper leaves open, decided here by the row's own id:
the pairing of GSM8K rows (one published id, ``435_436``, and the count of 13 selected pairs are
known): an odd question_id goes with the next even one. ``src_id`` follows the published rows:
``spec_bench_<question_id - 81>``, for MT-Bench math the question_id alone, for GSM8K both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.json_lines import read_json_lines

FIRST_QUESTION_ID = 81


@dataclass(frozen=True)
class _Rule:
    rows: range
    name: str
    category: str
    sub_category: str = ""
    difficulty: str = ""
    used: bool = True


_RULES = (
    _Rule(range(0, 10), "writing", "writing"),
    _Rule(range(10, 20), "roleplay", "roleplay"),
    _Rule(range(20, 30), "reasoning", "reasoning"),
    _Rule(range(30, 40), "math", "math", difficulty="medium"),
    _Rule(range(40, 50), "coding", "coding", difficulty="medium"),
    _Rule(range(50, 60), "extraction", "rag", sub_category="extraction"),
    _Rule(range(60, 70), "stem", "stem", difficulty="medium"),
    _Rule(range(70, 80), "humanities", "humanities", difficulty="medium"),
    _Rule(range(80, 160), "translation", "multilingual", used=False),
    _Rule(range(160, 240), "summarization", "summarization", used=False),
    _Rule(range(240, 320), "qa", "qa"),
    _Rule(range(320, 400), "math_reasoning", "math", difficulty="easy"),
    _Rule(range(400, 480), "rag", "rag", sub_category="rag"),
)


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read ``question.jsonl``.

    Raises:
        ValueError: A row lacks a column, has an unknown id, or has another category than its id
            says: the file is not of the pinned revision.
    """
    rows = {row["question_id"]: row for path in files.values() for row in _read_rows(source, path)}
    for question_id, row in sorted(rows.items()):
        number = question_id - FIRST_QUESTION_ID
        rule = _rule(number, row)
        if options.get("all_rows", False):
            yield _candidate(source, f"spec_bench_{number}", rule, row["turns"])
            continue
        if not rule.used:
            yield Dropped(src_id=f"spec_bench_{number}", reason="not_used_by_the_paper")
            continue
        turns, src_id = row["turns"], f"spec_bench_{number}"
        if rule.name == "math":
            src_id = str(question_id)
        if rule.name == "math_reasoning":
            if question_id % 2 == 0 and question_id - 1 in rows:
                continue  # the second of a pair came with the first
            partner = rows.get(question_id + 1)
            if question_id % 2 == 0 or partner is None:
                yield Dropped(src_id=src_id, reason="no_partner")
                continue
            turns, src_id = turns + partner["turns"], f"{question_id}_{question_id + 1}"
        yield _candidate(source, src_id, rule, turns)


def _candidate(source: str, src_id: str, rule: _Rule, turns: list[str]) -> Candidate:
    return new_candidate(
        source=source,
        src_id=src_id,
        category=rule.category,
        sub_category=rule.sub_category,
        turns=turns,
        difficulty=rule.difficulty,
    )


def _read_rows(source: str, path: Path) -> Iterator[dict[str, Any]]:
    for place, row in read_json_lines(source, path, {"question_id", "category", "turns"}):
        if not isinstance(row["question_id"], int) or not isinstance(row["turns"], list):
            raise ValueError(
                f"{place}: question_id must be an integer and turns a list; fetch the file again"
            )
        yield row


def _rule(number: int, row: Mapping[str, Any]) -> _Rule:
    for rule in _RULES:
        if number in rule.rows and row["category"] == rule.name:
            return rule
    raise ValueError(
        f"Spec-Bench row {row['question_id']}: category {row['category']!r} does not belong to "
        "this id; the file is not of the pinned revision"
    )
