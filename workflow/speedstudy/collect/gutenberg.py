"""Books of Project Gutenberg (hub sedthh/gutenberg_english), to be continued.

Parquet columns read: ``TEXT`` and ``METADATA`` (JSON with ``title`` and ``authors``). What stands
outside Project Gutenberg's own marks of start and end is left out. Rows are known by a hash of
their text.

Options:
    min_chars: Shorter books are left out.
    max_chars: Most characters of a book; more than prompts need is not kept.
    max_texts: The books with the lowest ids, at most so many.
    licence: Licence of the texts.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier, text_hash
from speedstudy.collect.long_rows import lowest_by_length
from speedstudy.collect.parquet_rows import read_parquet_rows

_START = re.compile(r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG[^\n]*\n")
_END = re.compile(r"\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG")


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every parquet file.

    Raises:
        ValueError: A file lacks a column.
    """
    texts = (
        _text(source, row, options)
        for path in files.values()
        for row in read_parquet_rows(source, path, ("TEXT", "METADATA"))
    )
    return lowest_by_length(texts, int(options["max_texts"]), [int(options["min_chars"])])


def _text(source: str, row: Mapping[str, Any], options: Mapping[str, Any]) -> LongText | Dropped:
    if not isinstance(row["TEXT"], str):
        return Dropped(src_id=source, reason="not_text")
    book = row["TEXT"].replace("\r\n", "\n")
    src_id = text_hash(book)
    start, end = _START.search(book), _END.search(book)
    book = book[start.end() if start else 0 : end.start() if end else None].strip()
    return LongText(
        text_id=identifier(source, src_id),
        tier="high_entropy",
        title=_title(row["METADATA"]) or src_id,
        opening="Continue this book:\n\n",
        text=book[: int(options["max_chars"])],
        source=source,
        licence=options["licence"],
        windows=True,
    )


def _title(metadata: str | None) -> str:
    try:
        known = json.loads(metadata or "{}")
    except ValueError:
        return ""
    parts = (known.get("authors"), known.get("title")) if isinstance(known, dict) else ()
    return ": ".join(str(part) for part in parts if part)
