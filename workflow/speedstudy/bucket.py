"""Prompts of one exact length in tokens: the paper's throughput split (section 6).

Needs long texts (parquet) and the tokenizer that counts; leaves ``per_tier`` prompts a tier. The
length is that of the text itself; a chat template comes on top of it.
"""

import argparse
import hashlib
import itertools
import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from speedstudy.lengths import Encoder, cut, fit, load_encoder
from speedstudy.tables import TURN_SEPARATOR, read_rows, write_rows

BUCKET_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("category", pa.string()),
        ("turns", pa.list_(pa.string())),
        ("source", pa.string()),
        ("title", pa.string()),
        ("licence", pa.string()),
        ("n_tokens", pa.int64()),
    ]
)

log = logging.getLogger(__name__)


def make_bucket(texts: pa.Table, encoder: Encoder, config: Mapping[str, Any]) -> pa.Table:
    """Cut ``per_tier`` prompts of ``length`` tokens for every tier.

    Within a tier, texts come in an order that depends on the seed and each text's own id. A text
    that is long enough gives one prompt, its beginning. If those do not suffice, the short ones
    are joined, neighbours of one source first to last, until they are long enough.

    Args:
        texts: Columns ``text_id``, ``tier``, ``title``, ``text``, ``source``, ``licence``.
        encoder: What counts the tokens.
        config: ``name``, ``length``, ``per_tier``, ``tiers`` (in the output's order), ``seed``.

    Returns:
        Rows of ``BUCKET_SCHEMA``: the tier is the category, the id that of the (first) text.

    Raises:
        ValueError: A tier does not have enough text.
    """
    length, per_tier = config["length"], config["per_tier"]
    by_tier: dict[str, list[dict[str, Any]]] = {tier: [] for tier in config["tiers"]}
    for row in texts.to_pylist():
        if row["tier"] in by_tier:
            by_tier[row["tier"]].append(row)
    prompts = []
    bar = tqdm(total=per_tier * len(by_tier), unit="prompt", desc=f"bucket {config['name']}")
    with bar:
        for tier, rows in by_tier.items():
            rows.sort(key=lambda row: _order(config["seed"], row["text_id"]))
            made = 0
            for row, text in itertools.islice(_cut_texts(rows, encoder, length), per_tier):
                prompts.append(
                    {
                        "question_id": row["text_id"],
                        "category": tier,
                        "turns": [text],
                        "source": row["source"],
                        "title": row["title"],
                        "licence": row["licence"],
                        "n_tokens": length,
                    }
                )
                bar.update()
                made += 1
            if made < per_tier:
                raise ValueError(
                    f"bucket {config['name']}: tier {tier} needs {per_tier} prompts of {length} "
                    f"tokens and its {len(rows)} texts give {made}; lower per_tier or add a source "
                    "of long text for it"
                )
    return pa.Table.from_pylist(prompts, schema=BUCKET_SCHEMA)


def _order(seed: int, text_id: str) -> str:
    return hashlib.sha256(f"{seed}:{text_id}".encode()).hexdigest()


def _cut_texts(
    rows: Sequence[dict[str, Any]], encoder: Encoder, length: int
) -> Iterator[tuple[dict[str, Any], str]]:
    """Give the rows that are long enough with their cut text, then those joined of shorter ones."""
    short: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        text = cut(row["text"], encoder, length)
        if text is None:
            short[row["source"]].append(row)
        else:
            yield row, text
    for source in sorted(short):
        first, joined = None, ""
        for row in sorted(short[source], key=_neighbours):
            first = first or row
            joined = joined + TURN_SEPARATOR + row["text"] if joined else row["text"]
            text = cut(joined, encoder, length)
            if text is not None:
                yield first, text
                first, joined = None, ""


def _neighbours(row: Mapping[str, Any]) -> tuple[list[tuple[int, str]], str]:
    """Sort titles as people do: chapter 9 before chapter 10."""
    parts = re.findall(r"\d+|\D+", row["title"])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts], row["text_id"]


def cut_rows(texts: Path, encoder: Encoder, length: int, out: Path) -> int:
    """Fit every text of a JSON Lines file, one at a time; ``out`` appears whole or not at all.

    Rows are ``{"id", "text"}``; written are ``{"id", "text", "n_tokens"}`` in the same order.

    Returns:
        The number of rows.

    Raises:
        ValueError: A row is not of that form, or cannot be fitted; the message names the line.
    """
    temporary = out.with_name(out.name + ".tmp")
    count = 0
    with texts.open(encoding="utf-8") as lines, temporary.open("w", encoding="utf-8") as file:
        for number, line in enumerate(tqdm(lines, unit="text", desc="bucket"), start=1):
            if not line.strip():
                continue
            row = _parsed(line, f"{texts}, line {number}")
            try:
                text = fit(row["text"], encoder, length)
            except ValueError as error:
                raise ValueError(f"{texts}, line {number}, id {row['id']!r}: {error}") from error
            answer = {"id": row["id"], "text": text, "n_tokens": length}
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            count += 1
    temporary.replace(out)
    return count


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict) or "id" not in row or not isinstance(row.get("text"), str):
        raise ValueError(f'{place}: a row is {{"id": ..., "text": "..."}}')
    try:
        row["text"].encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}, id {row['id']!r}: text is not Unicode: {error}") from error
    return row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy bucket``: of a text file, or of the rule."""
    parser.add_argument("--texts", type=Path, nargs="+", required=True, help="JSONL, or parquet")
    parser.add_argument(
        "--tokenizer", required=True, help="o200k_base, a folder or a tokenizer.json"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSONL, or parquet")
    parser.add_argument("--length", type=int, help="tokens of every text (without --config)")
    parser.add_argument("--config", type=json.loads, help="the bucket's slice, as JSON")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy bucket``; returns the number of rows and their length."""
    for path in arguments.texts:
        if not path.is_file():
            raise ValueError(f"--texts {path}: no such file")
    if arguments.config is not None:
        encoder = load_encoder(arguments.tokenizer)
        columns = ("tier", "title", "text", "source", "licence")
        texts = read_rows(arguments.texts, "text_id", columns)
        bucket = make_bucket(texts, encoder, arguments.config)
        write_rows(arguments.out, bucket)
        return {"rows": bucket.num_rows, "n_tokens": arguments.config["length"]}
    if arguments.length is None or arguments.length < 1 or len(arguments.texts) != 1:
        raise ValueError("bucket needs --length of at least 1 and one JSONL file (or --config)")
    encoder = load_encoder(arguments.tokenizer)
    rows = cut_rows(arguments.texts[0], encoder, arguments.length, arguments.out)
    return {"rows": rows, "n_tokens": arguments.length}
