"""llama.cpp: ``llama-server``, which reads GGUF files and computes in the precision they hold.

Acceptance comes from each reply's ``timings``; the stream does not show verify steps. The flags are
those of build 11434 (``make engine-llamacpp``). SIGTERM ends the server, which is one process.
"""

from pathlib import Path

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest, Support
from speedstudy.engines.process import ask_json
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

SERVER = ("llama-server",)
MODEL = "model.gguf"
SINCE = "b11434"

KV_CACHE_TYPES = {"f32": "f32", "bf16": "bf16", "f16": "f16", "u8": "q8_0", "auto": "f16"}

TYPES = {
    "ngram": "ngram-simple",
    "draft_model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "dflash": "draft-dflash",
}


def _launch(request: LaunchRequest) -> Launch:
    engine, slots = request.engine, request.max_concurrency
    _refuse_foreign_settings(engine)
    kv_cache = KV_CACHE_TYPES[engine.kv_cache_precision]
    argv = [
        *(engine.command or SERVER),
        *("--model", str(request.model / MODEL)),
        *("--alias", request.served_model_name),
        *("--host", "127.0.0.1", "--port", str(request.port)),
        # One slot per request in flight, each with room for the longest sequence.
        *("--parallel", str(slots), "--no-kv-unified"),
        *("--ctx-size", str(slots * request.context_length)),
        *("--cache-type-k", kv_cache, "--cache-type-v", kv_cache),
        *("--n-gpu-layers", "all" if engine.gpus else "0"),
        *("--seed", "0"),
        *("--no-cache-prompt", "--cache-ram", "0"),
        *("--metrics", "--no-ui"),
    ]
    if engine.threads:
        argv += ["--threads", str(engine.threads)]
    return Launch(
        argv=(*argv, *_speculation(request.drafter, request.draft_model), *engine.extra_args),
        # Its OpenMP threads spin while they wait, beside the client and each other: runs stalled.
        environment={"OMP_WAIT_POLICY": "passive", **engine.environment},
    )


def _refuse_foreign_settings(engine: Engine) -> None:
    if engine.precision != "auto":
        raise ValueError(
            f"engine {engine.name}: llama.cpp computes in what the GGUF file holds; set precision "
            "to auto"
        )
    if engine.kv_cache_precision not in KV_CACHE_TYPES:
        raise ValueError(
            f"engine {engine.name}: llama.cpp has no kv_cache_precision "
            f"{engine.kv_cache_precision}; it has {', '.join(KV_CACHE_TYPES)}"
        )
    if engine.kv_cache_gib is not None or engine.gpu_memory_fraction is not None:
        raise ValueError(
            f"engine {engine.name}: llama.cpp sizes its KV cache by context length and "
            "concurrency; set kv_cache_gib and gpu_memory_fraction to null"
        )
    if engine.parallel.data != 1 or engine.parallel.expert != 1:
        raise ValueError(
            f"engine {engine.name}: llama.cpp spreads layers only; set parallel.data and "
            "parallel.expert to 1"
        )


def _speculation(drafter: Drafter, draft_model: Path | None) -> list[str]:
    if drafter.method == "none":
        return []
    if drafter.tree is not None:
        raise ValueError(f"drafter {drafter.name}: llama.cpp draws no trees; set tree to null")
    if drafter.tensor_parallel is not None:
        raise ValueError(
            f"drafter {drafter.name}: llama.cpp has no tensor_parallel of a draft model; set it to "
            "null"
        )
    argv = ["--spec-type", TYPES[drafter.method], "--spec-draft-n-max", str(drafter.k)]
    if draft_model is not None:
        argv += ["--spec-draft-model", str(draft_model / MODEL)]
    if drafter.method == "ngram":
        argv += _ngram(drafter)
    if drafter.synthetic_al is not None:
        if drafter.method == "ngram":
            raise ValueError(
                f"drafter {drafter.name}: how much ngram drafts depends on the text, so its "
                "acceptance can't be pretended; remove synthetic_al"
            )
        argv += ["--spec-synth-len", f"{drafter.synthetic_al:g}"]
    return argv


def _ngram(drafter: Drafter) -> list[str]:
    """It looks up n-grams of exactly one size, and drops drafts that are shorter than that."""
    size = drafter.max_ngram_size
    assert size is not None
    if drafter.min_ngram_size not in (None, size):
        raise ValueError(
            f"drafter {drafter.name}: llama.cpp looks up n-grams of one size; set min_ngram_size "
            f"to null or {size}"
        )
    if drafter.k < size:
        raise ValueError(
            f"drafter {drafter.name}: llama.cpp drops drafts shorter than the n-gram looked up; "
            f"set k to {size} or more, or max_ngram_size to {drafter.k}"
        )
    return ["--spec-ngram-simple-size-n", str(size), "--spec-ngram-simple-size-m", str(drafter.k)]


def _version(url: str) -> str:
    build: str = ask_json(f"{url}/props")["build_info"]  # for example b11434-1a2b3c4
    return build.split("-")[0]


SYNTHETIC = "`--spec-synth-len`"

LLAMACPP = EngineKind(
    name="llamacpp",
    model_format="gguf",
    dialect="llamacpp",
    methods={
        "none": Support(since=SINCE, how="plain decoding"),
        "ngram": Support(since=SINCE, how="`ngram-simple`, one size, newest match"),
        "draft_model": Support(since=SINCE, how="`draft-simple`", synthetic=SYNTHETIC),
        "eagle3": Support(since=SINCE, how="`draft-eagle3`", synthetic=SYNTHETIC),
        "mtp": Support(since=SINCE, how="`draft-mtp`", synthetic=SYNTHETIC),
        "dflash": Support(since=SINCE, how="`draft-dflash`", synthetic=SYNTHETIC),
    },
    acceptance="each reply's `timings`; counters at `/metrics`",
    version=_version,
    launch=_launch,
)
