"""MMATH's competition problems in several languages (GitHub RUCAIBox/MMATH).

One JSON array a language, ``mmath/<lang>.json``; columns used: ``question``, ``lang``, ``gid`` (0
to 373, the same problem in every language). The question is the prompt as it is. The published
``src_id`` is ``mmath_<gid>``, the same in every language; here the language is part of it.
Options: none; which languages is the artifact's list of files.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, new_candidate
from speedstudy.collect.table_files import read_table

_COLUMNS = {"question": str, "lang": str, "gid": int}


def read(source: str, files: Mapping[str, Path], options: Mapping[str, Any]) -> Iterator[Candidate]:
    """Read every problem of every language.

    Raises:
        ValueError: A row has other columns, or another language than its file's name.
    """
    for name, path in files.items():
        language = Path(name).name.split(".")[0]
        for place, row in read_table(source, path, _COLUMNS):
            if row["lang"] != language:
                raise ValueError(f"{place}: lang is {row['lang']!r}, expected {language!r}")
            yield new_candidate(
                source=source,
                src_id=f"mmath_{language}_{row['gid']}",
                category="multilingual",
                sub_category=f"{language}_math",
                turns=[row["question"]],
            )
