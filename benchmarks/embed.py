"""Embedding texts, against sentence-transformers' own `encode` on the same texts, in one run.

    python benchmarks/embed.py MODEL_FOLDER ../shared/data/spec_bench/question.jsonl

The texts are JSON lines with ``turns``. Rounds are interleaved, so that a slow moment of the
machine meets all; the ratios are of the fastest rounds. `encode` sorts the texts by length too, and
takes them 32 at a time. Loading the model is part of neither.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from speedstudy.embed import embed_loaded, load_model


def main() -> None:
    """Embed by each way in turn and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()
    step = max(len(lines) // arguments.count, 1)
    texts = ["\n\n".join(json.loads(line)["turns"]) for line in lines[::step]]
    characters = sum(map(len, texts)) / len(texts)
    print(f"{len(texts)} texts of {characters:.0f} characters, {torch.get_num_threads()} threads")

    library = SentenceTransformer(str(arguments.model), device="cpu", local_files_only=True)
    float32 = load_model(arguments.model, "float32")
    float64 = load_model(arguments.model, "float64")
    ways = {
        "encode": lambda: library.encode(
            texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False
        ),
        "float32": lambda: embed_loaded(texts, float32),
        "float64": lambda: embed_loaded(texts, float64),
    }
    best_s = dict.fromkeys(ways, float("inf"))
    vectors = {}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            vectors[name] = way()
            best_s[name] = min(best_s[name], time.perf_counter() - begin)
    for name, seconds in best_s.items():
        off = np.abs(vectors[name] - vectors["encode"]).max()
        print(
            f"{name}: {seconds:.2f} s, {len(texts) / seconds:.0f} texts/s, "
            f"{seconds / best_s['encode']:.2f} x encode; differs by {off:.1e} at most"
        )


if __name__ == "__main__":
    main()
