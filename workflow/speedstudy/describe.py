"""Say what the selected prompts are: by category, source, difficulty, language and turns.

Needs selected prompts (parquet) and, for lengths, a tokenizer; leaves a table with the paper's own
numbers (Tables 2 and 3) beside ours.
"""

import argparse
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import pandas as pd

from speedstudy import paper
from speedstudy.coverage import in_words, read_note
from speedstudy.lengths import Encoder, load_encoder
from speedstudy.tables import read_rows_in_order, write_csv

LOG = logging.getLogger(__name__)

Row = Mapping[str, Any]
INPUT = ("question_id", "category", "sub_category", "turns", "source", "difficulty")
COLUMNS = {
    "by": "string",
    "name": "string",
    "rows": "Int64",
    "multiturn": "Int64",
    "most_turns": "Int64",
    "isl_mean": "float64",
    "isl_median": "float64",
    "paper_rows": "Int64",
    "paper_multiturn": "Int64",
    "paper_isl_mean": "float64",
    "paper_isl_median": "float64",
    "tokenizer": "string",
    "coverage": "string",
}
# A language's code, or a pair of them, before what is asked: `de`, `th_math`, `ru-zh`.
_LANGUAGES = re.compile(r"([a-z]{2,3})(?:-([a-z]{2,3}))?(?:_.*)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy describe``."""
    parser.add_argument("--prompts", type=Path, required=True, help="selected prompts (parquet)")
    parser.add_argument(
        "--tokenizer", help="o200k_base (the paper), a folder or a tokenizer.json; none: no lengths"
    )
    parser.add_argument("--out", type=Path, help="CSV to write besides")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy describe``: print the table; returns totals beside the paper's."""
    rows = read_rows_in_order(arguments.prompts, INPUT)
    encoder = load_encoder(arguments.tokenizer) if arguments.tokenizer else None
    table = describe(rows, encoder, in_words(read_note(arguments.prompts)))
    if arguments.out is not None:
        write_csv(arguments.out, table)
    shown = table.drop(columns=["tokenizer", "coverage"]).round(1).astype(object)
    LOG.info("\n%s", shown.where(shown.notna(), "").to_string(index=False))
    return {
        "rows": len(rows),
        "sources": int((table["by"] == "source").sum()),
        "languages": int((table["by"] == "language").sum()),
        "most_turns": max((len(row["turns"]) for row in rows), default=0),
        "paper": {
            "rows": paper.ROWS,
            "sources": paper.SOURCES_QUALITATIVE,
            "languages": paper.LANGUAGES,
            "most_turns": paper.MOST_TURNS,
        },
    }


def describe(
    rows: Sequence[Row], encoder: Encoder | None = None, coverage: str | None = None
) -> pd.DataFrame:
    """Count and measure the rows, all together and by each of their properties.

    ISL is the paper's: the tokens of a row's user turns, added up, without a chat template. Its
    overall mean is, as in the paper, the mean of the categories' means.

    Args:
        rows: ``category``, ``sub_category``, ``turns``, ``source``, ``difficulty``.
        encoder: What counts the tokens; without it lengths are null.
        coverage: What the prompts lack, repeated in every row.

    Returns:
        ``COLUMNS``: first ``all``, then by ``category``, ``source`` and ``difficulty`` in the order
        of the rows, by ``language`` (of multilingual rows; a translation counts for both), by
        ``turns``. Rows without the property are in no row of it.
    """
    lengths = [_isl(row, encoder) for row in rows]
    table = [_line("all", "all", rows, lengths)]
    properties: dict[str, Callable[[Row], Iterable[str]]] = {
        "category": lambda row: [row["category"]],
        "source": lambda row: [row["source"]],
        "difficulty": lambda row: [row["difficulty"]] if row["difficulty"] else [],
        "language": languages,
        "turns": lambda row: [str(len(row["turns"]))],
    }
    for by, names_of in properties.items():
        groups: dict[str, list[int]] = {}
        for position, row in enumerate(rows):
            for name in names_of(row):
                groups.setdefault(name, []).append(position)
        table += [
            _line(by, name, [rows[i] for i in members], [lengths[i] for i in members])
            for name, members in groups.items()
        ]
    categories = [line["isl_mean"] for line in table if line["by"] == "category"]
    if encoder is not None and categories:
        table[0]["isl_mean"] = mean(categories)
    for line in table:
        line |= _of_the_paper(line["by"], line["name"])
        line |= {"tokenizer": encoder and encoder.name, "coverage": coverage}
    return pd.DataFrame(table, columns=[*COLUMNS]).astype(COLUMNS)


def languages(row: Row) -> tuple[str, ...]:
    """Return the codes of the languages of a multilingual row, from its ``sub_category``.

    Of other rows nothing is known: they give none.
    """
    found = _LANGUAGES.fullmatch(row["sub_category"] or "")
    if row["category"] != "multilingual" or found is None:
        return ()
    return tuple(code for code in found.groups() if code)


def _isl(row: Row, encoder: Encoder | None) -> int | None:
    return None if encoder is None else sum(map(encoder.count, row["turns"]))


def _line(by: str, name: str, rows: Sequence[Row], lengths: Sequence[int | None]) -> dict[str, Any]:
    known = [length for length in lengths if length is not None]
    return {
        "by": by,
        "name": name,
        "rows": len(rows),
        "multiturn": sum(len(row["turns"]) > 1 for row in rows),
        "most_turns": max((len(row["turns"]) for row in rows), default=None),
        "isl_mean": mean(known) if known else None,
        "isl_median": median(known) if known else None,
    }


def _of_the_paper(by: str, name: str) -> dict[str, Any]:
    if by == "all":
        isl = paper.ISL_OVERALL
        line = {"paper_rows": paper.ROWS, "paper_multiturn": sum(paper.MULTITURN.values())}
    elif by == "category" and name in paper.ISL:
        isl = paper.ISL[name]
        line = {
            "paper_rows": paper.ROWS_PER_CATEGORY,
            "paper_multiturn": paper.MULTITURN[name],
        }
    elif by == "source":
        return {"paper_rows": paper.ROWS_BY_SOURCE.get(name)}
    else:
        return {}
    return {**line, "paper_isl_mean": isl[0], "paper_isl_median": isl[1]}
