"""OPUS-100's test sentences (hub Helsinki-NLP/opus-100), as translation prompts.

One parquet file a language pair, ``<xx>-<yy>/test-*.parquet``, with one column ``translation``, a
mapping of both languages to their text. The prompt asks for a translation from the first language
of the pair to the second, and holds the first language's text alone. The reference implementation
formats the whole mapping into its template, so that the prompt can show the reference
translation; here the second language's text is taken out of the row before a prompt is made.

Rows have no id: ``src_id`` is ``opus100_<pair>_<hash of the text to translate>`` (published: the
row's number). Options: none; which pairs is the artifact's list of files.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, identifier, new_candidate
from speedstudy.collect.language_names import LANGUAGE_NAMES
from speedstudy.collect.table_files import read_table


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every sentence of every pair.

    Raises:
        ValueError: A file lies in no folder named like a pair, a language has no name in our
            table, or a row has other columns or languages.
    """
    for name, path in files.items():
        pair = Path(name).parent.name
        languages = pair.split("-")
        if len(languages) != 2 or not all(code in LANGUAGE_NAMES for code in languages):
            raise ValueError(
                f"source {source}: {name} must lie in a folder named like `de-en`, of two codes "
                "in speedstudy/collect/language_names.py"
            )
        origin, target = languages
        instruction = (
            f"Translate the following text from {LANGUAGE_NAMES[origin]} "
            f"to {LANGUAGE_NAMES[target]}:"
        )
        for place, row in read_table(source, path, {"translation": dict}):
            text = _source_side(place, row["translation"], origin, target)
            src_id = f"opus100_{pair}_{identifier(pair, text)[:16]}"
            if not text.strip():
                yield Dropped(src_id=src_id, reason="empty")
                continue
            yield new_candidate(
                source=source,
                src_id=src_id,
                category="multilingual",
                sub_category=pair,
                turns=[f"{instruction}\n\n{text}"],
            )


def _source_side(place: str, translation: Mapping[str, Any], origin: str, target: str) -> str:
    """Return the text to translate; nothing else of a row leaves this function."""
    if set(translation) != {origin, target}:
        raise ValueError(
            f"{place}: translation has {sorted(translation)}, expected {origin} and {target}; "
            "check the file's revision"
        )
    text = translation[origin]
    if not isinstance(text, str):
        raise ValueError(f"{place}: the {origin} side is {type(text).__name__}, expected text")
    return text
