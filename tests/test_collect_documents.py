import gzip
import json
import random
import socket
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from collected import read_candidates
from speedstudy.collect import chat_rag_bench, cnn_dailymail, collect
from speedstudy.collect.candidates import Dropped, keep_good
from speedstudy.collect.table_files import read_table

ROOT = Path(__file__).parents[1]


def conversation(*questions: str, contexts: tuple[str, ...] = ("A table.", "A text.")) -> Any:
    messages = []
    for question in questions:
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "SECRET reply"},
        ]
    return {
        "messages": messages[:-1],
        "ctxs": [{"title": "T", "text": text} for text in contexts],
        "answers": ["SECRET answer"],
    }


CONVERSATIONS = [
    conversation("Which year?"),
    conversation("Which year?", "And who won?"),
    conversation("Is {question} a {} field?", contexts=("Only one.",)),
]


def read_conversations(folder: Path, rows: list[Any], subset: str = "sqa") -> list[Any]:
    path = folder / "test.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return list(chat_rag_bench.read("chat_rag_bench", {f"data/{subset}/test.json": path}, {}))


def test_contexts_come_before_the_first_question_and_replies_are_left_out(tmp_path: Path) -> None:
    one, two, _ = read_conversations(tmp_path, CONVERSATIONS)
    first = (
        "Please give a full and complete answer for the questions. \n\nContext:\nA table.\n\n"
        "A text.\n\nQuestion:\nWhich year?"
    )
    assert one.turns == (first,)
    assert two.turns == (first, "And who won?")
    assert (one.multiturn, two.multiturn) == (False, True)
    assert (one.category, one.sub_category) == ("rag", "table_and_text_extraction")
    assert "SECRET" not in repr([one, two])


def test_conversations_are_told_apart_by_subset_and_content(tmp_path: Path) -> None:
    items = read_conversations(tmp_path, CONVERSATIONS)
    assert len({item.src_id for item in items}) == 3
    shuffled = random.Random(4).sample(CONVERSATIONS, 3)
    assert keep_good(read_conversations(tmp_path, shuffled)) == keep_good(items)
    other = read_conversations(tmp_path, CONVERSATIONS, subset="hybridial")
    assert not {item.src_id for item in items} & {item.src_id for item in other}


def test_a_conversation_without_question_or_context_is_dropped(tmp_path: Path) -> None:
    silent = conversation("?") | {"messages": [{"role": "assistant", "content": "Hello."}]}
    rows = [CONVERSATIONS[0], silent, conversation("?") | {"ctxs": []}]
    items = read_conversations(tmp_path, rows)
    assert [i.reason for i in items if isinstance(i, Dropped)] == ["no_turns", "no_context"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": []}, "chat_rag_bench.*no column ctxs; found messages"),
        (conversation("?") | {"ctxs": None}, "column ctxs is null, expected list"),
        (conversation("?") | {"ctxs": [{"title": "T"}]}, "ctxs has no text under text"),
        (conversation("?") | {"messages": [{"content": "Hi."}]}, "list of {role, content}"),
        (conversation("?") | {"messages": [{"role": "user"}]}, "no text under content"),
    ],
)
def test_a_damaged_conversation_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_conversations(tmp_path, [row])


ARTICLES = [
    {"article": "(CNN) A {set} of news.", "highlights": "SECRET one", "id": "0b" * 20},
    {"article": "More news .", "highlights": "SECRET two", "id": "0a" * 20},
]


def read_articles(folder: Path, rows: list[dict[str, Any]]) -> list[Any]:
    path = folder / "test.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    options = {"instruction": "Summarize:"}
    return list(cnn_dailymail.read("cnn_dailymail", {"3.0.0/test.parquet": path}, options))


def test_an_article_follows_the_instruction_and_its_summary_is_left_out(tmp_path: Path) -> None:
    first, second = read_articles(tmp_path, ARTICLES)
    assert first.turns == ("Summarize:\n\n(CNN) A {set} of news.",)
    assert (first.src_id, first.category, first.multiturn) == ("0b" * 20, "summarization", False)
    assert "SECRET" not in repr([first, second])
    assert keep_good(read_articles(tmp_path, ARTICLES[::-1])) == keep_good([first, second])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "News.", "id": "1"}, "cnn_dailymail.*no column article; found text, id"),
        ({"article": None, "id": "1"}, "row 1: column article is null, expected str"),
    ],
)
def test_a_damaged_article_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_articles(tmp_path, [row])


@pytest.mark.parametrize(
    "content",
    [b"", b'[{"id": 1', b"\x80\x81", gzip.compress(b'{"id": 1}\n')[:-9]],
    ids=["empty", "cut off", "no UTF-8", "cut off gzip"],
)
def test_a_file_that_is_no_table_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("rows.jsonl.gz" if content[:2] == b"\x1f\x8b" else "rows.json")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"source s: rows\.json.* is no table of JSON"):
        list(read_table("s", path, {"id": int}))


def test_a_gzipped_file_of_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"id": 1, "more": "x"}\n{"id": 2, "more": "y"}\n'))
    assert [row for _, row in read_table("s", path, {"id": int})] == [{"id": 1}, {"id": 2}]


def test_a_source_is_collected_whole_from_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "test.parquet"
    pq.write_table(pa.Table.from_pylist(ARTICLES), path)
    config = yaml.safe_load((ROOT / "config" / "source" / "cnn_dailymail.yaml").read_text())
    config["candidates"] = {"summarization": 2}
    report = collect(config, {"test.parquet": path}, tmp_path / "out.parquet")
    assert report["by_category"] == {"summarization": 2}
    kept = read_candidates(tmp_path / "out.parquet")
    assert kept[0].turns[0].startswith("Summarize the following article:\n\n")


def test_reading_a_local_file_asks_for_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: asked_for.append(host))
    assert len(read_conversations(tmp_path, CONVERSATIONS)) == 3
    assert len(read_articles(tmp_path, ARTICLES)) == 2
    assert asked_for == []
