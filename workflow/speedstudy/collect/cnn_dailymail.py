"""CNN/DailyMail's test articles (hub abisee/cnn_dailymail, configuration 3.0.0).

Columns used: ``id``, ``article``; the reference summary (``highlights``) is not read. ``src_id`` is
the published one, the article's id.

Options: ``instruction``, which stands before the article.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, new_candidate
from speedstudy.collect.table_files import read_table

_COLUMNS = {"id": str, "article": str}


def read(source: str, files: Mapping[str, Path], options: Mapping[str, Any]) -> Iterator[Candidate]:
    """Read every article.

    Raises:
        ValueError: A row has other columns.
    """
    for path in files.values():
        for _, row in read_table(source, path, _COLUMNS):
            yield new_candidate(
                source=source,
                src_id=row["id"],
                category="summarization",
                turns=[f"{options['instruction']}\n\n{row['article']}"],
            )
