"""MCIF's instructions about scientific talks (hub FBK-MT/MCIF, CC-BY-4.0), as text.

The long track with mixed prompts is one parquet file with a row a sample: ``id``, ``text`` (the
talk's English transcript), ``prompt_<lang>`` (null where the sample does not exist in that
language). What a sample is stands in one XML file a language, ``MCIF.long.<lang>.ref.xml.gz``:
``<sample id iid task>``, where ``iid`` is ``QA_<talk>_<line>``, ``SUM_<talk>`` or ``TRANS_<talk>``.
The references in those files are never read.

The paper takes question answering, translation and summarisation in German, Italian and Chinese
as multilingual, and the English questions about one talk, joined into conversations, as rag. Here
a talk's questions are sorted by their line and cut after every ``max_turns``. A prompt is the
instruction, a blank line, and the transcript; later turns are the instruction alone.

Options: ``max_turns``, the most questions in a conversation (5 in the paper).
"""

import gzip
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.table_files import ColumnType, read_table

_TASKS = {"QA": "question_answering", "SUM": "summarization", "TRANS": "translation"}
_QUESTION = re.compile(r"QA_(\d+)_(\d+)")
_MAYBE_TEXT = (str, type(None))


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every sample in every language that has a reference file.

    Raises:
        ValueError: There is no parquet file or no reference file, one is damaged, or the parquet
            file has other columns.
    """
    max_turns = options["max_turns"]
    if not isinstance(max_turns, int) or max_turns < 1:
        raise ValueError(
            f"source {source}: options.max_turns is {max_turns!r}; give a whole number from 1"
        )
    tasks: dict[tuple[str, str], tuple[str, str]] = {}
    for path in files.values():
        if path.suffix == ".gz":
            tasks |= _read_tasks(source, path)
    languages = sorted({language for language, _ in tasks})
    tables = [path for path in files.values() if path.suffix == ".parquet"]
    if not languages or not tables:
        raise ValueError(
            f"source {source}: needs a parquet file and *.ref.xml.gz files; found {sorted(files)}"
        )
    columns: dict[str, ColumnType] = {"id": (str, int), "text": _MAYBE_TEXT}
    columns |= {f"prompt_{language}": _MAYBE_TEXT for language in languages}
    talks: defaultdict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for table in tables:
        for _, row in read_table(source, table, columns):
            for language in languages:
                task, iid = tasks.get((language, str(row["id"])), ("", ""))
                prompt, text = row[f"prompt_{language}"], row["text"]
                if not task:
                    continue  # this sample does not exist in this language
                used = task == "QA" if language == "en" else task in _TASKS
                if not used or not prompt or not text:
                    reason = "no_text" if used else "not_used_by_the_paper"
                    yield Dropped(src_id=f"{language}_{iid}", reason=reason)
                elif language == "en":
                    talk, line = _talk_and_line(source, iid)
                    talks[talk][line] = (prompt, text)
                else:
                    yield new_candidate(
                        source=source,
                        src_id=f"{language}_{iid}",
                        category="multilingual",
                        sub_category=f"{language}_{_TASKS[task]}",
                        turns=[_with_text(prompt, text)],
                    )
    for talk, questions in sorted(talks.items()):
        yield from _conversations(source, talk, questions, max_turns)


def _conversations(
    source: str, talk: int, questions: Mapping[int, tuple[str, str]], max_turns: int
) -> Iterator[Candidate]:
    lines = sorted(questions)
    for start in range(0, len(lines), max_turns):
        chosen = lines[start : start + max_turns]
        prompts = [questions[line][0] for line in chosen]
        text = questions[chosen[0]][1]
        yield new_candidate(
            source=source,
            src_id="_".join(f"QA_{talk}_{line}" for line in chosen),
            category="rag",
            sub_category=_TASKS["QA"],
            turns=[_with_text(prompts[0], text), *prompts[1:]],
        )


def _with_text(prompt: str, text: str) -> str:
    return f"{prompt}\n\n{text}"


def _talk_and_line(source: str, iid: str) -> tuple[int, int]:
    match = _QUESTION.fullmatch(iid)
    if match is None:
        raise ValueError(
            f"source {source}: question {iid!r} is not named QA_<talk>_<line>; check the revision"
        )
    return int(match[1]), int(match[2])


def _read_tasks(source: str, path: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Return task and iid of each sample, by language and sample id."""
    try:
        with gzip.open(path) as file:
            root = ET.parse(file).getroot()
    except (OSError, EOFError, ET.ParseError) as error:
        raise ValueError(
            f"source {source}, {path.name}: unreadable ({error}); fetch it again"
        ) from error
    tasks = {}
    for part in root.iter("task"):
        for sample in part.iter("sample"):
            found = [part.get("text_lang"), sample.get("id"), sample.get("task"), sample.get("iid")]
            if None in found:
                raise ValueError(
                    f"source {source}, {path.name}: a sample has {sorted(sample.keys())}, "
                    "expected id, iid, task inside a task with text_lang; check the revision"
                )
            language, number, task, iid = (str(value) for value in found)
            tasks[language, number] = (task, iid)
    return tasks
