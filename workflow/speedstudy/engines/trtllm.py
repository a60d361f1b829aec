"""TensorRT-LLM: ``trtllm-serve``, whose speculation is said in a file of its own.

Flags and keys are those of the package's sources (tests/fixtures/engine_arguments names the
commits): the package itself installs with CUDA only. SIGTERM ends the server. Its MPI workers leave
the process group: only a process space of its own (``apptainer --pid``) is sure to end them.
"""

from typing import Any

import yaml

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest, Support
from speedstudy.engines.process import ask_json
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

SERVER = ("trtllm-serve",)
OPTIONS = "trtllm_options.yaml"

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "auto": "auto"}
KV_CACHE_DTYPES = {"auto": "auto", "fp8": "fp8"}
LEAST_NUM_TOKENS = 8192  # the engine's own default of max_num_tokens

DECODING_TYPES = {
    "ngram": "NGram",
    "draft_model": "Draft_Target",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "suffix": "SA",
    "pard": "PARD",
    "dflash": "DFlash",
}


def _launch(request: LaunchRequest) -> Launch:
    engine = request.engine
    _refuse_foreign_settings(engine)
    options = request.folder / OPTIONS
    argv = (
        *(engine.command or SERVER),
        str(request.model),
        *("--host", "127.0.0.1", "--port", str(request.port)),
        *("--max_batch_size", str(request.max_concurrency)),
        *("--max_seq_len", str(request.context_length)),
        # A prompt must fit into one batch of prefill tokens, for it is not cut into chunks.
        *("--max_num_tokens", str(max(LEAST_NUM_TOKENS, request.context_length))),
        *("--tp_size", str(engine.parallel.tensor)),
        *("--ep_size", str(engine.parallel.expert)),
        *("--extra_llm_api_options", str(options)),
    )
    return Launch(
        argv=(*argv, *engine.extra_args),
        environment={**engine.environment, **_synthetic(request.drafter)},
        files={options: yaml.safe_dump(_options(request), sort_keys=False)},
    )


def _refuse_foreign_settings(engine: Engine) -> None:
    if engine.parallel.data != 1:
        raise ValueError(
            f"engine {engine.name}: trtllm-serve runs one copy of the model; set parallel.data to 1"
        )
    if engine.threads:
        raise ValueError(f"engine {engine.name}: TensorRT-LLM takes no threads; set threads to 0")
    if engine.kv_cache_precision not in KV_CACHE_DTYPES:
        raise ValueError(
            f"engine {engine.name}: TensorRT-LLM has no kv_cache_precision "
            f"{engine.kv_cache_precision}; it has {', '.join(KV_CACHE_DTYPES)}"
        )


def _options(request: LaunchRequest) -> dict[str, Any]:
    """What the file says: it outranks the flags."""
    engine, drafter = request.engine, request.drafter
    kv_cache: dict[str, Any] = {
        "enable_block_reuse": False,
        "dtype": KV_CACHE_DTYPES[engine.kv_cache_precision],
    }
    if engine.gpu_memory_fraction is not None:
        kv_cache["free_gpu_memory_fraction"] = engine.gpu_memory_fraction
    if engine.kv_cache_gib is not None:
        kv_cache["max_gpu_total_bytes"] = int(engine.kv_cache_gib * 2**30)
    options: dict[str, Any] = {
        "dtype": DTYPES[engine.precision],
        "kv_cache_config": kv_cache,
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    if drafter.method in ("ngram", "draft_model"):
        # Drafts of the step before are needed before the next step is planned.
        options["disable_overlap_scheduler"] = True
    if drafter.method != "none":
        options["speculative_config"] = _speculation(request)
    return options


def _speculation(request: LaunchRequest) -> dict[str, Any]:
    drafter = request.drafter
    if drafter.tensor_parallel is not None:
        raise ValueError(
            f"drafter {drafter.name}: TensorRT-LLM spreads the draft model as it does the target; "
            "set tensor_parallel to null"
        )
    said: dict[str, Any] = {
        "decoding_type": DECODING_TYPES[drafter.method],
        "max_draft_len": drafter.k,
    }
    if request.draft_model is not None:
        said["speculative_model"] = str(request.draft_model)
    if drafter.method == "ngram":
        if drafter.min_ngram_size is not None:
            raise ValueError(
                f"drafter {drafter.name}: TensorRT-LLM has no shortest n-gram; set min_ngram_size "
                "to null"
            )
        said["max_matching_ngram_size"] = drafter.max_ngram_size
        # Its default pool is shared: one request's text would then draft another's.
        said["is_public_pool"] = False
    if drafter.tree is not None:
        said.update(_tree(drafter))
    return said


def _tree(drafter: Drafter) -> dict[str, Any]:
    assert drafter.tree is not None
    if drafter.method not in ("eagle3", "mtp"):
        raise ValueError(
            f"drafter {drafter.name}: TensorRT-LLM draws no tree with {drafter.method}"
        )
    most = drafter.tree.top_k * drafter.k
    if drafter.tree.nodes > most:
        raise ValueError(
            f"drafter {drafter.name}: a tree of depth {drafter.k} and top_k {drafter.tree.top_k} "
            f"has at most {most} nodes, not {drafter.tree.nodes}"
        )
    return {
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": drafter.tree.top_k,
        "max_total_draft_tokens": drafter.tree.nodes,
    }


def _synthetic(drafter: Drafter) -> dict[str, str]:
    if drafter.synthetic_al is None:
        return {}
    if drafter.method in ("ngram", "suffix"):
        raise ValueError(
            f"drafter {drafter.name}: how much {drafter.method} drafts depends on the text, so its "
            "acceptance can't be pretended; remove synthetic_al"
        )
    # It counts accepted drafts, without the token that the target adds to them.
    return {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": f"{drafter.synthetic_al - 1:g}"}


def _version(url: str) -> str:
    return str(ask_json(f"{url}/version")["version"])


SYNTHETIC = "`TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS`, AL - 1"

TRTLLM = EngineKind(
    name="trtllm",
    model_format="hf",
    dialect="trtllm",
    methods={
        "none": Support(since="1.2.0rc1", how="plain decoding"),
        "ngram": Support(since="1.2.0rc1", how="`NGram`, a pool of its own for each request"),
        "draft_model": Support(since="1.2.0rc1", how="`Draft_Target`", synthetic=SYNTHETIC),
        "eagle3": Support(since="1.3.0rc15", how="`Eagle3`", tree=True, synthetic=SYNTHETIC),
        "mtp": Support(
            since="1.2.0rc1", how="`MTP`: the target's own layers", tree=True, synthetic=SYNTHETIC
        ),
        "suffix": Support(since="1.4.0rc1", how="`SA`: a suffix automaton"),
        "pard": Support(since="1.4.0rc1", how="`PARD`", synthetic=SYNTHETIC),
        "dflash": Support(since="1.4.0rc1", how="`DFlash`", synthetic=SYNTHETIC),
    },
    acceptance="counters at `/prometheus/metrics`; each reply's `avg_decoded_tokens_per_iter`",
    version=_version,
    launch=_launch,
)
