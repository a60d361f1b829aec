"""All five buckets of the throughput split, against the time of encoding every prompt once.

The texts are JSON lines (gzipped) with ``tier``, ``package``, ``title``, ``text`` and ``licence``:
consecutive files of one package, or chapters of one book, become one long text. Prints a line a
bucket and one for all, and checks that every prompt has exactly its tokens.

    python benchmarks/bucket.py ../shared/data/longtext [--per-tier 512] [--tokenizer o200k_base]
"""

import argparse
import gzip
import json
import resource
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

from speedstudy.bucket import make_bucket
from speedstudy.collect.candidates import LongText, identifier, write_long_texts
from speedstudy.lengths import load_encoder

TIERS = ("low_entropy", "mixed", "high_entropy")
OPENINGS = {
    "low_entropy": "Here is a part of a program. Continue it.\n\n",
    "mixed": "Here is a part of a handbook. Continue it.\n\n",
    "high_entropy": "Continue this book:\n\n",
}


def read_texts(folder: Path) -> list[LongText]:
    """Join the records of each package, or book, in the order of the file."""
    joined: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                book = row["title"].split(" — ")[0] if row["tier"] == "high_entropy" else ""
                key = (row["tier"], row["package"], book, row["licence"])
                joined[key].append(row["text"])
    return [
        LongText(
            text_id=identifier("longtext", f"{package} {book} {licence}"),
            tier=tier,
            title=f"{package} {book}".strip(),
            text="\n\n".join(texts),
            source="longtext",
            licence=licence,
            opening=OPENINGS[tier],
            windows=True,
        )
        for (tier, package, book, licence), texts in joined.items()
    ]


def main() -> None:
    """Build the buckets and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--per-tier", type=int, default=512)
    parser.add_argument("--tokenizer", default="o200k_base")
    parser.add_argument("--thousands", type=int, nargs="+", default=[1, 2, 8, 16, 32])
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.tokenizer)
    encoder.count("The first call compiles the pattern.")
    total_build = total_encode = total_rows = 0.0
    with tempfile.TemporaryDirectory() as folder:
        texts, out = Path(folder) / "texts.parquet", Path(folder) / "bucket.parquet"
        write_long_texts(texts, read_texts(arguments.folder))
        start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for thousands in arguments.thousands:
            config = {
                "name": f"{thousands}k",
                "length": 1000 * thousands,
                "per_tier": arguments.per_tier,
                "tiers": TIERS,
                "seed": 7,
                "when_short": "overlap",
            }
            begin = time.perf_counter()
            rows = make_bucket([texts], encoder, config, {}, out)
            build_s = time.perf_counter() - begin
            encode_s, places = 0.0, set()
            for batch in pq.ParquetFile(out).iter_batches(64):
                for row in batch.to_pylist():
                    begin = time.perf_counter()
                    count = encoder.count(row["turns"][0])
                    encode_s += time.perf_counter() - begin
                    if count != config["length"]:
                        raise SystemExit(f"{row['question_id']} has {count} tokens")
                    places.add((row["text_id"], row["start"]))
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{config['name']:>4}: {rows} prompts ({len(places)} distinct) in {build_s:.1f} s, "
                f"{rows / build_s:.0f} rows/s, {build_s / encode_s:.2f} x encoding them once "
                f"({encode_s:.1f} s); peak {peak_mib:.0f} MiB ({start_kib / 1024:.0f} at the start)"
            )
            total_build += build_s
            total_encode += encode_s
            total_rows += rows
    print(
        f" all: {total_rows:.0f} prompts in {total_build:.1f} s, "
        f"{total_rows / total_build:.0f} rows/s, ratio {total_build / total_encode:.2f}"
    )


if __name__ == "__main__":
    main()
