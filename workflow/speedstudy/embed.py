"""Embed candidates: one vector a row, equal on every machine.

Needs the candidates of one source (parquet) and a sentence-transformers model folder; leaves
the ids and their unit vectors, sorted by id (npz).

Why float64 and rounding: in float32 the last bits of an embedding change with the batch that a
text happens to be in and with the machine (standard deviation 2e-8, measured on MiniLM), and a
changed bit can change the selection. Rounding float32 does not mend that: with 384 numbers a row,
a value that lies at a rounding boundary is found in any pool of some size. Computed in float64
the differences are 3e-17, and rounded to multiples of 2**-16 (1.5e-5) they are gone but for one
pool in thousands of the paper's size. It costs twice the time of float32. Products of the rounded
values are exact in float64, so that selection's ties are true ties.
"""

import argparse
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from speedstudy.artifacts import read_manifest
from speedstudy.tables import joined_turns, read_rows, write_embeddings

GRID = 2.0**-16

log = logging.getLogger(__name__)


def embed_texts(
    texts: Sequence[str], model_folder: Path, batch_size: int
) -> npt.NDArray[np.float32]:
    """Embed texts with a sentence-transformers model in a local folder.

    Runs on a GPU that PyTorch can use, else on the CPU; shows a progress bar on stderr. Texts are
    batched by length; one longer than the model's limit is cut by the model.

    Returns:
        Shape (len(texts), d), unit length before rounding, see ``round_to_grid``.

    Raises:
        ValueError: The folder holds no such model.
    """
    if not (model_folder / "config.json").is_file():
        raise ValueError(f"embedder {model_folder}: no config.json; give a model's folder")
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(model_folder),
        device="cuda" if torch.cuda.is_available() else "cpu",
        model_kwargs={"dtype": torch.float64},
        local_files_only=True,
    )
    vectors = model.encode(
        list(texts), batch_size=batch_size, normalize_embeddings=True, show_progress_bar=True
    )
    return round_to_grid(vectors)


def round_to_grid(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Round to multiples of 2**-16, which float32 holds exactly for values up to 1."""
    return (np.round(vectors / GRID) * GRID).astype(np.float32)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy embed``."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="folder and batch_size, as JSON"
    )
    parser.add_argument("--candidates", type=Path, required=True, help="candidates (parquet)")
    parser.add_argument(
        "--embedder", type=Path, required=True, help="manifest.json of the embedder's artifact"
    )
    parser.add_argument("--out", type=Path, required=True, help="ids and embeddings (npz)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy embed``; returns the number of rows and dimensions."""
    files = read_manifest(arguments.embedder)
    config = f"{arguments.config['folder']}/config.json"
    if config not in files:
        raise ValueError(f"{arguments.embedder}: no file {config}; check the embedder's folder")
    rows = read_rows([arguments.candidates], "question_id", ("turns",))
    texts = [joined_turns(row) for row in rows.select(["question_id", "turns"]).to_pylist()]
    if texts:
        vectors = embed_texts(texts, files[config].parent, arguments.config["batch_size"])
    else:  # a source that was skipped
        vectors = np.empty((0, 0), dtype=np.float32)
    write_embeddings(arguments.out, rows.column("question_id").to_pylist(), vectors)
    log.info("embedded %d rows in %d dimensions", *vectors.shape)
    return {"rows": vectors.shape[0], "dimensions": vectors.shape[1]}
