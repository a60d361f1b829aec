"""Embed candidates: one vector a row.

Needs the candidates of one source (parquet) and an embedder: a sentence-transformers model folder,
or an endpoint; leaves the ids and their unit vectors, sorted by id (npz).

How the bits are the same each time: a changed bit can change the selection, and in float32 the
last bits change with the batch that a text happens to be in, with the number of threads that share
a product, and with the machine. So every text goes through the model alone, on one thread, and
texts run side by side. What is left is the machine: another kind of processor adds up in another
order (standard deviation 2e-8, measured on MiniLM), and rounding does not mend that: with 384
numbers a row, a value that lies at a rounding boundary is found in any pool of some size. Computed
in float64 the differences are 3e-17, and rounded to multiples of 2**-16 (1.5e-5) they are gone but
for one pool in thousands of the paper's size; that costs twice the time. Products of the rounded
values are exact in float64, so that selection's ties are true ties.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from speedstudy.artifacts import read_manifest
from speedstudy.embedding_endpoint import request_embeddings
from speedstudy.tables import joined_turns, read_rows, write_embeddings

GRID = 2.0**-16

Precision = Literal["float64", "float32"]

LOG = logging.getLogger(__name__)


def embed_texts(
    texts: Sequence[str],
    model_folder: Path,
    precision: Precision = "float64",
    threads: int | None = None,
) -> npt.NDArray[np.float32]:
    """Embed texts with a sentence-transformers model in a local folder.

    Args:
        texts: What to embed.
        model_folder: Of the model.
        precision: Of the arithmetic.
        threads: As in ``embed_loaded``.

    Returns:
        As ``embed_loaded``.

    Raises:
        ValueError: The folder holds no such model.
    """
    return embed_loaded(texts, load_model(model_folder, precision), threads)


def load_model(folder: Path, precision: Precision) -> Any:
    """Load a sentence-transformers model onto a GPU that PyTorch can use, else the CPU.

    Raises:
        ValueError: The folder holds no such model.
    """
    if not (folder / "config.json").is_file():
        raise ValueError(f"embedder {folder}: no config.json; give a model's folder")
    import torch
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        str(folder),
        device="cuda" if torch.cuda.is_available() else "cpu",
        model_kwargs={"dtype": getattr(torch, precision)},
        local_files_only=True,
    ).eval()


def embed_loaded(
    texts: Sequence[str], model: Any, threads: int | None = None
) -> npt.NDArray[np.float32]:
    """Embed at least one text with a model of ``load_model``; shows a progress bar on stderr.

    A text longer than the model's limit is cut by the model.

    Args:
        texts: What to embed.
        model: A ``SentenceTransformer``.
        threads: Texts at the same time; None for as many as PyTorch has threads. It changes no
            bit of the result.

    Returns:
        Shape (len(texts), d), unit length before rounding, see ``round_to_grid``.
    """
    import torch
    from sentence_transformers.util import batch_to_device

    prompt = model.prompts.get(model.default_prompt_name)
    # Here and not in the threads: a tokenizer is not made for several at once.
    inputs = [model.preprocess([text], prompt=prompt) for text in texts]

    def embed_one(place: int) -> npt.NDArray[np.float64]:
        with torch.inference_mode():
            output = model(batch_to_device(inputs[place], model.device))
            vector: npt.NDArray[np.float64] = output["sentence_embedding"][0].double().cpu().numpy()
            return vector

    # The longest first, so that no thread is left alone with one at the end.
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    vectors = [np.empty(0)] * len(texts)
    pool = ThreadPoolExecutor(
        threads or torch.get_num_threads(),
        initializer=torch.set_num_threads,  # of the thread that calls it
        initargs=(1,),
    )
    with pool, tqdm(total=len(texts), unit="text", desc="embed") as bar:
        for place, vector in zip(order, pool.map(embed_one, order), strict=True):
            vectors[place] = vector / np.linalg.norm(vector)
            bar.update()
    return round_to_grid(np.stack(vectors))


def round_to_grid(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Round to multiples of 2**-16, which float32 holds exactly for values up to 1."""
    return (np.round(vectors / GRID) * GRID).astype(np.float32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy embed``."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the embedder, without artifact, as JSON"
    )
    parser.add_argument("--candidates", type=Path, required=True, help="candidates (parquet)")
    parser.add_argument(
        "--embedder",
        type=Path,
        nargs="?",
        help="manifest.json of the embedder's artifact; nothing for an endpoint",
    )
    parser.add_argument("--out", type=Path, required=True, help="ids and embeddings (npz)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy embed``; returns the number of rows and dimensions."""
    rows = read_rows([arguments.candidates], "question_id", ("turns",))
    texts = [joined_turns(row) for row in rows.select(["question_id", "turns"]).to_pylist()]
    vectors = _embed(texts, arguments) if texts else np.empty((0, 0), dtype=np.float32)
    write_embeddings(arguments.out, rows.column("question_id").to_pylist(), vectors)
    LOG.info("embedded %d rows in %d dimensions", *vectors.shape)
    return {"rows": vectors.shape[0], "dimensions": vectors.shape[1]}


def _embed(texts: Sequence[str], arguments: argparse.Namespace) -> npt.NDArray[np.float32]:
    config = arguments.config
    if config["kind"] == "openai":
        # Named after the source, without its hash: for each to come, and for one job at a time.
        source = arguments.out.stem.split("--")[0]
        cache = arguments.out.with_name(f"{source}.{config['name']}.sqlite")
        return round_to_grid(request_embeddings(texts, config, cache))
    if arguments.embedder is None:
        raise ValueError(f"embed: embedder {config['name']} needs --embedder, its manifest.json")
    name = (PurePosixPath(config["folder"]) / "config.json").as_posix()
    files = read_manifest(arguments.embedder)
    if name not in files:
        raise ValueError(f"{arguments.embedder}: no file {name}; check the embedder's folder")
    return embed_texts(texts, files[name].parent, config["precision"])
