"""OpenVINO GenAI: an embedded engine, behind ``openvino_server`` so that it is driven as any other.

It speaks vLLM's completion dialect, one event per verify step.
"""

import sys

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest
from speedstudy.engines.process import ask_json

SERVER = (sys.executable, "-m", "speedstudy.engines.openvino_server")


def _launch(request: LaunchRequest) -> Launch:
    engine, drafter = request.engine, request.drafter
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
    if drafter.method == "ngram":
        argv += ["--num-draft-tokens", str(drafter.k)]
        argv += ["--max-ngram-size", str(drafter.max_ngram_size)]
    return Launch(argv=(*argv, *engine.extra_args), environment=engine.environment)


def _version(url: str) -> str:
    return str(ask_json(f"{url}/version")["version"])


OPENVINO = EngineKind(
    name="openvino",
    model_format="openvino",
    dialect="vllm",
    methods={"none": "plain decoding", "ngram": "prompt lookup (ContinuousBatchingPipeline)"},
    version=_version,
    launch=_launch,
)
