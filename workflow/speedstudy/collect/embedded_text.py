"""Long texts that ship with the project, as gzipped JSON lines.

A line is ``{"key": str, "title": str, "text": str}``.

Options:
    tier: The tier of all of them.
    licence: Their licence.
    instruction: Text before each.
    windows: Whether a text may give several prompts, each from another line on.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier
from speedstudy.collect.json_lines import read_json_lines


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every line of every file.

    Raises:
        ValueError: A line is no JSON object with the columns above.
    """
    for path in files.values():
        for _, row in read_json_lines(source, path, {"key", "title", "text"}):
            yield LongText(
                text_id=identifier(source, row["key"]),
                tier=options["tier"],
                title=row["title"],
                opening=f"{options['instruction']}\n\n",
                text=row["text"],
                source=source,
                licence=options["licence"],
                windows=options["windows"],
            )
