"""The process that owns OpenVINO's pipeline: steps it and sends what each step gave.

It is a process of its own because ``ContinuousBatchingPipeline.step()`` keeps Python's
interpreter lock until it returns (one tick of a 5 ms timer during a step of 3 s): in one process
the tokens of a step would reach the socket only after the *next* step, and every latency would be
one step too long.

What the pipeline (GenAI 2026.4.1) does, found by trial and held by the tests:

* The first token of a reply comes from the prefill alone; prompt lookup drafts only after it.
  After each step a handle holds at most one output: 1 + accepted tokens of that verify step.
* Prompt lookup looks for the longest suffix of at most ``max_ngram_size`` tokens, down to one
  token, takes what follows its earliest occurrence, and never drafts past ``max_new_tokens``, so
  that the last step is not cut by the length. It tells nowhere how much it drafted.
* The end-of-text token is part of the ids, with finish reason STOP.
* A prompt longer than ``max_num_batched_tokens`` is prefilled in several steps (dynamic split
  fuse), which give no output for it. 2,048, vLLM's default as well, keeps a 1,000-token prompt
  in one step and bounds how long a long one holds up the other requests.
* Prefix caching is switched off: prompts that repeat would have no prefill to measure.
* When the cache runs out, a request is preempted. With prompt lookup that ends in a failed
  assertion of the sampler. The loop here therefore admits a request only when the cache holds it
  to its end, beside the admitted ones; the others wait, first come first served.
"""

import ctypes
import json
import signal
import sys
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from speedstudy.engines.guard import PR_SET_PDEATHSIG
from speedstudy.engines.openvino_protocol import BLOCK_TOKENS, reserved_tokens

CACHE_BYTES = {"f32": 4.0, "bf16": 2.0, "u8": 1.0}
U8_SCALE_BYTES = 8  # a float32 scale and zero point beside each head's vector


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How the pipeline is built.

    Attributes:
        model: Folder of the OpenVINO IR.
        method: ``none`` or ``ngram`` (prompt lookup).
        draft_tokens: Most tokens drafted per step; 0 for ``none``.
        max_ngram_size: Longest suffix that prompt lookup searches, in tokens.
        precision: Of the computation, ``f32`` or ``bf16``.
        kv_cache_precision: Of the key/value cache, ``f32``, ``bf16`` or ``u8``.
        threads: Inference threads.
        max_num_seqs: Most requests in the batch.
        max_num_batched_tokens: Most tokens in one step.
        cache_gib: Size of the key/value cache in GiB.
    """

    model: Path
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


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Message to the worker: a new request."""

    request_id: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int | None
    ignore_eos: bool


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Message to the worker: nobody waits for this request any more."""

    request_id: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """Message from the worker: what one engine step gave one request."""

    request_id: int
    token_ids: list[int]
    finish_reason: str | None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Message from the worker: the engine did not take or keep this request."""

    request_id: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Message from the worker, the first: the pipeline is built."""


@dataclass(frozen=True, kw_only=True)
class Dead:
    """Message from the worker, the last: the engine failed."""

    message: str


def read_facts(options: WorkerOptions) -> ModelFacts:
    """Return the model's limits from ``config.json`` and ``generation_config.json``.

    Raises:
        ValueError: The folder is no converted model.
    """
    for name in ("openvino_model.xml", "config.json", "generation_config.json"):
        if not (options.model / name).is_file():
            raise ValueError(f"{options.model}: no {name}; convert the model first")
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    generation = json.loads((options.model / "generation_config.json").read_text(encoding="utf-8"))
    end = generation.get("eos_token_id", config.get("eos_token_id"))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    vector_bytes = head_dim * CACHE_BYTES[options.kv_cache_precision]
    if options.kv_cache_precision == "u8":
        vector_bytes += U8_SCALE_BYTES
    token_bytes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * vector_bytes
    blocks = int(options.cache_gib * 2**30 / (token_bytes * BLOCK_TOKENS))
    return ModelFacts(
        vocabulary=config["vocab_size"],
        context_tokens=config["max_position_embeddings"],
        cache_tokens=blocks * BLOCK_TOKENS,
        end_token_ids=frozenset([end] if isinstance(end, int) else end or []),
    )


def run_worker(connection: Connection, options: WorkerOptions) -> None:
    """Build the pipeline, serve until the connection closes; the worker process's main."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the server, which ends us
    if sys.platform == "linux":  # the closed connection is noticed only between two steps
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        facts = read_facts(options)
        pipeline = _build_pipeline(options, facts)
        connection.send(Ready())
        StepLoop(connection, pipeline, options, facts).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the server is gone
    except Exception as error:  # whatever the engine throws, the server must hear of it
        message = " ".join(str(error).split()) or repr(error)
        print(f"openvino worker: {message}", file=sys.stderr, flush=True)
        connection.send(Dead(message=message))


def _build_pipeline(options: WorkerOptions, facts: ModelFacts) -> Any:
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = facts.cache_tokens // BLOCK_TOKENS
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    scheduler.max_num_seqs = options.max_num_seqs
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    properties: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": options.precision,
        "KV_CACHE_PRECISION": options.kv_cache_precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else activations become int8 behind our back
        "INFERENCE_NUM_THREADS": options.threads,
        # A pinned thread can't move away from the client, which shares the cores with it.
        "ENABLE_CPU_PINNING": False,
    }
    if options.method == "ngram":
        properties["prompt_lookup"] = True
    return genai.ContinuousBatchingPipeline(str(options.model), scheduler, "CPU", properties)


class StepLoop:
    """Steps the pipeline while there is work and reports each step in one message.

    A message is the list of what the step gave each request, in order of admission.
    """

    def __init__(
        self, connection: Connection, pipeline: Any, options: WorkerOptions, facts: ModelFacts
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._options = options
        self._facts = facts
        self._waiting: deque[Submit] = deque()
        self._live: dict[int, tuple[Any, int]] = {}  # handle, reserved cache tokens

    def run(self) -> None:
        """Serve until the connection closes (EOFError) or the engine throws."""
        while True:
            self._receive()
            self._admit()
            if self._live:
                self._pipeline.step()
                news = self._collect()
                if news:
                    self._connection.send(news)

    def _receive(self) -> None:
        """Take in all messages that are there; wait for one if there is nothing to do."""
        while self._connection.poll(None if not (self._live or self._waiting) else 0):
            message = self._connection.recv()
            if isinstance(message, Submit):
                self._waiting.append(message)
            else:
                self._waiting = deque(
                    w for w in self._waiting if w.request_id != message.request_id
                )
                handle, _ = self._live.pop(message.request_id, (None, 0))
                if handle is not None:
                    handle.cancel()  # the next step frees its cache blocks

    def _admit(self) -> None:
        while self._waiting and len(self._live) < self._options.max_num_seqs:
            request = self._waiting[0]
            total = len(request.prompt) + request.max_tokens
            reserve = reserved_tokens(total, self._options.draft_tokens)
            held = sum(reserved for _, reserved in self._live.values())
            if held + reserve > self._facts.cache_tokens:
                return
            self._waiting.popleft()
            try:
                handle = self._add(request)
            except RuntimeError as error:
                self._connection.send([Refused(request_id=request.request_id, message=str(error))])
            else:
                self._live[request.request_id] = (handle, reserve)

    def _add(self, request: Submit) -> Any:
        import numpy as np
        import openvino as ov
        import openvino_genai as genai

        config = genai.GenerationConfig()
        config.max_new_tokens = request.max_tokens
        config.ignore_eos = request.ignore_eos
        if not request.ignore_eos:
            config.stop_token_ids = set(self._facts.end_token_ids)
        config.do_sample = request.temperature > 0
        if config.do_sample:
            config.temperature = request.temperature
            if request.seed is not None:
                config.rng_seed = request.seed
        if self._options.method == "ngram":
            config.num_assistant_tokens = self._options.draft_tokens
            config.max_ngram_size = self._options.max_ngram_size
        prompt = ov.Tensor(np.array([request.prompt], dtype=np.int64))
        return self._pipeline.add_request(request.request_id, prompt, config)

    def _collect(self) -> list[Step | Refused]:
        import openvino_genai as genai

        reasons = {
            genai.GenerationFinishReason.STOP: "stop",
            genai.GenerationFinishReason.LENGTH: "length",
        }
        news: list[Step | Refused] = []
        for request_id, (handle, _) in list(self._live.items()):
            while handle.can_read():
                for output in handle.read().values():
                    news.append(
                        Step(
                            request_id=request_id,
                            token_ids=list(output.generated_ids),
                            finish_reason=reasons.get(output.finish_reason),
                        )
                    )
            status = handle.get_status()
            if status == genai.GenerationStatus.RUNNING:
                continue
            del self._live[request_id]
            if status != genai.GenerationStatus.FINISHED:
                message = f"the engine ended the request with status {status.name}"
                news.append(Refused(request_id=request_id, message=message))
        return news
