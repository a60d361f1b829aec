"""OpenVINO GenAI behind vLLM's completion dialect, so that one client serves every engine.

``python -m speedstudy.engines.openvino_server --model OV_DIR ...``; ``--help`` tells the rest.

Routes: ``POST /v1/completions``, ``GET /health``, ``/version``, ``/v1/models`` and ``/metrics``.
One event per verify step, exactly, under load too: the worker process sends what each step gave
(``openvino_worker``), and here each request's share becomes one event and is written by itself.
A request whose client goes away is cancelled and its slot is free at the next step. When the
engine fails, open replies end with an error event and ``/health`` answers 500 from then on.
"""

import argparse
import asyncio
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from tokenizers import Tokenizer

from speedstudy.engines.openvino_counters import Counters
from speedstudy.engines.openvino_link import EngineFailed, Worker
from speedstudy.engines.openvino_messages import Refused, Step
from speedstudy.engines.openvino_options import CACHE_BYTES, WorkerOptions, read_facts
from speedstudy.engines.openvino_protocol import (
    Completion,
    Limits,
    RequestError,
    parse_request,
)

MAX_BODY_BYTES = 16 * 2**20  # a prompt of 2 million ids; the model's context is checked after
SHUTDOWN_TIMEOUT_S = 1.0
METHODS = ("none", "ngram", "draft_model", "eagle3")


class TextDecoder:
    """Turns the ids of a reply into text, piece by piece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._sent = 0

    def feed(self, token_ids: list[int], *, last: bool) -> str:
        """Return the text that is new; half a character waits for its other bytes."""
        self._ids.extend(token_ids)
        text: str = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd") and not last:
            return ""
        piece = text[self._sent :]
        self._sent = len(text)
        return piece


class CompletionServer:
    """The HTTP routes over one worker."""

    def __init__(
        self, worker: Worker, limits: Limits, tokenizer: Tokenizer, registry: CollectorRegistry
    ) -> None:
        self._worker = worker
        self._limits = limits
        self._tokenizer = tokenizer
        self._registry = registry
        self._counters = Counters(
            registry, limits.model, limits.draft_tokens, drafted_known=limits.drafted_known
        )

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        try:
            request = parse_request(await http.read(), self._limits)
            request_id, news = self._worker.open(request)
        except RequestError as error:
            return web.json_response(error.body(), status=error.status)
        except EngineFailed as error:
            return _failure(str(error))
        completion = Completion(
            reply_id=f"cmpl-{request_id}",
            created=int(time.time()),
            request=request,
            draft_tokens=self._limits.draft_tokens or None,
        )
        self._counters.prompt(len(request.prompt))
        reply = _Stream(http) if request.stream else None
        decoder = TextDecoder(self._tokenizer)
        try:
            while completion.finish_reason is None:
                item = await news.get()
                if not isinstance(item, Step):
                    message = item.message if isinstance(item, Refused) else str(item)
                    return await reply.fail(message) if reply else _failure(message)
                completion.add_step(item.token_ids, item.finish_reason, item.verify)
                self._counters.step(len(item.token_ids), item.verify)
                if reply:
                    text = ""
                    if not request.return_token_ids:
                        last = item.finish_reason is not None
                        text = decoder.feed(item.token_ids, last=last)
                    await reply.send(completion.event(item.token_ids, text))
        finally:  # also when the client went away, which cancels this handler
            self._worker.close(request_id, finished=completion.finish_reason is not None)
        self._counters.finished(completion.finish_reason)
        if reply:
            if request.stream_options is not None and request.stream_options.include_usage:
                await reply.send(completion.usage_event())
            return await reply.done()
        return web.json_response(completion.whole(decoder.feed(completion.token_ids, last=True)))

    async def _health(self, _: web.Request) -> web.Response:
        failure = self._worker.failure
        return web.Response() if failure is None else _failure(failure)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": version("openvino-genai")})

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._limits.model,
            "object": "model",
            "max_model_len": self._limits.context_tokens,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, _: web.Request) -> web.Response:
        headers = {"Content-Type": CONTENT_TYPE_LATEST}
        return web.Response(body=generate_latest(self._registry), headers=headers)


class _Stream:
    """The event stream of one reply; the headers go out with the first event.

    So a request that fails before its first token still gets its own HTTP status.
    """

    def __init__(self, http: web.Request) -> None:
        self._http = http
        self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

    async def send(self, body: dict[str, Any]) -> None:
        await self._write(orjson.dumps(body))

    async def done(self) -> web.StreamResponse:
        await self._write(b"[DONE]")
        await self._response.write_eof()
        return self._response

    async def fail(self, message: str) -> web.StreamResponse:
        if not self._response.prepared:
            return _failure(message)
        await self.send(RequestError(message, 500, "InternalServerError").body())
        return await self.done()

    async def _write(self, data: bytes) -> None:
        if not self._response.prepared:
            await self._response.prepare(self._http)
        await self._response.write(b"data: " + data + b"\n\n")


def _failure(message: str) -> web.Response:
    error = RequestError(message, 500, "InternalServerError")
    return web.json_response(error.body(), status=error.status)


def build_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(
        prog="python -m speedstudy.engines.openvino_server",
        description="Serve an OpenVINO model in vLLM's completion dialect, one event a step.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, help="folder made by convert.hf_to_openvino")
    add("--served-model-name", required=True, help="name that requests carry")
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, required=True, help="TCP port to listen on")
    add("--method", choices=METHODS, default="none", help="ngram is prompt lookup")
    add("--draft-model", type=Path, help="folder of the draft model or EAGLE-3 head")
    add("--num-draft-tokens", type=int, default=3, help="most tokens drafted per step")
    add("--max-ngram-size", type=int, default=3, help="longest suffix looked up, tokens (ngram)")
    add("--precision", choices=("f32", "bf16"), default="f32", help="of the computation")
    add("--kv-cache-precision", choices=tuple(CACHE_BYTES), default="f32", help="of the cache")
    add("--threads", type=int, default=2, help="inference threads; 0: OpenVINO chooses")
    add("--max-num-seqs", type=int, default=8, help="most requests in the batch")
    add("--max-num-batched-tokens", type=int, default=2048, help="most tokens in one step")
    add("--cache-gib", type=float, default=1.0, help="size of the key/value cache, GiB")
    return parser


def read_options(arguments: argparse.Namespace) -> WorkerOptions:
    """Return the worker's options.

    Raises:
        ValueError: Numbers that are not positive, precisions that OpenVINO does not combine, or
            a draft model where none is wanted or the other way round.
    """
    for name in (
        "num_draft_tokens",
        "max_ngram_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "cache_gib",
    ):
        if getattr(arguments, name) <= 0:
            raise ValueError(f"--{name.replace('_', '-')} must be greater than 0")
    if arguments.threads < 0:
        raise ValueError("--threads must be at least 0")
    if arguments.kv_cache_precision not in (arguments.precision, "u8"):
        raise ValueError(
            f"--kv-cache-precision {arguments.kv_cache_precision} does not go with --precision "
            f"{arguments.precision}; give {arguments.precision} or u8"
        )
    if (arguments.method in ("draft_model", "eagle3")) != (arguments.draft_model is not None):
        raise ValueError("--draft-model goes with --method draft_model or eagle3, and they with it")
    return WorkerOptions(
        model=arguments.model,
        draft_model=arguments.draft_model,
        method=arguments.method,
        draft_tokens=0 if arguments.method == "none" else arguments.num_draft_tokens,
        max_ngram_size=arguments.max_ngram_size,
        precision=arguments.precision,
        kv_cache_precision=arguments.kv_cache_precision,
        threads=arguments.threads,
        max_num_seqs=arguments.max_num_seqs,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        cache_gib=arguments.cache_gib,
    )


def main() -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    started = time.monotonic()
    arguments = build_parser().parse_args()
    try:
        options = read_options(arguments)
        facts = read_facts(options)
    except ValueError as error:
        print(f"openvino server: {error}", file=sys.stderr)
        return 2
    worker = Worker(options)
    try:
        worker.wait_ready()
        limits = Limits(
            model=arguments.served_model_name,
            vocabulary=facts.vocabulary,
            context_tokens=facts.context_tokens,
            cache_tokens=facts.cache_tokens,
            draft_tokens=options.draft_tokens,
            drafted_known=options.draft_model is not None,
            greedy_only=options.method == "eagle3",
        )
        tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
        app = CompletionServer(worker, limits, tokenizer, CollectorRegistry()).app()

        async def announce(_: web.Application) -> None:
            worker.attach(asyncio.get_running_loop())
            print(
                f"openvino server: ready after {time.monotonic() - started:.1f} s, serving "
                f"{limits.model} with {options}",
                file=sys.stderr,
                flush=True,
            )

        app.on_startup.append(announce)
        web.run_app(
            app,
            host=arguments.host,
            port=arguments.port,
            print=None,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
    except (EngineFailed, OSError) as error:
        print(f"openvino server: {error}", file=sys.stderr)
        return 1
    finally:
        worker.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
