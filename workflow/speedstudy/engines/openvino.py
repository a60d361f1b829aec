"""OpenVINO GenAI: an embedded engine, behind ``openvino_server`` so that it is driven as any other.

It speaks vLLM's completion dialect, one event per verify step. An EAGLE-3 head is the same one that
vLLM gets, converted: one drafter over two engines.
"""

import sys

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest, Support
from speedstudy.engines.process import ask_json
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

SERVER = (sys.executable, "-m", "speedstudy.engines.openvino_server")


def _launch(request: LaunchRequest) -> Launch:
    engine, drafter = request.engine, request.drafter
    _refuse_foreign_settings(engine, drafter)
    argv = [
        *(engine.command or SERVER),
        "--model",
        str(request.model),
        "--served-model-name",
        request.served_model_name,
        "--port",
        str(request.port),
        "--method",
        drafter.method,
        "--precision",
        engine.precision,
        "--kv-cache-precision",
        engine.kv_cache_precision,
        "--threads",
        str(engine.threads),
        "--max-num-seqs",
        str(request.max_concurrency),
        "--cache-gib",
        str(engine.kv_cache_gib),
    ]
    if drafter.method != "none":
        argv += ["--num-draft-tokens", str(drafter.k)]
    if drafter.method == "ngram":
        argv += ["--max-ngram-size", str(drafter.max_ngram_size)]
    if request.draft_model is not None:
        argv += ["--draft-model", str(request.draft_model)]
    return Launch(argv=(*argv, *engine.extra_args), environment=engine.environment)


def _refuse_foreign_settings(engine: Engine, drafter: Drafter) -> None:
    if engine.precision not in ("f32", "bf16"):
        raise ValueError(
            f"engine {engine.name}: our OpenVINO server computes in f32 or bf16, not in "
            f"{engine.precision}"
        )
    if engine.kv_cache_gib is None:
        raise ValueError(f"engine {engine.name}: our OpenVINO server needs kv_cache_gib")
    if drafter.tree is not None:
        raise ValueError(
            f"drafter {drafter.name}: our OpenVINO server drafts chains only; set tree to null"
        )
    if drafter.synthetic_al is not None:
        raise ValueError(
            f"drafter {drafter.name}: OpenVINO can't pretend acceptance; remove synthetic_al"
        )
    if drafter.min_ngram_size not in (None, 1):
        raise ValueError(
            f"drafter {drafter.name}: OpenVINO looks up suffixes down to one token; set "
            "min_ngram_size to null"
        )


def _version(url: str) -> str:
    return str(ask_json(f"{url}/version")["version"])


OPENVINO = EngineKind(
    name="openvino",
    model_format="openvino",
    dialect="vllm",
    methods={
        "none": Support(since="2026.4", how="plain decoding"),
        "ngram": Support(since="2026.4", how="`prompt_lookup` of ContinuousBatchingPipeline"),
        "draft_model": Support(
            since="2026.4", how="`draft_model` of ContinuousBatchingPipeline; the same tokenizer"
        ),
        "eagle3": Support(
            since="2026.4",
            how="`draft_model` of ContinuousBatchingPipeline, `eagle3_mode` in its IR; greedy only",
        ),
    },
    acceptance="each reply's `metrics.speculative_decoding`, from one event per verify step; what "
    "was drafted is not known for `ngram`",
    version=_version,
    launch=_launch,
)
