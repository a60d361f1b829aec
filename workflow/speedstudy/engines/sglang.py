"""SGLang: ``python -m sglang.launch_server``, driven by its native ``/generate`` route.

Acceptance comes from each reply's ``meta_info``. The flags are those of 0.5.23, whose own parser a
test asks. SIGTERM ends the server and its workers, which are in its process group.
"""

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest, Support
from speedstudy.engines.process import ask_json
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

SERVER = ("python", "-m", "sglang.launch_server")
SINCE = "0.5.23"

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "auto": "auto"}
KV_CACHE_DTYPES = {"auto": "auto", "bf16": "bf16", "fp8": "fp8_e4m3"}

# NEXTN is SGLang's name for layers that the target carries for multi-token prediction.
ALGORITHMS = {
    "ngram": "NGRAM",
    "draft_model": "STANDALONE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "dflash": "DFLASH",
}


def _launch(request: LaunchRequest) -> Launch:
    engine, drafter = request.engine, request.drafter
    _refuse_foreign_settings(engine)
    argv = [
        *(engine.command or SERVER),
        *("--model-path", str(request.model)),
        *("--served-model-name", request.served_model_name),
        *("--host", "127.0.0.1", "--port", str(request.port)),
        *("--dtype", DTYPES[engine.precision]),
        *("--kv-cache-dtype", KV_CACHE_DTYPES[engine.kv_cache_precision]),
        *("--context-length", str(request.context_length)),
        *("--max-running-requests", str(request.max_concurrency)),
        *("--tp-size", str(engine.parallel.tensor)),
        *("--dp-size", str(engine.parallel.data)),
        *("--ep-size", str(engine.parallel.expert)),
        *("--random-seed", "0"),
        "--disable-radix-cache",
        "--enable-metrics",
    ]
    if engine.gpu_memory_fraction is not None:
        argv += ["--mem-fraction-static", str(engine.gpu_memory_fraction)]
    if engine.gpus == 0:
        argv += ["--device", "cpu"]
    return Launch(
        argv=(*argv, *_speculation(request), *engine.extra_args),
        environment={**engine.environment, **_synthetic(drafter)},
    )


def _refuse_foreign_settings(engine: Engine) -> None:
    if engine.kv_cache_gib is not None:
        raise ValueError(
            f"engine {engine.name}: SGLang's KV cache has no size in GiB; set kv_cache_gib to "
            "null and gpu_memory_fraction instead"
        )
    if engine.threads:
        raise ValueError(f"engine {engine.name}: SGLang takes no threads; set threads to 0")
    if engine.kv_cache_precision not in KV_CACHE_DTYPES:
        raise ValueError(
            f"engine {engine.name}: SGLang has no kv_cache_precision {engine.kv_cache_precision}; "
            f"it has {', '.join(KV_CACHE_DTYPES)}"
        )
    if engine.parallel.expert not in (1, engine.parallel.tensor):
        raise ValueError(
            f"engine {engine.name}: SGLang lays experts out over all GPUs of parallel.tensor or "
            f"over none; set parallel.expert to 1 or {engine.parallel.tensor}"
        )


def _speculation(request: LaunchRequest) -> list[str]:
    drafter = request.drafter
    if drafter.method == "none":
        return []
    argv = ["--speculative-algorithm", ALGORITHMS[drafter.method]]
    if request.draft_model is not None:
        argv += ["--speculative-draft-model-path", str(request.draft_model)]
    if drafter.tree is not None and drafter.method not in ("eagle3", "mtp", "draft_model"):
        raise ValueError(f"drafter {drafter.name}: SGLang draws no tree with {drafter.method}")
    if drafter.tensor_parallel is not None:
        raise ValueError(
            f"drafter {drafter.name}: SGLang spreads the draft model as it does the target; set "
            "tensor_parallel to null"
        )
    if drafter.method == "dflash":
        # The block holds the last verified token and k drafts.
        return [*argv, "--speculative-dflash-block-size", str(drafter.k + 1)]
    if drafter.method == "ngram":
        if drafter.min_ngram_size is not None:
            raise ValueError(
                f"drafter {drafter.name}: SGLang has no shortest n-gram; set min_ngram_size to null"
            )
        # A trie of all requests is searched; breadth 1 keeps it a chain. Its depth bounds the
        # matched suffix and the draft together.
        argv += ["--speculative-num-draft-tokens", str(drafter.k + 1)]
        argv += ["--speculative-ngram-min-bfs-breadth", "1"]
        argv += ["--speculative-ngram-max-bfs-breadth", "1"]
        depth = (drafter.max_ngram_size or 0) + drafter.k
        return [*argv, "--speculative-ngram-max-trie-depth", str(depth)]
    # The tokens verified in one step: the last verified one and the drafts.
    nodes = drafter.k if drafter.tree is None else drafter.tree.nodes
    argv += ["--speculative-num-steps", str(drafter.k)]
    argv += ["--speculative-eagle-topk", str(1 if drafter.tree is None else drafter.tree.top_k)]
    return [*argv, "--speculative-num-draft-tokens", str(nodes + 1)]


def _synthetic(drafter: Drafter) -> dict[str, str]:
    if drafter.synthetic_al is None:
        return {}
    if drafter.method == "ngram" or drafter.tree is not None:
        raise ValueError(
            f"drafter {drafter.name}: SGLang pretends acceptance for chains of a draft model only; "
            "remove synthetic_al"
        )
    return {
        "SGLANG_SIMULATE_ACC_LEN": f"{drafter.synthetic_al:g}",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
    }


def _version(url: str) -> str:
    return str(ask_json(f"{url}/server_info")["version"])


SYNTHETIC = "`SGLANG_SIMULATE_ACC_LEN`"

SGLANG = EngineKind(
    name="sglang",
    model_format="hf",
    dialect="sglang",
    methods={
        "none": Support(since=SINCE, how="plain decoding"),
        "ngram": Support(since=SINCE, how="`NGRAM`: a trie over the text of all requests"),
        "draft_model": Support(since=SINCE, how="`STANDALONE`", tree=True, synthetic=SYNTHETIC),
        "eagle3": Support(since=SINCE, how="`EAGLE3`", tree=True, synthetic=SYNTHETIC),
        "mtp": Support(
            since=SINCE, how="`NEXTN`: the target's own layers", tree=True, synthetic=SYNTHETIC
        ),
        "dflash": Support(since=SINCE, how="`DFLASH`", synthetic=SYNTHETIC),
    },
    acceptance="each reply's `meta_info` (verify steps, correct drafts, histogram)",
    version=_version,
    launch=_launch,
)
