"""Prompts of one exact length in tokens: the paper's throughput split (section 6).

Needs long texts (parquet) and the tokenizer that counts; leaves ``per_tier`` prompts a tier. The
length is that of the text itself; a chat template comes on top of it. Texts are read and prompts
written a few at a time, so that the largest bucket needs no more memory than the smallest.
"""

import argparse
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from speedstudy.coverage import coverage, in_words, read_missing, short_categories, write_note
from speedstudy.lengths import Encoder, fit, load_encoder, o200k_is_local
from speedstudy.windows import check_columns, tier_windows

BUCKET_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("category", pa.string()),
        ("turns", pa.list_(pa.string())),
        ("source", pa.string()),
        ("title", pa.string()),
        ("licence", pa.string()),
        ("text_id", pa.string()),
        ("start", pa.int64()),  # in characters of the text
        ("n_tokens", pa.int64()),  # by the tokenizer of the bucket
        ("n_tokens_o200k", pa.int64()),  # null where the data of o200k_base are not at hand
        ("n_tokens_target", pa.int64()),  # null where no target was named
    ]
)

Count = Callable[[str], int]

_ROWS_PER_GROUP = 32
# Long texts never repeat; to look for repetitions in them takes as long as to write them.
_REPEATED = ["category", "source", "title", "licence"]

LOG = logging.getLogger(__name__)


def bucket_rows(
    texts: Sequence[Path],
    encoder: Encoder,
    config: Mapping[str, Any],
    counts: Mapping[str, Count],
    short: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """Cut ``per_tier`` prompts of ``length`` tokens for every tier; see ``tier_windows``.

    Args:
        texts: Files of ``write_long_texts``.
        encoder: What counts the tokens.
        config: ``name``, ``length``, ``per_tier``, ``tiers`` (in the output's order), ``seed``,
            ``when_short`` (``error``, or ``overlap``: prompts of one tier may then share text).
        counts: Further counts to store, by column.
        short: Tiers that lack a source: what their texts give is enough.

    Yields:
        Rows of ``BUCKET_SCHEMA``: the tier is the category; no two begin at the same place.

    Raises:
        ValueError: A tier does not have enough text.
    """
    length, per_tier = config["length"], config["per_tier"]
    overlap = config["when_short"] == "overlap"
    bar = tqdm(
        total=per_tier * len(config["tiers"]), unit="prompt", desc=f"bucket {config['name']}"
    )
    with bar:
        for tier in config["tiers"]:
            made = 0
            windows = tier_windows(texts, tier, encoder, length, config["seed"], overlap=overlap)
            for window in itertools.islice(windows, per_tier):
                yield {
                    "question_id": window.question_id,
                    "category": tier,
                    "turns": [window.prompt],
                    "start": window.start,
                    "n_tokens": length,
                    **{
                        name: window.row[name] for name in ("source", "title", "licence", "text_id")
                    },
                    **{column: count(window.prompt) for column, count in counts.items()},
                }
                bar.update()
                made += 1
            if made < per_tier and tier not in short:
                mend = "" if overlap else ", let prompts share text (when_short: overlap)"
                raise ValueError(
                    f"bucket {config['name']}: tier {tier} needs {per_tier} prompts of {length} "
                    f"tokens and its texts give {made}; lower per_tier{mend} or add a source of "
                    "long text for it"
                )


def make_bucket(
    texts: Sequence[Path],
    encoder: Encoder,
    config: Mapping[str, Any],
    counts: Mapping[str, Count],
    out: Path,
) -> int:
    """Write the rows of ``bucket_rows`` as parquet; the file appears whole or not at all.

    A source that could not be had leaves its tiers short, which is noted in the file.

    Returns:
        The number of rows.

    Raises:
        ValueError: As ``bucket_rows``, or a file lacks a column.
    """
    check_columns(texts)
    missing = read_missing(texts)
    rows = bucket_rows(texts, encoder, config, counts, short_categories(missing))
    made: Counter[str] = Counter()
    temporary = out.with_name(out.name + ".tmp")
    with pq.ParquetWriter(temporary, BUCKET_SCHEMA, use_dictionary=_REPEATED) as writer:
        while group := list(itertools.islice(rows, _ROWS_PER_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=BUCKET_SCHEMA))
            made.update(row["category"] for row in group)
        note = coverage(
            missing,
            wanted=dict.fromkeys(config["tiers"], config["per_tier"]),
            pool=_pool(texts),
            selected=made,
        )
        if note is not None:
            LOG.warning("coverage: %s", in_words(note))
        write_note(writer, note)
    temporary.replace(out)
    return made.total()


def _pool(texts: Sequence[Path]) -> Counter[str]:
    tiers = (pq.read_table(path, columns=["tier"]).column("tier") for path in texts)
    return Counter(itertools.chain.from_iterable(column.to_pylist() for column in tiers))


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
    parser.add_argument("--target", help="the target's folder, to count its tokens too")


def _counts(tokenizer: str, target: str | None, length: int) -> dict[str, Count]:
    """Return what counts a prompt by o200k_base and by the target; one of them may have cut it."""
    names = {"n_tokens_target": target}
    if tokenizer == "o200k_base" or o200k_is_local():
        names["n_tokens_o200k"] = "o200k_base"
    return {
        column: (lambda _: length) if name == tokenizer else load_encoder(name).count
        for column, name in names.items()
        if name is not None
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy bucket``; returns the number of rows and their length."""
    for path in arguments.texts:
        if not path.is_file():
            raise ValueError(f"--texts {path}: no such file")
    if arguments.config is not None:
        encoder = load_encoder(arguments.tokenizer)
        counts = _counts(arguments.tokenizer, arguments.target, arguments.config["length"])
        rows = make_bucket(arguments.texts, encoder, arguments.config, counts, arguments.out)
        return {"rows": rows, "n_tokens": arguments.config["length"]}
    if arguments.length is None or arguments.length < 1 or len(arguments.texts) != 1:
        raise ValueError("bucket needs --length of at least 1 and one JSONL file (or --config)")
    encoder = load_encoder(arguments.tokenizer)
    rows = cut_rows(arguments.texts[0], encoder, arguments.length, arguments.out)
    return {"rows": rows, "n_tokens": arguments.length}
