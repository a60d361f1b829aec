"""The process that owns OpenVINO's pipeline: steps it and sends what each step gave.

It is a process of its own because ``ContinuousBatchingPipeline.step()`` keeps Python's
interpreter lock until it returns (one tick of a 5 ms timer during a step of 3 s): in one process
the tokens of a step would reach the socket only after the *next* step, and every latency would be
one step too long.

What the pipeline (GenAI 2026.4.1) does, found by trial and held by the tests:

* The first token of a reply comes from the prefill alone; every method drafts only after it.
  After each step a handle holds at most one output: 1 + accepted tokens of that verify step.
* Prompt lookup looks for the longest suffix of at most ``max_ngram_size`` tokens, down to one
  token, takes what follows its earliest occurrence, and never drafts past ``max_new_tokens``, so
  that the last step is not cut by the length. It tells nowhere how much it drafted.
* A draft model or an EAGLE-3 head drafts k tokens in every other step, fewer only near the length
  limit (``draft_length``), and up to an end-of-text token that it drafts itself, whether the
  request ignores that token or not; nothing tells when. So that what was drafted is known, such a
  request gets an end-of-text token that no model can give, and replies are ended here: the engine
  goes on, and its request is cancelled, which costs a part of one step. Greedy text stays what it
  is without either. With a head sampled text becomes garbage, so it is refused.
* A draft model is taken only if its tokenizer and the target's are the same, so that both folders
  need OpenVINO's tokenizer, though only ids are sent.
* ``generate()`` counts drafted and accepted tokens, leaving out the step that ends a request;
  ``step()``, which alone serves requests that come and go, has no counters.
* The end-of-text token is part of the ids, with finish reason STOP.
* A prompt longer than ``max_num_batched_tokens`` is prefilled in several steps (dynamic split
  fuse), which give no output for it. 2,048, vLLM's default as well, keeps a 1,000-token prompt
  in one step and bounds how long a long one holds up the other requests.
* Prefix caching is switched off: prompts that repeat would have no prefill to measure.
* When the cache runs out, a request is preempted. With prompt lookup that ends in a failed
  assertion of the sampler. The loop here therefore admits a request only when the cache holds it
  to its end, beside the admitted ones; the others wait, first come first served.
"""

import os
import signal
import sys
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from speedstudy.engines.guard import die_with_parent
from speedstudy.engines.openvino_messages import Dead, Ready, Refused, Step, Submit
from speedstudy.engines.openvino_options import ModelFacts, WorkerOptions, read_facts
from speedstudy.engines.openvino_protocol import (
    BLOCK_TOKENS,
    Verify,
    draft_length,
    reserved_tokens,
)


def run_worker(connection: Connection, options: WorkerOptions) -> None:
    """Build the pipeline, serve until the connection closes; the worker process's main."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the server, which ends us
    # The closed connection is noticed only between two steps.
    die_with_parent(os.getppid(), signal.SIGKILL)
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

    properties: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": options.precision,
        "KV_CACHE_PRECISION": options.kv_cache_precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # else activations become int8 behind our back
        "INFERENCE_NUM_THREADS": options.threads,
        # A pinned thread can't move away from the client, which shares the cores with it.
        "ENABLE_CPU_PINNING": False,
    }
    drafting: dict[str, Any] = {}
    if options.method == "ngram":
        drafting["prompt_lookup"] = True
    if options.draft_model is not None:
        # Whether it is a head stands in its IR. Given no scheduler, it would get a part of the
        # target's cache in whole GiB.
        drafting["draft_model"] = genai.draft_model(
            str(options.draft_model),
            "CPU",
            scheduler_config=_scheduler(options, facts),
            **properties,
        )
    return genai.ContinuousBatchingPipeline(
        str(options.model), _scheduler(options, facts), "CPU", {**properties, **drafting}
    )


def _scheduler(options: WorkerOptions, facts: ModelFacts) -> Any:
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = facts.cache_tokens // BLOCK_TOKENS
    scheduler.max_num_batched_tokens = options.max_num_batched_tokens
    # Requests that were cancelled are in the next step beside the new ones.
    scheduler.max_num_seqs = 2 * options.max_num_seqs
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    return scheduler


@dataclass(kw_only=True)
class _Live:
    """A request in the engine.

    Attributes:
        request: What was asked.
        handle: The engine's.
        reserved: Cache tokens set aside for it.
        emitted: Tokens of the reply so far.
    """

    request: Submit
    handle: Any
    reserved: int
    emitted: int = 0


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
        self._ends_replies = options.draft_model is not None
        self._waiting: deque[Submit] = deque()
        self._live: dict[int, _Live] = {}
        self._leaving = 0  # cache tokens of cancelled requests, which the next step frees

    def run(self) -> None:
        """Serve until the connection closes (EOFError) or the engine throws."""
        while True:
            self._receive()
            self._admit()
            if self._live or (self._waiting and self._leaving):
                self._pipeline.step()
                self._leaving = 0
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
                live = self._live.pop(message.request_id, None)
                if live is not None:
                    self._cancel(live)

    def _cancel(self, live: _Live) -> None:
        live.handle.cancel()
        self._leaving += live.reserved

    def _admit(self) -> None:
        while self._waiting and len(self._live) < self._options.max_num_seqs:
            request = self._waiting[0]
            total = len(request.prompt) + request.max_tokens
            reserve = reserved_tokens(total, self._options.draft_tokens)
            held = self._leaving + sum(live.reserved for live in self._live.values())
            if held + reserve > self._facts.cache_tokens:
                return
            self._waiting.popleft()
            try:
                handle = self._add(request)
            except RuntimeError as error:
                self._connection.send([Refused(request_id=request.request_id, message=str(error))])
            else:
                self._live[request.request_id] = _Live(
                    request=request, handle=handle, reserved=reserve
                )

    def _add(self, request: Submit) -> Any:
        import numpy as np
        import openvino as ov
        import openvino_genai as genai

        config = genai.GenerationConfig()
        config.max_new_tokens = request.max_tokens
        config.ignore_eos = request.ignore_eos or self._ends_replies
        if self._ends_replies:
            config.eos_token_id = self._facts.vocabulary  # the first id that there is not
            config.stop_token_ids = {self._facts.vocabulary}
        elif not request.ignore_eos:
            config.stop_token_ids = set(self._facts.end_token_ids)
        config.do_sample = request.temperature > 0
        if config.do_sample:
            config.temperature = request.temperature
            if request.seed is not None:
                config.rng_seed = request.seed
        if self._options.method != "none":
            config.num_assistant_tokens = self._options.draft_tokens
        if self._options.method == "ngram":
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
        for request_id, live in list(self._live.items()):
            ended = False
            while not ended and live.handle.can_read():
                for output in live.handle.read().values():
                    reason = reasons.get(output.finish_reason)
                    step = self._step(live, list(output.generated_ids), reason)
                    news.append(step)
                    ended = step.finish_reason is not None
            status = live.handle.get_status()
            if status == genai.GenerationStatus.RUNNING and not ended:
                continue
            del self._live[request_id]
            if status == genai.GenerationStatus.RUNNING:
                self._cancel(live)
            elif status != genai.GenerationStatus.FINISHED:
                message = f"the engine ended the request with status {status.name}"
                news.append(Refused(request_id=request_id, message=message))
        return news

    def _step(self, live: _Live, token_ids: list[int], reason: str | None) -> Step:
        """Account for what a step gave a request; ends the reply where that is for us to do.

        Raises:
            RuntimeError: More was accepted than can have been drafted.
        """
        verify = None
        if self._options.method != "none" and live.emitted and token_ids:
            verify = self._verify(live, len(token_ids) - 1)
        if self._ends_replies and not live.request.ignore_eos:
            for index, token_id in enumerate(token_ids):
                if token_id in self._facts.end_token_ids:
                    token_ids, reason = token_ids[: index + 1], "stop"
                    break
        live.emitted += len(token_ids)
        return Step(
            request_id=live.request.request_id,
            token_ids=token_ids,
            finish_reason=reason,
            verify=verify,
        )

    def _verify(self, live: _Live, accepted: int) -> Verify:
        if self._options.method == "ngram":
            return Verify(drafted=None, accepted=accepted)
        drafted = draft_length(self._options.draft_tokens, live.request.max_tokens, live.emitted)
        if accepted > drafted:
            raise RuntimeError(f"{accepted} draft tokens accepted of {drafted}; another version?")
        return Verify(drafted=drafted, accepted=accepted)
