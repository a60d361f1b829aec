"""How OpenVINO's pipeline is built, and what requests must respect because of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedstudy.engines.openvino_protocol import BLOCK_TOKENS

CACHE_BYTES = {"f32": 4.0, "bf16": 2.0, "u8": 1.0}
U8_SCALE_BYTES = 8  # a float32 scale and zero point beside each head's vector


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How the pipeline is built.

    Attributes:
        model: Folder of the OpenVINO IR.
        draft_model: Folder of the draft model's or EAGLE-3 head's IR; None without one.
        method: ``none``, ``ngram`` (prompt lookup), ``draft_model`` or ``eagle3``.
        draft_tokens: Most tokens drafted per step; 0 for ``none``.
        max_ngram_size: Longest suffix that prompt lookup searches, in tokens.
        precision: Of the computation, ``f32`` or ``bf16``.
        kv_cache_precision: Of the key/value cache, ``f32``, ``bf16`` or ``u8``.
        threads: Inference threads.
        max_num_seqs: Most requests in the batch.
        max_num_batched_tokens: Most tokens in one step.
        cache_gib: Size of the key/value cache in GiB, the draft model's included.
    """

    model: Path
    draft_model: Path | None
    method: str
    draft_tokens: int
    max_ngram_size: int
    precision: str
    kv_cache_precision: str
    threads: int
    max_num_seqs: int
    max_num_batched_tokens: int
    cache_gib: float


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What requests must respect: sizes in tokens, ids that end a reply."""

    vocabulary: int
    context_tokens: int
    cache_tokens: int
    end_token_ids: frozenset[int]


def read_facts(options: WorkerOptions) -> ModelFacts:
    """Return the model's limits from ``config.json`` and ``generation_config.json``.

    Raises:
        ValueError: A folder holds no converted model.
    """
    config = _read_json(options.model, "config.json")
    generation = _read_json(options.model, "generation_config.json")
    end = generation.get("eos_token_id", config.get("eos_token_id"))
    token_bytes = _token_bytes(config, options.kv_cache_precision)
    if options.draft_model is not None:
        draft = _read_json(options.draft_model, "config.json")
        token_bytes += _token_bytes(draft, options.kv_cache_precision)
    blocks = int(options.cache_gib * 2**30 / (token_bytes * BLOCK_TOKENS))
    return ModelFacts(
        vocabulary=config["vocab_size"],
        context_tokens=config["max_position_embeddings"],
        cache_tokens=blocks * BLOCK_TOKENS,
        end_token_ids=frozenset([end] if isinstance(end, int) else end or []),
    )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    for needed in ("openvino_model.xml", name):
        if not (folder / needed).is_file():
            raise ValueError(f"{folder}: no {needed}; convert the model first")
    value: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return value


def _token_bytes(config: dict[str, Any], precision: str) -> float:
    """Return the size of one token's keys and values."""
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    vector_bytes: float = head_dim * CACHE_BYTES[precision]
    if precision == "u8":
        vector_bytes += U8_SCALE_BYTES
    vectors: int = 2 * config["num_hidden_layers"] * config["num_key_value_heads"]
    return vectors * vector_bytes
