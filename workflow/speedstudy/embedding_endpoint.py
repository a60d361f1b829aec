"""Embeddings from an OpenAI-compatible endpoint, kept by the hash of what was asked.

An answer may cost money and time, so each is written down when it comes: a run that broke off goes
on where it was, and a source of which some rows changed asks for those alone. This module imports
nothing of ours.
"""

import hashlib
import http.client
import json
import logging
import os
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

LOG = logging.getLogger(__name__)

_ATTEMPTS = 6
_TIMEOUT_S = 120
_LONGEST_WAIT_S = 60.0
_AGAIN = (408, 409, 429, 500, 502, 503, 504)

Vectors = npt.NDArray[np.float64]


def request_embeddings(texts: Sequence[str], config: Mapping[str, Any], cache: Path) -> Vectors:
    """Embed texts by an endpoint; shows a progress bar on stderr.

    A text is cut at ``max_chars``. A refusal for lack of capacity (429, 5xx), a broken connection
    and a timeout are tried again, each time after twice the wait, or after the wait that the
    endpoint asks for.

    Args:
        texts: What to embed.
        config: Fields of ``schema.data.EmbeddingEndpoint``.
        cache: SQLite file of what was answered; made if it is missing, and safe to delete.

    Returns:
        Shape (len(texts), dimensions), unit length.

    Raises:
        ValueError: The key's variable is not set, the endpoint refuses or cannot be reached, or
            its answer has another shape than asked for.
    """
    headers = _headers(config)
    cut = [text[: config["max_chars"]] for text in texts]
    if longer := sum(len(text) > config["max_chars"] for text in texts):
        LOG.info("%d texts were cut at %d characters", longer, config["max_chars"])
    keys = [_key(text, config) for text in cut]
    by_key = dict(zip(keys, cut, strict=True))
    # Commits by itself: an answer is kept as soon as it is written.
    with closing(sqlite3.connect(cache, timeout=60, isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, vector BLOB)")
        known = _known(database, by_key)
        missing = sorted(by_key.keys() - known.keys())
        with tqdm(total=len(by_key), initial=len(known), unit="text", desc="embed") as bar:
            for start in range(0, len(missing), config["batch_size"]):
                batch = missing[start : start + config["batch_size"]]
                answer = _ask([by_key[key] for key in batch], config, headers)
                rows = [(key, row.tobytes()) for key, row in zip(batch, answer, strict=True)]
                database.execute("BEGIN")
                database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", rows)
                database.execute("COMMIT")
                known.update(zip(batch, answer, strict=True))
                bar.update(len(batch))
    if not keys:
        return np.empty((0, config["dimensions"]))
    vectors = np.stack([known[key] for key in keys])
    unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _key(text: str, config: Mapping[str, Any]) -> str:
    """Return the hash of all that decides the answer."""
    asked = {name: config[name] for name in ("url", "model", "dimensions", "shorten")}
    return hashlib.sha256(json.dumps([asked, text], sort_keys=True).encode()).hexdigest()


def _known(database: sqlite3.Connection, keys: Mapping[str, str]) -> dict[str, Vectors]:
    found = {}
    for key in keys:
        row = database.execute("SELECT vector FROM answers WHERE key = ?", (key,)).fetchone()
        if row is not None:
            found[key] = np.frombuffer(row[0], dtype=np.float64)
    return found


def _headers(config: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    variable = config["api_key_variable"]
    if variable is not None:
        key = os.environ.get(variable)
        if not key:
            raise ValueError(
                f"embedder {config['name']}: set {variable} to the key of {config['url']}, or "
                "choose an embedder that needs none (embedder=minilm)"
            )
        headers["Authorization"] = f"Bearer {key}"
    return headers


def _ask(texts: Sequence[str], config: Mapping[str, Any], headers: Mapping[str, str]) -> Vectors:
    body: dict[str, Any] = {
        "model": config["model"],
        "input": list(texts),
        "encoding_format": "float",
    }
    if config["shorten"]:
        body["dimensions"] = config["dimensions"]
    request = urllib.request.Request(
        f"{config['url'].rstrip('/')}/embeddings", json.dumps(body).encode(), dict(headers)
    )
    return _vectors(_answer(request, config), len(texts), config)


def _answer(request: urllib.request.Request, config: Mapping[str, Any]) -> Any:
    waits = _waits()
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            said = " ".join(error.read(2000).decode(errors="replace").split())[:300]
            reason, asked_s = f"{error}: {said}", _retry_after_s(error.headers)
            again = error.code in _AGAIN
        except (urllib.error.URLError, TimeoutError, OSError, http.client.HTTPException) as error:
            reason, asked_s, again = str(error), None, True
        except ValueError as error:
            reason, asked_s, again = f"no JSON: {error}", None, True
        wait_s = next(waits, None) if again else None
        if wait_s is None:
            raise ValueError(
                f"embedder {config['name']}: {request.full_url} does not embed: {reason}; check "
                "url, model, key and max_chars. What it answered so far is kept"
            )
        wait_s = min(max(wait_s, asked_s or 0), _LONGEST_WAIT_S)
        LOG.warning("%s; again in %.0f s", reason, wait_s)
        time.sleep(wait_s)


def _waits() -> Iterator[float]:
    for attempt in range(_ATTEMPTS - 1):
        yield 2.0**attempt


def _retry_after_s(headers: Message) -> float | None:
    try:
        return float(headers.get("Retry-After", ""))
    except ValueError:  # a date, or nothing
        return None


def _vectors(answer: Any, count: int, config: Mapping[str, Any]) -> Vectors:
    """Return the vectors of an answer in the order of the texts."""
    try:
        rows = {int(one["index"]): one["embedding"] for one in answer["data"]}
        vectors = np.array([rows[index] for index in range(count)], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"embedder {config['name']}: the answer of {config['url']} is not that of an embedding "
            f"route for {count} texts ({type(error).__name__}: {error})"
        ) from error
    if vectors.shape != (count, config["dimensions"]):
        raise ValueError(
            f"embedder {config['name']}: {config['model']} answers with vectors of "
            f"{vectors.shape[-1]} numbers and dimensions is {config['dimensions']}; correct it, or "
            "set shorten for a model that can give several lengths"
        )
    if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
        raise ValueError(f"embedder {config['name']}: {config['model']} answers with no direction")
    return vectors
