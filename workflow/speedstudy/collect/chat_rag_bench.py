"""ChatRAG-Bench's conversations about tables and texts (hub nvidia/ChatRAG-Bench).

One JSON array a subset, ``data/<subset>/test.json``; columns used: ``messages`` (list of {role,
content}), ``ctxs`` (list of {title, text}). The paper takes hybridial and sqa. The first turn holds
all contexts and the first question, further user messages are further turns, and the assistant's
messages and the answers are left out: the target answers for itself.

Rows have no id: ``src_id`` is ``chatrag_bench_<subset>_<hash of the turns>`` (published: the row's
number). Options: none; which subsets is the artifact's list of files.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, identifier, new_candidate
from speedstudy.collect.table_files import read_table

_COLUMNS = {"messages": list, "ctxs": list}

# Space and all, as the reference implementation writes it.
_INSTRUCTION = "Please give a full and complete answer for the questions. "


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every conversation of every subset.

    Raises:
        ValueError: A row has other columns, a message has no role or text, or a context no text.
    """
    for name, path in files.items():
        subset = Path(name).parent.name
        for place, row in read_table(source, path, _COLUMNS):
            contexts = _texts(place, "ctxs", row["ctxs"], "text")
            users = [message for message in row["messages"] if _role(place, message) == "user"]
            questions = _texts(place, "messages", users, "content")
            if not questions or not contexts:
                reason = "no_turns" if not questions else "no_context"
                yield Dropped(src_id=place, reason=reason)
                continue
            context = "\n\n".join(contexts)
            first = f"{_INSTRUCTION}\n\nContext:\n{context}\n\nQuestion:\n{questions[0]}"
            turns = [first, *questions[1:]]
            yield new_candidate(
                source=source,
                src_id=f"chatrag_bench_{subset}_{identifier(subset, chr(0).join(turns))[:16]}",
                category="rag",
                sub_category="table_and_text_extraction",
                turns=turns,
            )


def _role(place: str, message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError(f"{place}: messages must be a list of {{role, content}}")
    return message["role"]


def _texts(place: str, column: str, entries: list[Any], key: str) -> list[str]:
    texts = [entry.get(key) if isinstance(entry, dict) else None for entry in entries]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{place}: an entry of {column} has no text under {key}")
    return [text for text in texts if isinstance(text, str)]
