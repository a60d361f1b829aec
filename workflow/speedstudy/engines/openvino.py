"""OpenVINO GenAI: an embedded engine, behind ``openvino_server`` so that it is driven as any other.

It speaks vLLM's completion dialect, one event per verify step.
"""

import sys
from importlib.metadata import version

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest


def _launch(request: LaunchRequest) -> Launch:
    engine, drafter = request.engine, request.drafter
    argv = [
        sys.executable,
        "-m",
        "speedstudy.engines.openvino_server",
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
    if drafter.method == "ngram":
        argv += ["--num-draft-tokens", str(drafter.k)]
        argv += ["--max-ngram-size", str(drafter.max_ngram_size)]
    return Launch(argv=(*argv, *engine.extra_args))


OPENVINO = EngineKind(
    name="openvino",
    model_format="openvino",
    dialect="vllm",
    methods={"none": "plain decoding", "ngram": "prompt lookup (ContinuousBatchingPipeline)"},
    version=lambda: version("openvino"),
    launch=_launch,
)
