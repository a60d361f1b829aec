"""The shared folder of real rows, laid out as the mirror that ``fetch`` reads.

Thirteen of the sixteen configured sources of the paper can be served from it (the paper counts
18: Spec-Bench's file holds three). What each of them then is, ``LAID`` says plainly: rows of the
source itself (all or some of them, maybe of another revision), or a stand-in, rows of something
else in the source's columns. A stand-in lets the whole pipeline run on real text; nothing that it
gives is a statement about the source.
"""

import gzip
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

SOURCES = Path(__file__).parents[1] / "config/source"
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Laid:
    """How one source is served.

    Attributes:
        what: ``itself``, ``part`` (fewer rows of it) or ``stand-in``.
        note: What the rows are.
        write: Called with the shared data and the source's folder in the mirror.
        candidates: What can be promised instead, where the source's own file promises more.
        files: Of the artifact, where they are others.
    """

    what: str
    note: str
    write: Callable[[Path, Path], None]
    candidates: Mapping[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def lay_out(shared: Path, mirror: Path) -> dict[str, dict[str, Any]]:
    """Write the mirror; return the configuration of every source of the paper, by name.

    A source without an entry in ``LAID`` may be skipped, all others must be there.
    """
    sources = {}
    for name in (*LAID, *ABSENT):
        source = yaml.safe_load((SOURCES / f"{name}.yaml").read_text(encoding="utf-8"))
        source.setdefault("counted", True)
        artifact = source["artifact"]
        laid = LAID.get(name)
        if laid is None:
            source["on_missing"] = "skip"
        else:
            source["candidates"] |= laid.candidates
            artifact["files"] = list(laid.files) or artifact["files"]
            laid.write(shared / "data", mirror / artifact["repo"] / artifact["revision"])
        sources[name] = source
    return sources


def _human_eval_pack(data: Path, out: Path) -> None:
    for language in ("cpp", "go", "java", "js", "python", "rust"):
        _unpack(
            data / f"humaneval_x/humaneval_{language}.jsonl.gz",
            out / f"data/{language}/data/humanevalpack.jsonl",
        )


def _mmath(data: Path, out: Path) -> None:
    for path in (data / "mmath").glob("*.json"):
        _copy(path, out / "mmath" / path.name)


def _role_bench(data: Path, out: Path) -> None:
    for split in ("instruction-generalization", "role-generalization"):
        name = f"rolebench-eng/{split}/role_specific/test.jsonl"
        _unpack(data / f"rolebench/{name}.gz", out / name)
    # The descriptions are not in the shared folder: no role has one.
    _write(out / "profiles-eng/desc.json", "{}")


def _writing_bench(data: Path, out: Path) -> None:
    """Rows of the length subset, with the column of the whole file that says the language."""
    lines = []
    for row in _json_lines(data / "writingbench/length_subset.jsonl.gz"):
        chinese = re.search("[\u4e00-\u9fff]", row["query"])
        lines.append(json.dumps(row | {"lang": "zh" if chinese else "en"}) + "\n")
    _write(out / "benchmark_query/benchmark_all.jsonl", "".join(lines))


def _mmlu_pro(data: Path, out: Path) -> None:
    _parquet(
        _json_lines(data / "mmlu_pro/test_sample.jsonl.gz"),
        out / "data/test-00000-of-00001.parquet",
    )


_HLE_CATEGORY = {
    "history": "Humanities/Social Science",
    "philosophy": "Humanities/Social Science",
    "law": "Humanities/Social Science",
    "psychology": "Humanities/Social Science",
    "economics": "Humanities/Social Science",
    "physics": "Physics",
    "computer science": "Computer Science/AI",
    "biology": "Biology/Medicine",
    "health": "Biology/Medicine",
    "chemistry": "Chemistry",
    "engineering": "Engineering",
}


def _hle(data: Path, out: Path) -> None:
    """MMLU-Pro's questions with their options, and MMATH's English problems, in HLE's columns."""
    rows = []
    for row in _json_lines(data / "mmlu_pro/test_sample.jsonl.gz"):
        if row["category"] in _HLE_CATEGORY:
            question = "\n".join([row["question"], *row["options"]])
            category = _HLE_CATEGORY[row["category"]]
            rows.append((f"mmlu_pro_{row['question_id']}", question, category, row["category"]))
    for row in json.loads((data / "mmath/en.json").read_text(encoding="utf-8")):
        rows.append((f"mmath_en_{row['gid']}", row["question"], "Math", "Mathematics"))
    _parquet(
        (
            {
                "id": key,
                "question": question,
                "image": "",
                "answer_type": "exactMatch",
                "category": category,
                "raw_subject": subject,
            }
            for key, question, category, subject in rows
        ),
        out / "data/test-00000-of-00001.parquet",
    )


_UDHR_PAIRS = (
    *("ar-en", "cs-en", "de-en", "el-en", "en-es", "en-fi", "en-fr", "en-he", "en-hi", "en-hu"),
    *("en-id", "en-it", "en-ja", "en-ko", "en-nl", "en-pl", "en-pt", "en-ro", "en-ru", "en-sv"),
    *("en-th", "en-tr", "en-uk", "en-vi", "en-zh"),
)


def _opus_100(data: Path, out: Path) -> None:
    pairs: defaultdict[str, list[Row]] = defaultdict(list)
    for row in _json_lines(data / "udhr_parallel/udhr_parallel.jsonl"):
        pairs[row["pair"]].append({"translation": row["translation"]})
    for pair in _UDHR_PAIRS:
        _parquet(pairs[pair], out / pair / "test-00000-of-00001.parquet")


def _chat_rag_bench(data: Path, out: Path) -> None:
    rows = [
        {
            "messages": [{"role": "user", "content": row["question"]}],
            "ctxs": [{"title": "Transcript", "text": row["content"]}],
            "answers": [row["answer"]],
        }
        for row in _json_lines(data / "bamboo/meetingqa_4k.jsonl.gz")
    ]
    _write(out / "data/sqa/test.json", json.dumps(rows))


def _cnn_dailymail(data: Path, out: Path) -> None:
    articles = [
        row["turns"][0].removeprefix("Summarize: ")
        for row in _json_lines(data / "spec_bench/question.jsonl")
        if row["category"] == "summarization"
    ]
    reports = _json_lines(data / "bamboo/reportsumsort_4k.jsonl.gz")
    texts = [*articles, *(row["content"] for row in reports)]
    _parquet(
        ({"article": text, "highlights": "", "id": str(place)} for place, text in enumerate(texts)),
        out / "3.0.0/test-00000-of-00001.parquet",
    )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        return [json.loads(line) for line in lines]


def _parquet(rows: Iterable[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy(path: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, out)


def _unpack(path: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path) as packed, out.open("wb") as file:
        shutil.copyfileobj(packed, file)


LAID = {
    "spec_bench": Laid(
        what="itself",
        note="the file at another commit",
        write=lambda data, out: _copy(
            data / "spec_bench/question.jsonl", out / "data/spec_bench/question.jsonl"
        ),
    ),
    "human_eval_pack": Laid(
        what="itself",
        note="HumanEval-X, from which the pack has its problems and prompts",
        write=_human_eval_pack,
    ),
    "role_bench": Laid(
        what="itself", note="the GitHub copy, without the descriptions of roles", write=_role_bench
    ),
    "coser": Laid(
        what="part",
        note="the GitHub copy, only books in the public domain",
        write=lambda data, out: _copy(
            data / "coser/test_set_public_domain.json", out / "test/test_set.json"
        ),
    ),
    "writing_bench": Laid(
        what="part",
        note="the length subset; its language is told by its script",
        write=_writing_bench,
    ),
    "creative_writing": Laid(
        what="itself",
        note="the file at another commit",
        write=lambda data, out: _copy(
            data / "creative_writing_v3/creative_writing_prompts_v3.json",
            out / "data/creative_writing_prompts_v3.json",
        ),
    ),
    "mt_bench_101": Laid(
        what="itself",
        note="the file at another commit",
        write=lambda data, out: _unpack(
            data / "mtbench101/mtbench101.jsonl.gz", out / "data/subjective/mtbench101.jsonl"
        ),
    ),
    "mmlu_pro": Laid(
        what="part",
        note="1,627 of 12,032 questions",
        write=_mmlu_pro,
        candidates={"reasoning": 781},
    ),
    "mmath": Laid(what="itself", note="the files at another commit", write=_mmath),
    "opus_100": Laid(
        what="stand-in",
        note="paragraphs of the Universal Declaration of Human Rights in 25 pairs",
        write=_opus_100,
        candidates={"multilingual": 1200},
        files=tuple(f"{pair}/test-00000-of-00001.parquet" for pair in _UDHR_PAIRS),
    ),
    "hle": Laid(
        what="stand-in",
        note="MMLU-Pro for humanities and stem, MMATH in English for math",
        write=_hle,
    ),
    "chat_rag_bench": Laid(
        what="stand-in",
        note="BAMBOO's questions about meetings, single-turn",
        write=_chat_rag_bench,
        files=("data/sqa/test.json",),
    ),
    "cnn_dailymail": Laid(
        what="stand-in",
        note="the 80 articles that Spec-Bench has of it, and BAMBOO's reports, which are none",
        write=_cnn_dailymail,
        candidates={"summarization": 131},
    ),
}
ABSENT = ("live_code_bench", "code_contests", "mcif")
