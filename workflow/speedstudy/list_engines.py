"""Say which engine has which drafting method, since which version and how.

The table in ``docs/engines.md`` is this one: ``speedstudy list-engines --write docs/engines.md``.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from speedstudy.engines import ENGINES
from speedstudy.engines.kind import EngineKind
from speedstudy.schema.drafters import Method

START = "<!-- written by `speedstudy list-engines --write docs/engines.md` -->\n"
END = "<!-- end -->\n"


def methods_table(kinds: Iterable[EngineKind]) -> str:
    """Return a Markdown table: a row for each engine and method, engines in the given order.

    A method that an engine has not is a row too, so that its absence is said.
    """
    lines = [
        "| engine | method | since | how | trees | pretended acceptance length |",
        "|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        for method in get_args(Method):
            support = kind.methods.get(method)
            if support is None:
                lines.append(f"| {kind.name} | {method} | no | | | |")
                continue
            trees, synthetic = "yes" if support.tree else "", support.synthetic or ""
            lines.append(
                f"| {kind.name} | {method} | {support.since} | {support.how} | {trees} "
                f"| {synthetic} |"
            )
    return "\n".join(lines) + "\n"


def sources_table(kinds: Iterable[EngineKind]) -> str:
    """Return a Markdown table: what each engine reads, speaks and tells of acceptance."""
    lines = ["| engine | model format | dialect | acceptance from |", "|---|---|---|---|"]
    lines += [f"| {k.name} | {k.model_format} | {k.dialect} | {k.acceptance} |" for k in kinds]
    return "\n".join(lines) + "\n"


def written_into(page: str, tables: str) -> str:
    """Return a page with what is between its two markers replaced.

    Raises:
        ValueError: The page has not exactly one pair of markers.
    """
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end or START in after:
        raise ValueError(f"the page needs one pair of lines {START.strip()} and {END.strip()}")
    return f"{before}{START}\n{tables}\n{END}{after}"


def tables() -> str:
    """Return both tables as the documentation has them."""
    kinds = [ENGINES[name] for name in sorted(ENGINES)]
    return f"{sources_table(kinds)}\n{methods_table(kinds)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy list-engines``."""
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what each engine has by method, with the tables written if a page is given.

    Raises:
        ValueError: The page cannot be read or has no place for the tables.
    """
    if arguments.write is not None:
        if not arguments.write.is_file():
            raise ValueError(f"--write {arguments.write}: no such page")
        page = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(written_into(page, tables()), encoding="utf-8")
    return {
        name: {method: asdict(support) for method, support in kind.methods.items()}
        for name, kind in ENGINES.items()
    }


def text(_: Mapping[str, Any]) -> str:
    """Return the tables."""
    return tables()
