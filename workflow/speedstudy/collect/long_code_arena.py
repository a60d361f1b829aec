"""Long Code Arena (hub JetBrains-Research/lca-project-level-code-completion): fill in lines.

Parquet columns read: ``repo`` (``owner__name``), ``commit_hash``, ``completion_file``
(``filename``, ``content``), ``completion_lines`` (by class, numbers of lines from 0) and
``repo_snapshot`` (lists ``filename`` and ``content``). A prompt ends in the file, in which
``[COMPLETE]`` stands for each line to write; before it stand other files of the repository, those
in the nearest folders last.

Options:
    line_classes: Classes of lines that are marked.
    extensions: Ends of the names of other files that are shown.
    max_chars: Most characters of other files; those farthest away are cut first.
    max_texts, lengths: See ``lowest_by_length``.
    licences_file, licences_sha256, licences_allowed: See ``repo_licences``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier
from speedstudy.collect.long_rows import lowest_by_length
from speedstudy.collect.repo_licences import LicensedRow, read_licensed
from speedstudy.collect.table_files import ColumnType

MARK = "[COMPLETE]"

_COLUMNS: dict[str, ColumnType] = {
    "repo": str,
    "commit_hash": str,
    "completion_file": dict,
    "completion_lines": dict,
    "repo_snapshot": dict,
}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every parquet file; a row without a marked line is dropped.

    Raises:
        ValueError: A file lacks a column, or the file of licences cannot be used.
    """
    rows = read_licensed(source, files, options, _COLUMNS, _identify)
    texts = (row if isinstance(row, Dropped) else _text(source, row, options) for row in rows)
    return lowest_by_length(texts, int(options["max_texts"]), options["lengths"])


def _identify(row: Mapping[str, Any]) -> tuple[str, str]:
    repo = row["repo"].replace("__", "/", 1)
    return repo, f"{repo}@{row['commit_hash']}:{row['completion_file']['filename']}"


def _text(source: str, one: LicensedRow, options: Mapping[str, Any]) -> LongText | Dropped:
    row, repo, path = one.row, one.repo, one.row["completion_file"]["filename"]
    marked = _marked(row, options["line_classes"])
    if marked is None:
        return Dropped(src_id=one.src_id, reason="no_line_to_complete")
    return LongText(
        text_id=identifier(source, one.src_id),
        tier="low_entropy",
        title=f"{repo}/{path}",
        opening=(
            f"Here are files of the repository {repo}. In the last one, {MARK} stands for "
            "each line that is missing. Write that file with every missing line.\n\n"
        ),
        text=_context(row["repo_snapshot"], path, options),
        closing=f"# Path: {path}\n{marked}\n",
        source=source,
        licence=one.licence,
    )


def _marked(row: Mapping[str, Any], classes: list[str]) -> str | None:
    lines = row["completion_file"]["content"].split("\n")
    numbers = {number for name in classes for number in row["completion_lines"].get(name) or ()}
    inside = [number for number in numbers if 0 <= number < len(lines)]
    for number in inside:
        line = lines[number]
        lines[number] = line[: len(line) - len(line.lstrip())] + MARK
    return "\n".join(lines) if inside else None


def _context(snapshot: Mapping[str, Any], name: str, options: Mapping[str, Any]) -> str:
    """Join the other files, from the farthest folder to the file's own; its own text never."""
    extensions = tuple(options["extensions"])
    shown = [
        (_near(other, name), other, content)
        for other, content in zip(snapshot["filename"], snapshot["content"], strict=True)
        if other != name and other.endswith(extensions) and content
    ]
    joined = "".join(f"# Path: {other}\n{content}\n\n" for _, other, content in sorted(shown))
    return joined[-int(options["max_chars"]) :]


def _near(one: str, other: str) -> int:
    """Return how many folders two paths share from the root on."""
    pairs = zip(PurePosixPath(one).parent.parts, PurePosixPath(other).parent.parts, strict=False)
    shared = 0
    for mine, yours in pairs:
        if mine != yours:
            break
        shared += 1
    return shared
