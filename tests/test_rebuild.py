"""The build gives the same bytes: twice, from shuffled rows, on other threads, after a kill.

Every run is a process of its own, as under Snakemake. The embedder is a small endpoint here; the
real one has its turn in test_embed.py.
"""

import http.server
import json
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from tiny_tokenizer import CORPUS, write_tiny_tokenizer

# Runs stages one after another. With a place to die, it kills itself there, as kill -9 would.
CHILD = """
import argparse, importlib, json, os, signal, sys
from pathlib import Path

stages, dies = json.loads(sys.argv[1]), sys.argv[2]


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


for name, words in stages:
    if dies == f"{name} when its file is written":
        Path.replace = die
    if dies == f"{name} while its file is written":
        import pyarrow.parquet as pq

        write = pq.ParquetWriter.write_table

        def write_once(writer, table, *more, **named):
            write(writer, table, *more, **named)
            pq.ParquetWriter.write_table = die

        pq.ParquetWriter.write_table = write_once
    module = importlib.import_module("speedstudy." + name)
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    module.run(parser.parse_args(words))
"""

PROMPTS = {
    "name": "mine",
    "version": 1,
    "adapter": "embedded",
    "gives": "prompts",
    "candidates": {"qa": 30},
    "counted": True,
    "options": {},
}
TEXTS = {
    "name": "texts",
    "version": 1,
    "adapter": "embedded_text",
    "gives": "long_text",
    "candidates": {"mixed": 40},
    "counted": True,
    "options": {"tier": "mixed", "licence": "CC0-1.0", "instruction": "Go on:", "windows": True},
}
SELECT = {"categories": ["qa"], "quota": 8, "seed": 7, "max_swaps": None}
BUCKET = {
    "name": "1k",
    "length": 64,
    "per_tier": 80,
    "tiers": ["mixed"],
    "seed": 7,
    "when_short": "overlap",
}


class Embedder(http.server.BaseHTTPRequestHandler):
    """Embeds a text as counts of its letters."""

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        rows = [
            {"index": i, "embedding": [text.count(c) + 0.1 for c in "aeinorst"]}
            for i, text in enumerate(texts)
        ]
        self.server.requests += 1
        if self.server.requests == self.server.dies_at:
            os.kill(self.server.child.pid, signal.SIGKILL)
        body = json.dumps({"data": rows}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    requests = 0
    dies_at = None
    child = None

    def handle_error(self, *_):  # a client that was killed hangs up
        pass


@pytest.fixture(scope="module")
def server():
    with Server(("127.0.0.1", 0), Embedder) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


class Build:
    """Collect, embed, select and bucket in one folder."""

    def __init__(self, folder, server, tokenizer):
        self.folder, self.server, self.tokenizer = folder, server, tokenizer
        folder.mkdir()

    def write_inputs(self, shuffle=None):
        generator = random.Random(0)

        def words(count):
            return " ".join(generator.choice(" ".join(CORPUS).split()) for _ in range(count))

        prompts = [
            {"src_id": f"row {i}", "category": "qa", "sub_category": "", "turns": [words(12)]}
            for i in range(30)
        ]
        prompts += [{**prompts[0], "src_id": "its twin"}, {**prompts[1], "src_id": "another"}]
        texts = [
            {"key": f"text {i}", "title": "", "text": "\n".join(words(9) for _ in range(30))}
            for i in range(40)
        ]
        for name, rows in (("prompts", prompts), ("texts", texts)):
            if shuffle is not None:
                random.Random(shuffle).shuffle(rows)
            path = self.folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            entry = {"files": {path.name: {"bytes": path.stat().st_size}}}
            (self.folder / f"{name}.manifest.json").write_text(json.dumps(entry))

    def stages(self):
        at = {
            name: str(self.folder / name)
            for name in (
                *("prompts.manifest.json", "texts.manifest.json", "prompts.parquet"),
                *("texts.parquet", "prompts.npz", "selected.parquet", "selected.json"),
                "bucket.parquet",
            )
        }
        embedder = {
            "kind": "openai",
            "name": "letters",
            "url": f"http://127.0.0.1:{self.server.server_port}",
            "model": "letters",
            "dimensions": 8,
            "shorten": False,
            "max_chars": 1000,
            "batch_size": 4,
            "api_key_variable": None,
        }
        collect = ["--manifest", at["prompts.manifest.json"], "--out", at["prompts.parquet"]]
        texts = ["--manifest", at["texts.manifest.json"], "--out", at["texts.parquet"]]
        embed = ["--candidates", at["prompts.parquet"], "--out", at["prompts.npz"]]
        select = ["--candidates", at["prompts.parquet"], "--embeddings", at["prompts.npz"]]
        select += ["--out", at["selected.parquet"], "--report", at["selected.json"]]
        bucket = ["--texts", at["texts.parquet"], "--tokenizer", str(self.tokenizer)]
        return [
            ("collect", ["--config", json.dumps(PROMPTS), *collect]),
            ("collect", ["--config", json.dumps(TEXTS), *texts]),
            ("embed", ["--config", json.dumps(embedder), *embed]),
            ("select", ["--config", json.dumps(SELECT), *select]),
            ("bucket", ["--config", json.dumps(BUCKET), *bucket, "--out", at["bucket.parquet"]]),
        ]

    def run(self, dies="", **environment):
        """Run all stages; returns the exit status."""
        command = [sys.executable, "-c", CHILD, json.dumps(self.stages()), dies]
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL
        )
        self.server.child = process
        return process.wait(timeout=120)

    def files(self):
        """Return what the stages made, by name; the endpoint's answers are no product."""
        return {
            path.name: path.read_bytes()
            for path in self.folder.iterdir()
            if path.suffix in (".parquet", ".npz") or path.name == "selected.json"
        }


@pytest.fixture(scope="module")
def first(tmp_path_factory, server, tokenizer):
    build = Build(tmp_path_factory.mktemp("first") / "build", server, tokenizer)
    build.write_inputs()
    assert build.run() == 0
    files = build.files()
    assert sorted(files) == [
        *("bucket.parquet", "prompts.npz", "prompts.parquet"),
        *("selected.json", "selected.parquet", "texts.parquet"),
    ]
    return files


@pytest.mark.parametrize("threads", ["1", "2"])
def test_shuffled_rows_and_other_threads_give_the_same_bytes(
    tmp_path, server, tokenizer, first, threads
):
    build = Build(tmp_path / "build", server, tokenizer)
    build.write_inputs(shuffle=int(threads))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "PYTHONHASHSEED")
    assert build.run(**dict.fromkeys(names, threads)) == 0
    assert build.files() == first


@pytest.mark.parametrize(
    ("dies", "there"),
    [
        ("collect when its file is written", set()),
        ("collect while its file is written", {"prompts.parquet"}),
        ("embed when its file is written", {"prompts.parquet", "texts.parquet"}),
        ("embed at its third request", {"prompts.parquet", "texts.parquet"}),
        (
            "bucket while its file is written",
            {
                *("prompts.npz", "prompts.parquet", "texts.parquet"),
                *("selected.json", "selected.parquet"),
            },
        ),
    ],
)
def test_a_kill_leaves_no_half_file_and_the_next_run_gives_the_same_bytes(
    tmp_path, server, tokenizer, first, dies, there
):
    build = Build(tmp_path / "build", server, tokenizer)
    build.write_inputs()
    if dies == "embed at its third request":
        server.requests, server.dies_at = 0, 3
    try:
        assert build.run(dies) == -signal.SIGKILL
    finally:
        server.dies_at = None
    assert build.files() == {name: first[name] for name in there}
    server.requests = 0
    assert build.run() == 0
    assert build.files() == first
    if dies == "embed at its third request":
        assert server.requests == 8 - 2  # 30 texts by 4, but those answered before
    assert not list(build.folder.glob("*.tmp"))
