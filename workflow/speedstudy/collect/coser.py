"""CoSER's test set (hub Neph0s/CoSER, ``test/test_set.json``): act in a scene of a book.

A JSON array; read of each row are ``book``, ``scenario``, ``character_profiles`` (name to text or
null), ``major_characters`` and ``key_characters`` (objects with ``name`` and, by release,
``motivation`` or ``thought``). The prompt holds the paper's parts in our own words. Options:

    books: Titles in the public domain; the rows of other books are left out, as in the paper.

The character is drawn as in the paper's code, which starts its generator anew for each row; here
only among characters with a profile, since "None" is no description.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from speedstudy.collect.candidates import Candidate, Dropped, identifier, new_candidate
from speedstudy.collect.json_file import check_columns, read_json

SEED = 12347

_COLUMNS = {"book", "scenario", "character_profiles", "major_characters", "key_characters"}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file; ``src_id`` is the book and a hash of the scenario.

    Raises:
        ValueError: A file is no array of objects, or a row lacks a column.
    """
    for path in files.values():
        for number, row in enumerate(read_json(source, path, list)):
            check_columns(f"source {source}: {path}, row {number}", row, _COLUMNS)
            src_id = f"coser_{row['book']}_{identifier(source, str(row['scenario']))[:8]}"
            if row["book"] not in options["books"]:
                yield Dropped(src_id=src_id, reason="not_public_domain")
                continue
            if not _is_whole(row):
                yield Dropped(src_id=src_id, reason="damaged_row")
                continue
            profiles = {name: text for name, text in row["character_profiles"].items() if text}
            majors = [name for name in row["major_characters"] if name in profiles]
            if not majors:
                yield Dropped(src_id=src_id, reason="no_profile")
                continue
            character = str(np.random.default_rng(SEED).choice(majors))
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="roleplay",
                turns=[_prompt(row, character, profiles)],
            )


def _is_whole(row: Mapping[str, Any]) -> bool:
    return (
        isinstance(row["scenario"], str)
        and bool(row["scenario"].strip())
        and isinstance(row["character_profiles"], dict)
        and isinstance(row["major_characters"], list)
        and isinstance(row["key_characters"], list)
    )


def _prompt(row: Mapping[str, Any], character: str, profiles: Mapping[str, str]) -> str:
    others = "\n\n".join(f"{name}: {text}" for name, text in profiles.items() if name != character)
    parts = [
        f"Act as {character} in a scene of the book {row['book']}.",
        f"## Who {character} is\n{profiles[character]}",
        f"## The scene\n{row['scenario']}",
    ]
    if others:
        parts.append(f"## The other characters\n{others}")
    motive = _motive(row["key_characters"], character)
    if motive:
        parts.append(f"## What goes on inside {character}\n{motive}")
    parts.append(
        f"## How to answer\nWrite what {character} thinks, says and does. Thoughts, which nobody "
        "else hears, stand in [square brackets]; actions, which everybody sees, in (parentheses); "
        "the rest is speech."
    )
    return "\n\n".join(parts)


def _motive(key_characters: list[Any], character: str) -> str:
    for one in key_characters:
        if isinstance(one, dict) and one.get("name") == character:
            return str(one.get("motivation") or one.get("thought") or "")
    return ""
