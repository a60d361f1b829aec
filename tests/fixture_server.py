"""A FIXTURE: an HTTP server that plays scripted replies, right ones and broken ones.

It runs no model. Every answer carries ``Server: speedstudy-fixture``. It runs in a thread of the
test, speaks vLLM's completion dialect and counts what a client does to it.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

SERVER_NAME = "speedstudy-fixture"


@dataclass(kw_only=True)
class Script:
    """One reply.

    ``blocks`` are the token ids of each event. ``usage`` is ``alone`` (an event of its own),
    ``last`` (in the last block's event) or ``none``. ``fault`` is None or

    * ``status``: HTTP 500 with a text,
    * ``error_event``: an error object in the stream after the blocks,
    * ``reset``: the connection is cut in the middle of the next event after the blocks,
    * ``stall``: nothing more comes after the blocks,
    * ``silent``: no byte of an answer ever comes,
    * ``cut``: the stream ends properly after the blocks, without finish reason or end mark.
    """

    blocks: Sequence[Sequence[int]] = ((11,), (12,))
    speculative: dict[str, Any] | None = None
    usage: str = "alone"
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    finish_reason: str | None = "length"
    done: bool = True
    newline: bytes = b"\n"
    piece_bytes: int | None = None
    one_write: bool = False
    fault: str | None = None

    def events(self, prompt_ids: Sequence[int]) -> list[bytes]:
        """Payloads of the whole reply, in order."""
        n = sum(len(block) for block in self.blocks)
        usage: dict[str, Any] = {
            "prompt_tokens": len(prompt_ids) if self.prompt_tokens is None else self.prompt_tokens,
            "completion_tokens": n,
            "total_tokens": len(prompt_ids) + n,
        }
        if self.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        payloads: list[dict[str, Any]] = []
        for index, block in enumerate(self.blocks):
            choice: dict[str, Any] = {"index": 0, "text": "", "token_ids": list(block)}
            if index == 0:
                choice["prompt_token_ids"] = list(prompt_ids)
            last = index == len(self.blocks) - 1
            choice["finish_reason"] = self.finish_reason if last and not self.fault else None
            payloads.append({"id": "cmpl-1", "choices": [choice]})
        if self.fault is None and self.usage == "alone":
            payloads.append({"choices": [], "usage": usage})
        elif self.fault is None and self.usage == "last" and payloads:
            payloads[-1]["usage"] = usage
        if self.speculative is not None and payloads:
            payloads[-1]["metrics"] = {"speculative_decoding": self.speculative}
        if self.fault == "error_event":
            payloads.append({"error": {"message": "engine died", "code": 500}})
        events = [json.dumps(payload).encode() for payload in payloads]
        return [*events, b"[DONE]"] if self.done and self.fault is None else events


@dataclass
class FixtureServer:
    """The server; a context manager that runs it.

    ``script`` gives the reply to the n-th completion request (from 0) by its body. With
    ``hold`` set, replies wait until so many are in flight at once. After ``dies_after`` requests
    it closes its door and cuts every connection.
    """

    script: Callable[[int, dict[str, Any]], Script] = lambda number, body: Script()
    hold: int = 0
    dies_after: int | None = None
    metrics_texts: Sequence[str] = ()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    sockets: set[Any] = field(default_factory=set)

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._end, self._full = asyncio.get_running_loop(), asyncio.Event(), None
        self._full = asyncio.Event()
        self._scrapes = 0
        app = web.Application()
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._version)
        app.on_response_prepare.append(self._sign)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        started.set()
        await self._end.wait()
        await self._runner.cleanup()

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER_NAME

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "fixture"})

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self.metrics_texts:
            return web.Response(status=404)
        text = self.metrics_texts[min(self._scrapes, len(self.metrics_texts) - 1)]
        self._scrapes += 1
        return web.Response(text=text)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        body = await request.json()
        number = len(self.bodies)
        self.bodies.append(body)
        self.sockets.add(request.transport.get_extra_info("peername"))
        if self.dies_after is not None and number >= self.dies_after:
            for site in list(self._runner.sites):
                await site.stop()
            request.transport.abort()
            return web.Response()
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        if self.hold and self.in_flight >= self.hold:
            self._full.set()
        try:
            if self.hold:
                await self._full.wait()
            return await self._play(request, self.script(number, body), body["prompt"])
        finally:
            self.in_flight -= 1

    async def _play(
        self, request: web.Request, script: Script, prompt_ids: Sequence[int]
    ) -> web.StreamResponse:
        if script.fault == "status":
            return web.Response(status=500, text="out of memory")
        if script.fault == "silent":
            await asyncio.sleep(60)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        end = script.newline
        frames = [b"data: " + event + end + end for event in script.events(prompt_ids)]
        if script.one_write:
            frames = [b"".join(frames)]
        for frame in frames:
            size = script.piece_bytes or len(frame)
            for start in range(0, len(frame), size):
                await response.write(frame[start : start + size])
        if script.fault == "stall":
            await asyncio.sleep(60)
        if script.fault == "reset":
            await response.write(b'data: {"choices": [{"tok')
            await asyncio.sleep(0.05)  # let the bytes out before the connection goes
            assert request.transport is not None
            request.transport.abort()
        await response.write_eof()
        return response
