import gzip
import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from speedstudy.collect import mcif, mmath, opus_100
from speedstudy.collect.candidates import Candidate, Dropped, keep_good
from speedstudy.collect.language_names import LANGUAGE_NAMES

ROOT = Path(__file__).parents[1]


def problem(gid: int, lang: str, text: str) -> dict[str, Any]:
    return {
        "question": text,
        "answer": "42",
        "data_source": "MATH500",
        "data_source_id": gid,
        "lang": lang,
        "gid": gid,
    }


SPANISH = [problem(0, "es", "¿Cuánto es $6 \\cdot 7$?"), problem(1, "es", "Halle $x$.")]


def read_problems(folder: Path, rows: list[dict[str, Any]]) -> list[Any]:
    path = folder / "es.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return list(mmath.read("mmath", {"mmath/es.json": path}, {}))


def test_a_problem_is_its_own_prompt_and_its_language_is_in_its_id(tmp_path: Path) -> None:
    first, second = read_problems(tmp_path, SPANISH)
    assert (first.src_id, second.src_id) == ("mmath_es_0", "mmath_es_1")
    assert (first.category, first.sub_category) == ("multilingual", "es_math")
    assert first.turns == ("¿Cuánto es $6 \\cdot 7$?",)
    assert not first.multiturn


def test_the_order_of_problems_does_not_matter(tmp_path: Path) -> None:
    assert sorted(read_problems(tmp_path, SPANISH[::-1]), key=lambda item: item.src_id) == (
        read_problems(tmp_path, SPANISH)
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "¿?", "lang": "es"}, "mmath.*no column gid; found question, lang"),
        (problem(0, "pt", "Quanto é?"), "lang is 'pt', expected 'es'"),
        (problem(0, "es", "¿?") | {"question": None}, "column question is null, expected str"),
    ],
)
def test_a_damaged_problem_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_problems(tmp_path, [row])


def test_the_real_problems_give_every_language_but_english(shared: Path) -> None:
    names = yaml.safe_load((ROOT / "config" / "source" / "mmath.yaml").read_text())["artifact"]
    files = {name: shared / "data" / name for name in names["files"]}
    items = list(mmath.read("mmath", files, {}))
    assert Counter(item.sub_category for item in items) == {
        f"{code}_math": 374 for code in ("ar", "es", "fr", "ja", "ko", "pt", "th", "vi", "zh")
    }
    kept, dropped = keep_good(items)
    assert len(kept) + dropped["duplicate"] == 9 * 374
    assert set(dropped) <= {"duplicate"}


GERMAN = [
    {"translation": {"de": "Der Hund schläft.", "en": "The dog is asleep."}},
    {"translation": {"de": "Wo ist {question} hier?", "en": "Where is it?"}},
    {"translation": {"de": "Ja.", "en": "Yes."}},
    {"translation": {"de": "  ", "en": "Blank."}},
]


def read_pair(folder: Path, rows: list[dict[str, Any]], pair: str = "de-en") -> list[Any]:
    """Read rows written as the hub's file is: with the library's own translation feature."""
    from datasets import Dataset, Features, Translation

    path = folder / "test.parquet"
    features = Features({"translation": Translation(languages=pair.split("-"))})
    Dataset.from_list(rows, features=features).to_parquet(str(path))
    return list(opus_100.read("opus_100", {f"{pair}/test-00000-of-00001.parquet": path}, {}))


def test_a_translation_prompt_names_both_languages_and_holds_the_text(tmp_path: Path) -> None:
    item = read_pair(tmp_path, GERMAN)[0]
    assert item.turns == (
        "Translate the following text from German to English:\n\nDer Hund schläft.",
    )
    assert (item.category, item.sub_category) == ("multilingual", "de-en")
    assert item.src_id.startswith("opus100_de-en_")


def test_the_reference_translation_is_nowhere_in_a_candidate(tmp_path: Path) -> None:
    for item, row in zip(read_pair(tmp_path, GERMAN), GERMAN, strict=True):
        reference = row["translation"]["en"]
        assert reference not in repr(item)
        assert "'de':" not in repr(item)  # upstream formats the mapping itself into the prompt


def test_another_reference_changes_nothing_of_a_candidate(tmp_path: Path) -> None:
    other = [{"translation": {**row["translation"], "en": "Something else."}} for row in GERMAN]
    assert read_pair(tmp_path, other) == read_pair(tmp_path, GERMAN)


def test_sentences_are_told_apart_by_their_text_not_by_their_row(tmp_path: Path) -> None:
    items = read_pair(tmp_path, GERMAN)
    assert len({item.src_id for item in items}) == 4
    shuffled = random.Random(1).sample(GERMAN, len(GERMAN))
    assert {item.src_id for item in read_pair(tmp_path, shuffled)} == {i.src_id for i in items}
    assert keep_good(read_pair(tmp_path, shuffled)) == keep_good(items)
    assert Dropped(src_id=items[3].src_id, reason="empty") in items


def test_no_real_reference_of_25_pairs_is_in_its_prompt(shared: Path, tmp_path: Path) -> None:
    text = (shared / "data" / "udhr_parallel" / "udhr_parallel.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    pairs = sorted({row["pair"] for row in rows})
    assert len(pairs) == 25
    for pair in pairs:
        chosen = [{"translation": row["translation"]} for row in rows if row["pair"] == pair]
        for item, row in zip(read_pair(tmp_path, chosen, pair), chosen, strict=True):
            origin, target = pair.split("-")
            assert item.turns[0].endswith("\n\n" + row["translation"][origin])
            assert row["translation"][target] not in item.turns[0]


@pytest.mark.parametrize(
    ("rows", "pair", "message"),
    [
        ([{"translation": {"de": None, "en": "Hello."}}], "de-en", "the de side is NoneType"),
        (GERMAN, "de-xx", "in a folder named like `de-en`"),
        (GERMAN, "german", "in a folder named like `de-en`"),
    ],
)
def test_a_damaged_pair_is_named(
    tmp_path: Path, rows: list[dict[str, Any]], pair: str, message: str
) -> None:
    path = tmp_path / "test.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(ValueError, match=message):
        list(opus_100.read("opus_100", {f"{pair}/test.parquet": path}, {}))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"translation": {"de": "Ja.", "fr": "Oui."}}, "expected de and en"),
        ({"text": "Ja."}, "opus_100.*no column translation; found text"),
    ],
)
def test_a_file_of_other_columns_is_named(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = tmp_path / "test.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    with pytest.raises(ValueError, match=message):
        list(opus_100.read("opus_100", {"de-en/test.parquet": path}, {}))


def test_every_configured_pair_and_every_language_has_a_name() -> None:
    files = yaml.safe_load((ROOT / "config" / "source" / "opus_100.yaml").read_text())["artifact"]
    pairs = [name.split("/")[0] for name in files["files"]]
    assert len(pairs) == len(set(pairs)) == 21
    assert all(set(pair.split("-")) <= LANGUAGE_NAMES.keys() for pair in pairs)
    assert len(LANGUAGE_NAMES) == len(set(LANGUAGE_NAMES.values())) == 100


TALK = "Good morning. We parse trees."
SAMPLES: list[tuple[str, str, tuple[str, ...]]] = [
    # task, iid, languages; the sample's id is its place here
    ("ASR", "ASR_17", ("en",)),
    ("TRANS", "TRANS_17", ("de", "it", "zh")),
    ("SUM", "SUM_17", ("en", "de", "it", "zh")),
    *[("QA", f"QA_17_{line}", ("en", "de", "it", "zh")) for line in (9, 10, 168, 172, 8, 7)],
    ("QA", "QA_2_3", ("en",)),
]


def talk_rows() -> list[dict[str, Any]]:
    return [
        {
            "id": str(place),
            "audio": "a.wav",
            "video": "a.mp4",
            "text": "Another talk." if iid.startswith("QA_2_") else TALK,
        }
        | {
            f"prompt_{code}": f"{code} {iid}?" if code in languages else None
            for code in ("de", "en", "it", "zh")
        }
        for place, (_, iid, languages) in enumerate(SAMPLES)
    ]


def read_talks(
    folder: Path, rows: list[dict[str, Any]], xml: Mapping[str, bytes] | None = None, turns: Any = 5
) -> list[Any]:
    table = folder / "test.parquet"
    pq.write_table(pa.Table.from_pylist(rows), table)
    files = {"long_mixedprompt/test-00000-of-00001.parquet": table}
    for code in ("de", "en", "it", "zh"):
        samples = "".join(
            f'<sample id="{place}" iid="{iid}" task="{task}"><reference>SECRET {iid}</reference>'
            "</sample>"
            for place, (task, iid, languages) in enumerate(SAMPLES)
            if code in languages
        )
        whole = f'<testset><task track="long" text_lang="{code}">{samples}</task></testset>'
        path = folder / f"MCIF.long.{code}.ref.xml.gz"
        path.write_bytes((xml or {}).get(code, gzip.compress(whole.encode())))
        files[path.name] = path
    return list(mcif.read("mcif", files, {"max_turns": turns}))


def test_other_languages_are_multilingual_prompts_about_the_transcript(tmp_path: Path) -> None:
    items = [item for item in read_talks(tmp_path, talk_rows()) if isinstance(item, Candidate)]
    multilingual = {item.src_id: item for item in items if item.category == "multilingual"}
    assert Counter(item.sub_category for item in multilingual.values()) == {
        f"{code}_{task}": count
        for code in ("de", "it", "zh")
        for task, count in (("translation", 1), ("summarization", 1), ("question_answering", 6))
    }
    assert multilingual["it_SUM_17"].turns == (f"it SUM_17?\n\n{TALK}",)
    assert not any(item.multiturn for item in multilingual.values())


def test_english_questions_about_a_talk_become_conversations(tmp_path: Path) -> None:
    items = [item for item in read_talks(tmp_path, talk_rows()) if isinstance(item, Candidate)]
    rag = {item.src_id: item for item in items if item.category == "rag"}
    assert set(rag) == {"QA_2_3", "QA_17_7_QA_17_8_QA_17_9_QA_17_10_QA_17_168", "QA_17_172"}
    long = rag["QA_17_7_QA_17_8_QA_17_9_QA_17_10_QA_17_168"]
    assert long.turns == (
        f"en QA_17_7?\n\n{TALK}",
        "en QA_17_8?",
        "en QA_17_9?",
        "en QA_17_10?",
        "en QA_17_168?",
    )
    assert rag["QA_2_3"].turns == ("en QA_2_3?\n\nAnother talk.",)
    assert [rag[key].multiturn for key in ("QA_17_172", "QA_2_3")] == [False, False]
    assert long.multiturn


def test_no_reference_of_a_talk_is_in_a_candidate(tmp_path: Path) -> None:
    assert "SECRET" not in repr(read_talks(tmp_path, talk_rows()))


def test_what_the_paper_does_not_use_or_has_no_text_is_reported(tmp_path: Path) -> None:
    rows = talk_rows()
    rows[1]["text"] = None
    dropped = Counter(i.reason for i in read_talks(tmp_path, rows) if isinstance(i, Dropped))
    # English transcription and summary; the translation into three languages lost its text.
    assert dropped == {"not_used_by_the_paper": 2, "no_text": 3}


def test_the_order_of_samples_does_not_matter(tmp_path: Path) -> None:
    expected = keep_good(read_talks(tmp_path, talk_rows()))
    shuffled = random.Random(2).sample(talk_rows(), len(SAMPLES))
    assert keep_good(read_talks(tmp_path, shuffled)) == expected


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (b"not gzipped", "MCIF.long.en.ref.xml.gz: unreadable"),
        (gzip.compress(b"<testset><task"), "unreadable"),
        (
            gzip.compress(b'<testset><task text_lang="en"><sample id="0"/></task></testset>'),
            "expected id, iid, task",
        ),
        (
            gzip.compress(
                b'<testset><task text_lang="en"><sample id="3" iid="Q3" task="QA"/></task>'
                b"</testset>"
            ),
            "'Q3' is not named QA_<talk>_<line>",
        ),
    ],
    ids=["not gzipped", "cut off", "no ids", "odd id"],  # the bytes hold the time
)
def test_a_damaged_reference_file_is_named(tmp_path: Path, xml: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_talks(tmp_path, talk_rows(), {"en": xml})


def test_a_damaged_table_of_talks_is_named(tmp_path: Path) -> None:
    rows = talk_rows()
    for row in rows:
        del row["prompt_zh"]
    with pytest.raises(ValueError, match=r"mcif.*no column prompt_zh.* found id, audio, video"):
        read_talks(tmp_path, rows)
    with pytest.raises(ValueError, match=r"options\.max_turns"):
        read_talks(tmp_path, talk_rows(), turns=0)
    with pytest.raises(ValueError, match="needs a parquet file"):
        list(mcif.read("mcif", {}, {"max_turns": 5}))
