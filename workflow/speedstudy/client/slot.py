"""One place of a load's concurrency: sends a conversation, then takes the next.

A slot goes on in the callback that ends its exchange: a closed loop has the next request out
before the event loop looks at another read; the old exchange is written down later.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from speedstudy.client.answer import reply_ids
from speedstudy.client.exchange import Exchange, Failure
from speedstudy.client.link import Link
from speedstudy.client.outbox import raw_request
from speedstudy.workload import continue_ids

if TYPE_CHECKING:
    from speedstudy.client.worker import Worker

RENEW_AHEAD_S = 0.5  # a stale connection is renewed so long before its request is due
CONNECT_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


class Slot:
    """A slot of a worker.

    Attributes:
        link: Its connection; another one after each that broke.
    """

    def __init__(self, worker: "Worker", start_s: float) -> None:
        """Prepare a slot that begins ``start_s`` seconds after the worker."""
        self.link = Link(self._on_end)
        self._worker = worker
        self._start_s = start_s
        self._ids: Sequence[int] = ()  # the history of the conversation, once it has turns
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def begin(self) -> None:
        """Take the first conversation, now or when the slot begins."""
        begins_s = self._worker.start_s + self._start_s
        if self._start_s:
            self._wait(begins_s - perf_counter(), self._next, begins_s)
        else:
            self._next(begins_s)

    def stop(self, failure: Failure) -> None:
        """End: an open exchange is cut, what was not sent yet never is."""
        if self.link.exchange is not None:
            self.link.abort(failure)
        else:
            self._finish()

    async def renew(self) -> None:
        """Replace the connection; raises ``CONNECT_ERRORS`` if there is none to be had."""
        self.link.close()
        self.link = Link(self._on_end)
        await self._worker.open_link(self.link)

    def _next(self, free_s: float) -> None:
        """Take the next conversation; the slot has been free since ``free_s``."""
        job = self._worker.next_job()
        if job is None:
            self._finish()
            return
        due_s = self._worker.due_s(job)
        exchange = Exchange(
            job=job,
            turn=0,
            scheduled_s=free_s if due_s is None else due_s,
            ready_s=free_s if due_s is None else max(free_s, due_s),
        )
        self._send_when_ready(exchange, self._worker.first_request(job))

    def _send_when_ready(self, exchange: Exchange, request: bytes) -> None:
        now = perf_counter()
        wait_s = exchange.ready_s - now
        if self.link.usable(max(now, exchange.ready_s)):
            if wait_s > 0:
                self._wait(wait_s, self._send_when_ready, exchange, request)
            elif not self.link.send(exchange, request):
                self._connect(exchange, request)
        elif wait_s > RENEW_AHEAD_S:
            self._wait(wait_s - RENEW_AHEAD_S, self._send_when_ready, exchange, request)
        else:
            self._connect(exchange, request)

    def _connect(self, exchange: Exchange, request: bytes) -> None:
        self._worker.spawn(self._connect_and_send(exchange, request))

    async def _connect_and_send(self, exchange: Exchange, request: bytes) -> None:
        try:
            await self.renew()
        except CONNECT_ERRORS as error:
            limit_s = self._worker.share.options.timeouts.connect_s
            exchange.failure = (
                Failure("timeout", f"no connection in {limit_s:g} s")
                if isinstance(error, TimeoutError)
                else Failure("error", f"{type(error).__name__}: {error}".rstrip(": "))
            )
            exchange.ended_s = perf_counter()
            if not self._over:
                self._on_end(exchange, None)
            return
        if self._over:
            self.link.close()
        else:
            self._send_when_ready(exchange, request)

    def _on_end(self, exchange: Exchange, status: int | None) -> None:
        """Go on with the conversation or the next one, then hand over what has ended."""
        if not self._continue(exchange):
            self._next(exchange.ended_s)
        self._worker.keep(exchange, status)

    def _continue(self, exchange: Exchange) -> bool:
        """Send the next turn, if there is one and the reply can be continued."""
        worker = self._worker
        turns, turn = worker.turns(exchange.job), exchange.turn + 1
        if turn >= len(turns) or worker.stop_reason is not None:
            return False
        received = reply_ids(exchange, worker.share.dialect)
        if received is None:
            return False
        sent = turns[0] if turn == 1 else self._ids
        self._ids = continue_ids(sent, received, turns[turn])
        options = worker.share.options
        dialect = worker.share.dialect
        body = orjson.dumps(dialect.body(options.model, self._ids, options.sampling))
        following = Exchange(
            job=exchange.job, turn=turn, scheduled_s=exchange.ended_s, ready_s=exchange.ended_s
        )
        request = raw_request(worker.url, body, keep=dialect.keeps_connections)
        self._send_when_ready(following, request)
        return True

    def _wait(self, delay_s: float, then: Callable[..., None], *arguments: Any) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, delay_s), then, *arguments)

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            self._worker.slot_done()
