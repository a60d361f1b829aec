"""Write a split of ours as other tools read SPEED-Bench.

Needs selected prompts or a bucket (parquet); leaves one split in one of three layouts, so that
vLLM, SGLang, AIPerf and specdec_bench can be run on exactly the prompts of a study:

* ``hub``: ``<config>/test-00000-of-00001.parquet`` and a ``README.md`` that lists the configs,
  which ``datasets.load_dataset(folder, config)`` opens as it opens the published repository;
* ``model-optimizer``: ``<config>/test.parquet``, what ``prepare_data.py`` writes into
  ``data/speed`` and specdec_bench reads;
* ``nemo``: ``<config>.jsonl`` with ``messages`` in place of ``turns``, what NeMo-Skills' script
  writes and AIPerf reads.

All three have the columns of the published data set. ``multiturn`` is true where there is more
than one turn; the published file is not consistent in this.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speedstudy.collect.candidates import CANDIDATES_SCHEMA
from speedstudy.tables import write_rows

LOG = logging.getLogger(__name__)

LAYOUTS = ("hub", "model-optimizer", "nemo")
HUB_FILE = "test-00000-of-00001.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy export-prompts``."""
    parser.add_argument(
        "--prompts", type=Path, required=True, help="results/prompts/* or results/buckets/*.parquet"
    )
    parser.add_argument("--layout", choices=LAYOUTS, required=True, help="whose layout")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy export-prompts``; returns the config's name, its file and its rows."""
    if not arguments.prompts.is_file():
        raise ValueError(f"--prompts {arguments.prompts}: no such file")
    table = pq.read_table(arguments.prompts)
    config, rows = config_name(table), published_rows(table)
    path = export(config, rows, arguments.layout, arguments.out)
    LOG.info("%d rows of %s in %s", len(rows), config, path)
    return {"config": config, "file": str(path), "rows": len(rows)}


def config_name(table: pa.Table) -> str:
    """Return the data set's name for the split: ``qualitative`` or ``throughput_<N>k``.

    A bucket whose length is no multiple of 1,000 tokens is named after its tokens.

    Raises:
        ValueError: The table has no rows.
    """
    if table.num_rows == 0:
        raise ValueError("the split has no rows to write")
    if "n_tokens" not in table.column_names:
        return "qualitative"
    length = int(table.column("n_tokens")[0].as_py())
    return f"throughput_{length}" if length % 1000 else f"throughput_{length // 1000}k"


def published_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows with the eight columns of the published data set, in the table's order.

    Rows of a bucket have no ``src_id``; the title that names the text in its source stands for it.

    Raises:
        ValueError: A column is missing.
    """
    missing = [
        name
        for name in ("question_id", "category", "turns", "source")
        if name not in table.column_names
    ]
    if missing:
        raise ValueError(
            f"no column {', '.join(missing)}; give a file of speedstudy select or bucket"
        )
    return [
        {
            "question_id": row["question_id"],
            "category": row["category"],
            "sub_category": row.get("sub_category") or "",
            "turns": row["turns"],
            "source": row["source"],
            "src_id": row.get("src_id") or row.get("title") or "",
            "difficulty": row.get("difficulty") or "",
            "multiturn": len(row["turns"]) > 1,
        }
        for row in table.to_pylist()
    ]


def export(config: str, rows: Sequence[Mapping[str, Any]], layout: str, out: Path) -> Path:
    """Write the rows in a layout below ``out``; returns the file, which appears whole."""
    if layout == "nemo":
        return _write_messages(out / f"{config}.jsonl", rows)
    if layout == "model-optimizer":
        return _write_parquet(out / config / "test.parquet", rows)
    path = _write_parquet(out / config / HUB_FILE, rows)
    configs = sorted(found.parent.name for found in out.glob(f"*/{HUB_FILE}"))
    (out / "README.md").write_text(_data_card(configs), encoding="utf-8")
    return path


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, pa.Table.from_pylist([*rows], schema=CANDIDATES_SCHEMA))
    return path


def _write_messages(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            messages = [{"role": "user", "content": turn} for turn in row["turns"]]
            others = {name: value for name, value in row.items() if name != "turns"}
            file.write(json.dumps({**others, "messages": messages}, ensure_ascii=False) + "\n")
    return temporary.replace(path)


def _data_card(configs: Sequence[str]) -> str:
    """Return the README whose header tells ``datasets`` which file is which config."""
    listed = "".join(
        f"- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}/{HUB_FILE}\n"
        for config in configs
    )
    return (
        f"---\nconfigs:\n{listed}---\n\nPrompts selected by speedstudy, in the layout of "
        "nvidia/SPEED-Bench. Each row keeps its source's terms: look before you publish them.\n"
    )
