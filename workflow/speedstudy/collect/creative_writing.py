"""Creative Writing v3 (GitHub EQ-bench/creative-writing-bench): prompts by seed modifier.

One JSON object, id to ``category`` (the genre), ``writing_prompt`` with ``<SEED>`` marks and
``seed_modifiers``; each modifier gives one candidate, at every mark. Options: none.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, identifier, new_candidate
from speedstudy.collect.json_file import check_columns, read_json

_COLUMNS = {"category", "writing_prompt", "seed_modifiers"}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file; ``src_id`` is ``creative_writing_v3_<id>_<hash of the modifier>``.

    Raises:
        ValueError: A file is no object of objects with the columns above.
    """
    for path in files.values():
        for key, row in read_json(source, path, dict).items():
            check_columns(f"source {source}: {path}, prompt {key}", row, _COLUMNS)
            prompt, modifiers = row["writing_prompt"], row["seed_modifiers"]
            if not isinstance(prompt, str) or not isinstance(modifiers, list):
                yield Dropped(src_id=f"creative_writing_v3_{key}", reason="damaged_row")
                continue
            for modifier in map(str, modifiers):
                yield new_candidate(
                    source=source,
                    src_id=f"creative_writing_v3_{key}_{identifier(source, modifier)[:8]}",
                    category="writing",
                    sub_category=str(row["category"] or ""),
                    turns=[prompt.replace("<SEED>", modifier)],
                )
