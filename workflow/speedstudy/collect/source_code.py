"""Long texts of the low-entropy tier: source files of a wheel, each as it is.

Options:
    tier, licence: Of all the texts.
    instruction: Text before each file, or part of it: a file may give several prompts.
    include, exclude: Lists of patterns of member paths (``fnmatch``; ``*`` also matches ``/``).
    min_chars: Shorter files are left out; longer ones are not cut here.
    max_texts: The files with the lowest id are kept, at most so many.
"""

import heapq
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read the matching members of each wheel; a text is headed by its file's path."""
    texts: list[LongText] = []
    for path in files.values():
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.namelist():
                if not _wanted(member, options):
                    continue
                try:
                    code = wheel.read(member).decode("utf-8")
                except UnicodeDecodeError:
                    yield Dropped(src_id=member, reason="broken_text")
                    continue
                if len(code) < int(options["min_chars"]):
                    yield Dropped(src_id=member, reason="under_min_chars")
                    continue
                texts.append(
                    LongText(
                        text_id=identifier(source, member),
                        tier=options["tier"],
                        title=member,
                        opening=f"{options['instruction']}\n\n# {member}\n",
                        text=code,
                        source=source,
                        licence=options["licence"],
                        windows=True,
                    )
                )
    kept = heapq.nsmallest(int(options["max_texts"]), texts, key=lambda text: text.text_id)
    yield from kept
    for _ in range(len(texts) - len(kept)):
        yield Dropped(src_id=source, reason="over_quota")


def _wanted(member: str, options: Mapping[str, Any]) -> bool:
    included = any(fnmatchcase(member, pattern) for pattern in options["include"])
    return included and not any(fnmatchcase(member, pattern) for pattern in options["exclude"])
