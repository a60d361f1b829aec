"""The fixture's HTTP server."""

import asyncio
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from fixture_server.script import Script
from fixture_server.wire import WIRES, Tally

SERVER_NAME = "speedstudy-fixture"


@dataclass
class FixtureServer:
    """The server; a context manager that runs it in a thread.

    ``script`` gives the reply to the n-th completion request (from 0) by its body. With
    ``hold`` set, replies wait until so many are in flight at once. After ``dies_after`` requests
    it closes its door and cuts the connection (a process ends). For ``accept_delay_s`` it accepts
    no connection, which the kernel queues. ``counters`` makes it serve those of its dialect,
    counted from the scripts played; ``metrics_texts`` are served in their place, one a scrape.
    """

    script: Callable[[int, dict[str, Any]], Script] = lambda number, body: Script()
    dialect: str = "vllm"
    hold: int = 0
    dies_after: int | None = None
    exit_on_death: bool = False
    accept_delay_s: float = 0.0
    port: int = 0
    counters: bool = False
    metrics_texts: Sequence[str] = ()
    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    max_in_flight: int = 0
    sockets: set[Any] = field(default_factory=set)
    tally: Tally = field(default_factory=Tally)

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve(started.set)))
        self._thread.start()
        started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve until told to end; ``url`` is there once ``started`` is called."""
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._full = asyncio.Event()
        self._scrapes = 0
        self._wire = WIRES[self.dialect]
        app = web.Application()
        app.router.add_post(self._wire.route, self._complete)
        app.router.add_get(self._wire.counter_route, self._metrics)
        app.router.add_get("/health", self._version)
        app.router.add_get("/version", self._version)
        app.router.add_get("/fixture/seen", self._seen)
        app.on_response_prepare.append(self._sign)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        door = socket.create_server(("127.0.0.1", self.port), backlog=8192)
        self.url = f"http://127.0.0.1:{door.getsockname()[1]}"
        started()
        if self.accept_delay_s:
            await asyncio.sleep(self.accept_delay_s)
        await web.SockSite(self._runner, door, backlog=8192).start()
        await self._end.wait()
        await self._runner.cleanup()

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER_NAME

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "fixture"})

    async def _seen(self, request: web.Request) -> web.Response:
        """What clients did so far, for a test in another process."""
        return web.json_response(
            {
                "name": SERVER_NAME,
                "requests": len(self.bodies),
                "bodies": self.bodies,
                "in_flight": self.in_flight,
                "max_in_flight": self.max_in_flight,
                "sockets": len(self.sockets),
            }
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.counters:
            return web.Response(text=self.tally.text(self.dialect))
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
            return await self._die(request)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        if self.hold and self.in_flight >= self.hold:
            self._full.set()
        try:
            if self.hold:
                await self._full.wait()
            script = self.script(number, body)
            self.tally.add(script)
            return await self._play(request, script, body[self._wire.prompt_field])
        finally:
            self.in_flight -= 1

    async def _die(self, request: web.Request) -> web.StreamResponse:
        if self.exit_on_death:
            os._exit(1)
        for site in list(self._runner.sites):
            await site.stop()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def frames(self, script: Script, prompt_ids: Sequence[int]) -> list[tuple[int, bytes]]:
        """The events of a reply as bytes, each with the index of the block it is sent with."""
        payloads = WIRES[self.dialect].payloads(script, prompt_ids)
        last = max(len(script.blocks) - 1, 0)
        if script.fault == "error_event":
            payloads.append((last, {"error": {"message": "engine died", "code": 500}}))
        end = script.newline
        frames = [
            (block, b"data: " + json.dumps(payload, ensure_ascii=False).encode() + end + end)
            for block, payload in payloads
        ]
        if script.done and script.fault is None and WIRES[self.dialect].end_mark:
            frames.append((last, b"data: [DONE]" + end + end))
        return frames

    async def _play(
        self, request: web.Request, script: Script, prompt_ids: Sequence[int]
    ) -> web.StreamResponse:
        if script.fault == "status":
            return web.Response(status=script.status, text=script.body)
        if script.fault == "silent":
            await asyncio.sleep(60)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        start = self._loop.time() + script.first_s
        frames = self.frames(script, prompt_ids)
        if script.one_write:
            frames = [(0, b"".join(frame for _, frame in frames))]
        for block, frame in frames:
            await asyncio.sleep(start + block * script.gap_s - self._loop.time())
            size = script.piece_bytes or len(frame)
            for first in range(0, len(frame), size):
                await response.write(frame[first : first + size])
        if script.fault == "stall":
            await asyncio.sleep(60)
        if script.fault == "reset":
            await response.write(b'data: {"choices": [{"tok')
            await asyncio.sleep(0.05)  # let the bytes out before the connection goes
            assert request.transport is not None
            request.transport.abort()
        await response.write_eof()
        return response
