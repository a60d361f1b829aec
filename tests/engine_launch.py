"""Engines, drafters and launches for the tests of command lines."""

from pathlib import Path

from speedstudy.engines import ENGINES
from speedstudy.engines.kind import Launch, LaunchRequest
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

WEIGHTS = {"kind": "file", "licence": "Apache-2.0", "path": "drafter", "sha256": None}


def engine(kind, **settings) -> Engine:
    """An engine in its defaults."""
    plain = {
        "name": kind,
        "kind": kind,
        "version": None,
        "precision": "auto",
        "kv_cache_precision": "auto",
        "threads": 0,
        "kv_cache_gib": None,
        "gpus": 0,
    }
    return Engine(**{**plain, **settings})


def drafter(method, **settings) -> Drafter:
    """A drafter of k = 3, with weights where the method has some."""
    plain = {
        "none": {"k": 0},
        "ngram": {"k": 3, "max_ngram_size": 3},
        "suffix": {"k": 3},
        "mtp": {"k": 3},
    }.get(method, {"k": 3, "artifact": WEIGHTS})
    return Drafter(**{"name": method, "method": method, **plain, **settings})


def launch(one_engine, one_drafter, *, concurrency=8, context_length=4096) -> Launch:
    """What the engine's module makes of them; its models are in /models, its files go to /run."""
    return ENGINES[one_engine.kind].launch(
        LaunchRequest(
            engine=one_engine,
            drafter=one_drafter,
            model=Path("/models/target"),
            draft_model=Path("/models/drafter") if one_drafter.artifact is not None else None,
            folder=Path("/run"),
            context_length=context_length,
            served_model_name="target",
            port=8123,
            max_concurrency=concurrency,
        )
    )
