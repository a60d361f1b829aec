"""One HTTP exchange: bytes out, bytes and their time stamps in.

The hot path does two things to a read: a time stamp, and keeping the bytes. Nothing is decoded
here. Limits on waiting are enforced by one watchdog for all requests, which looks at the stamps
that are there anyway, so that a timeout costs the hot path nothing.
"""

import asyncio
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import Self

import aiohttp

from speedstudy.records import Outcome

# Limits are enforced to within this.
WATCH_EVERY_S = 0.25
# Below the 5 s after which uvicorn closes an idle connection, so that a request never meets a
# connection that the server is just closing.
KEEPALIVE_S = 4.0
# One read of a streamed reply is far smaller; a larger buffer only keeps aiohttp from pausing.
READ_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long a request may wait, in seconds from when it was sent or last heard of.

    Attributes:
        connect_s: For the connection.
        first_token_s: For the first bytes of the reply.
        between_tokens_s: For more bytes after the last.
        total_s: For the whole reply.
    """

    connect_s: float = 10.0
    first_token_s: float = 600.0
    between_tokens_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange did not come to its end.

    Attributes:
        outcome: ``incomplete`` (cut after some bytes), ``error``, ``timeout`` or ``cancelled``.
        text: What happened; never empty.
    """

    outcome: Outcome
    text: str


@dataclass(slots=True)
class Exchange:
    """What one exchange brought; times are of ``time.perf_counter``.

    Attributes:
        sent_s: When the request was handed to the connection.
        status: HTTP status, or None if no answer came.
        reads: The body as the network cut it.
        read_s: Arrival of each of ``reads``.
        ended_s: When it was over.
        failure: Why it broke, or None if the server ended it.
    """

    sent_s: float
    status: int | None = None
    reads: list[bytes] = field(default_factory=list)
    read_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    failure: Failure | None = None


class Transport:
    """One connection pool to one route, without a limit of its own.

    Attributes:
        session: The pool, also for the few requests that are not measured.
        max_in_flight: Most exchanges that were open at a time.
        received_bytes: Bytes of all bodies so far.
    """

    session: aiohttp.ClientSession

    def __init__(self, url: str, timeouts: Timeouts) -> None:
        self.max_in_flight = 0
        self.received_bytes = 0
        self._url = url
        self._timeouts = timeouts
        self._open: dict[asyncio.Task[object], Exchange] = {}

    async def __aenter__(self) -> Self:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s),
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._watchdog = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        await self.session.close()

    @property
    def in_flight(self) -> int:
        """Exchanges that are open now."""
        return len(self._open)

    async def post(self, body: bytes) -> Exchange:
        """Send one request and read its reply to the end; failures are in the exchange.

        Nothing is ever sent again. Raises only what the caller's own cancellation raises.
        """
        task = asyncio.current_task()
        assert task is not None
        exchange = Exchange(sent_s=perf_counter())
        self._open[task] = exchange
        self.max_in_flight = max(self.max_in_flight, len(self._open))
        try:
            async with self.session.post(self._url, data=body) as response:
                exchange.status = response.status
                async for read in response.content.iter_any():
                    exchange.read_s.append(perf_counter())
                    exchange.reads.append(read)
                    self.received_bytes += len(read)
        except asyncio.CancelledError:
            if exchange.failure is None:
                raise
            task.uncancel()  # it was ``abort``, which has said why
        except aiohttp.ServerTimeoutError:
            exchange.failure = Failure("timeout", f"no connection in {self._timeouts.connect_s} s")
        except (aiohttp.ClientError, OSError) as error:
            outcome: Outcome = "incomplete" if exchange.reads else "error"
            exchange.failure = Failure(outcome, f"{type(error).__name__}: {error}".rstrip(": "))
        finally:
            exchange.ended_s = perf_counter()
            del self._open[task]
        return exchange

    def abort_all(self, failure: Failure) -> None:
        """End every open exchange; each keeps what it has received."""
        for task, exchange in list(self._open.items()):
            self._abort(task, exchange, failure)

    @staticmethod
    def _abort(task: asyncio.Task[object], exchange: Exchange, failure: Failure) -> None:
        if exchange.failure is None:
            exchange.failure = failure
            task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            now = perf_counter()
            for task, exchange in list(self._open.items()):
                text = _overdue(exchange, now, self._timeouts)
                if text is not None:
                    self._abort(task, exchange, Failure("timeout", text))


def _overdue(exchange: Exchange, now: float, limits: Timeouts) -> str | None:
    """Which limit an open exchange has crossed, in words, or None."""
    if now - exchange.sent_s > limits.total_s:
        return f"not finished {limits.total_s} s after it was sent"
    if not exchange.read_s:
        if now - exchange.sent_s > limits.first_token_s:
            return f"no first token {limits.first_token_s} s after it was sent"
    elif now - exchange.read_s[-1] > limits.between_tokens_s:
        return f"no more tokens {limits.between_tokens_s} s after the last"
    return None
