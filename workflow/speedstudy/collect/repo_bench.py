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

from speedstudy.collect.candidates import Dropped, LongText, identifier
from speedstudy.collect.long_rows import lowest_by_length, text_hash
from speedstudy.collect.repo_licences import licence_fault, read_licences
from speedstudy.collect.table_files import ColumnType, read_table

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
    texts = _texts(source, files, options)
    return lowest_by_length(texts, int(options["max_texts"]), options["lengths"])


def _texts(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    licences = read_licences(source, options)
    for path in files.values():
        for _, row in read_table(source, path, _COLUMNS):
            repo, file_path, code = row["repo_name"], row["file_path"], row["cropped_code"]
            src_id = f"{repo}:{file_path}:{text_hash(row['import_statement'], code)}"
            licence = licences.get(repo.lower())
            reason = licence_fault(licence, options)
            if licence is None or reason is not None:
                yield Dropped(src_id=src_id, reason=reason or "licence_unknown")
                continue
            head = f"{options['comment']} Path: "
            yield LongText(
                text_id=identifier(source, src_id),
                tier="low_entropy",
                title=f"{repo}/{file_path}",
                opening=(
                    f"Here are parts of several files of the repository {repo}, then the beginning "
                    f"of one of its {options['language']} files. Continue that file.\n\n"
                ),
                text="".join(f"{head}{one['path']}\n{one['snippet']}\n\n" for one in _context(row)),
                closing=f"{head}{file_path}\n{row['import_statement']}\n\n{code}\n",
                source=source,
                licence=licence,
            )


def _context(row: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the snippets, the one that is needed next last (index -1: none is)."""
    gold = row["gold_snippet_index"]
    return sorted(row["context"], key=lambda one: gold >= 0 and one is row["context"][gold])
