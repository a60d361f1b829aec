"""RepoBench v1.1 (hub tianyang/repobench_python_v1.1, ..._java_v1.1): complete a file.

Parquet columns read: ``repo_name``, ``file_path``, ``context`` (list of ``path`` and ``snippet``),
``import_statement``, ``cropped_code``, ``gold_snippet_index``. A prompt ends in the file as far as
it is written; before it stand the snippets of other files. The one that the next line uses stands
last, so that it is the last to be cut. Rows have no id: repository, path and a hash of the code.

Options:
    language: Named in the instruction.
    comment: What begins a comment.
    max_texts, lengths: See ``lowest_by_length``.
    licences_file, licences_sha256, licences_allowed: See ``repo_licences``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier, text_hash
from speedstudy.collect.long_rows import lowest_by_length
from speedstudy.collect.repo_licences import LicensedRow, read_licensed
from speedstudy.collect.table_files import ColumnType

_COLUMNS: dict[str, ColumnType] = {
    "repo_name": str,
    "file_path": str,
    "context": list,
    "import_statement": str,
    "cropped_code": str,
    "gold_snippet_index": int,
}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every parquet file.

    Raises:
        ValueError: A file lacks a column, or the file of licences cannot be used.
    """
    rows = read_licensed(source, files, options, _COLUMNS, _identify)
    texts = (row if isinstance(row, Dropped) else _text(source, row, options) for row in rows)
    return lowest_by_length(texts, int(options["max_texts"]), options["lengths"])


def _identify(row: Mapping[str, Any]) -> tuple[str, str]:
    repo = row["repo_name"]
    code = text_hash(row["import_statement"], row["cropped_code"])
    return repo, f"{repo}:{row['file_path']}:{code}"


def _text(source: str, one: LicensedRow, options: Mapping[str, Any]) -> LongText:
    row, repo, path = one.row, one.repo, one.row["file_path"]
    head = f"{options['comment']} Path: "
    return LongText(
        text_id=identifier(source, one.src_id),
        tier="low_entropy",
        title=f"{repo}/{path}",
        opening=(
            f"Here are parts of several files of the repository {repo}, then the beginning "
            f"of one of its {options['language']} files. Continue that file.\n\n"
        ),
        text="".join(f"{head}{shown['path']}\n{shown['snippet']}\n\n" for shown in _context(row)),
        closing=f"{head}{path}\n{row['import_statement']}\n\n{row['cropped_code']}\n",
        source=source,
        licence=one.licence,
    )


def _context(row: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the snippets, the one that is needed next last (index -1: none is)."""
    gold = row["gold_snippet_index"]
    return sorted(row["context"], key=lambda one: gold >= 0 and one is row["context"][gold])
