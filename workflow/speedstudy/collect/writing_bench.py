"""WritingBench (GitHub X-PLUG/WritingBench): English queries as they are.

Columns read: ``index``, ``domain1``, ``query`` and the one that names the language. Options:

    lang_column: The column that says ``en``; null for the benchmark's subset files, which have
        none: there a query without a Chinese character counts as English.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.json_lines import read_json_lines

_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file; ``src_id`` is ``writing_bench_<index>``.

    Raises:
        ValueError: A line is no JSON object or lacks a column.
    """
    lang_column = options["lang_column"]
    columns = {"index", "domain1", "query"} | ({lang_column} if lang_column else set())
    for path in files.values():
        for _, row in read_json_lines(source, path, columns):
            src_id = f"writing_bench_{row['index']}"
            if lang_column:
                english = row[lang_column] == "en"
            else:
                english = not _CHINESE.search(str(row["query"]))
            if not english:
                yield Dropped(src_id=src_id, reason="not_english")
                continue
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="writing",
                sub_category=str(row["domain1"] or ""),
                turns=[row["query"]],
            )
