"""One connection and the exchange that is open on it: the hot path.

aiohttp opens the connection (names, addresses, TLS); the reply does not go through its stream
reader, which costs 20 us a chunk and more. A read costs a time stamp, keeping the bytes and a
look at the size of its chunk, by which the end of a reply is known at once and for certain; all
else waits until the load is over.
"""

import asyncio
import os
from collections.abc import Callable
from time import perf_counter
from typing import cast

import aiohttp

from speedstudy.client.exchange import Exchange, Failure
from speedstudy.client.framing import Framing

# Below the 5 s after which uvicorn closes an idle connection, so that a request never meets a
# connection that the server is just closing.
KEEPALIVE_S = 4.0


def keep_nothing(_: object) -> None:
    """Take what arrives while no exchange is open."""


class Link(asyncio.Protocol):
    """A connection to the server.

    Attributes:
        exchange: The exchange that is open, or None.
    """

    def __init__(self, on_end: Callable[[Exchange, int | None], None]) -> None:
        """Prepare a link.

        Args:
            on_end: Called with each exchange that has ended, and the HTTP status of its reply.
        """
        self.exchange: Exchange | None = None
        self._on_end = on_end
        self._connection: aiohttp.connector.Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._socket: int | None = None  # its file, where bytes go out as they are
        self._rested_s = 0.0
        self._keep_time: Callable[[float], None]
        self._keep_read: Callable[[bytes], None]
        self._framing: Framing
        self._one_chunk: Callable[[bytes], int]
        self._looked_at: int  # number of the last read that was not just one chunk
        self._body_seen: bool  # by then
        self._rest()

    async def connect(
        self,
        connector: aiohttp.TCPConnector,
        request: aiohttp.ClientRequest,
        timeout: aiohttp.ClientTimeout,
    ) -> None:
        """Open the connection that ``request`` would go out on; nothing is sent.

        Raises:
            aiohttp.ClientError, OSError, TimeoutError: It cannot be had.
        """
        self._connection = await connector.connect(request, [], timeout)
        transport = cast(asyncio.Transport, self._connection.transport)
        transport.set_protocol(self)
        plain = not request.is_ssl()
        self.attach(transport, transport.get_extra_info("socket").fileno() if plain else None)

    def attach(self, transport: asyncio.Transport, socket: int | None) -> None:
        """Take over an open connection; ``socket`` is its file, None where TLS is in between."""
        self._transport, self._socket = transport, socket
        self._rested_s = perf_counter()

    def usable(self, at_s: float) -> bool:
        """Whether a request may be sent at that time.

        That is where it is open, not idle for too long then, and where nothing is left of an
        earlier request that was answered before it had all gone out.
        """
        transport = self._transport
        return (
            transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
            and at_s - self._rested_s < KEEPALIVE_S
        )

    def send(self, exchange: Exchange, request: bytes) -> bool:
        """Send a request; returns False if the connection turned out dead before any byte left.

        The bytes go to the socket at once: uvloop's transport would hold them until all reads of
        this turn of the loop are worked off, milliseconds at a thousand streams.
        """
        assert self._transport is not None
        self.exchange = exchange
        self._keep_time, self._keep_read = exchange.read_s.append, exchange.reads.append
        exchange.sent_s = perf_counter()
        if self._socket is None:
            self._transport.write(request)
            return True
        try:
            written = os.write(self._socket, request)
        except BlockingIOError:
            written = 0
        except OSError:
            exchange.sent_s = None
            self._rest()
            self.close()
            return False
        if written < len(request):
            self._transport.write(request[written:])
        return True

    def data_received(self, data: bytes) -> None:
        """Stamp and keep a read."""
        self._keep_time(perf_counter())
        self._keep_read(data)
        if not self._one_chunk(data):
            self._look_for_end(data)

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange that was open, well if its reply ends with the connection."""
        self._transport = self._socket = None
        exchange = self.exchange
        if exchange is not None:
            whole = error is None and self._framing.close()
            self._end(exchange, None if whole else self._cut(exchange, error))
        self._release()

    def abort(self, failure: Failure) -> None:
        """End the open exchange, if there is one; it keeps what it has received."""
        if self.exchange is not None:
            self._end(self.exchange, failure)

    def close(self) -> None:
        """Close the connection, if it is open."""
        transport = self._transport
        self._transport = self._socket = None
        if transport is not None:
            transport.abort()
        self._release()

    def answered(self) -> bool:
        """Whether bytes of the body have come; the head of a stream comes long before its token."""
        exchange = self.exchange
        return exchange is not None and (self._body_seen or len(exchange.reads) > self._looked_at)

    def _look_for_end(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:  # a server that speaks unasked: whose reply would come next?
            self.close()
            return
        self._looked_at = len(exchange.reads)
        try:
            self._body_seen |= bool(self._framing.feed(data))
        except ValueError as error:
            self._end(exchange, Failure("error", f"the reply is not sound HTTP: {error}"))
            return
        if self._framing.done:
            self._end(exchange, None)

    def _cut(self, exchange: Exchange, error: Exception | None) -> Failure:
        why = "" if error is None else f" ({type(error).__name__}: {error})"
        if not exchange.reads:
            return Failure("error", f"the server closed the connection without a reply{why}")
        return Failure("incomplete", f"the server closed the connection within the reply{why}")

    def _end(self, exchange: Exchange, failure: Failure | None) -> None:
        exchange.failure = failure
        exchange.ended_s = exchange.read_s[-1] if failure is None else perf_counter()
        head, surplus = self._framing.head, self._framing.surplus
        self._rest()
        self._rested_s = exchange.ended_s
        if failure is not None or head is None or not head.reusable or surplus:
            self.close()
        self._on_end(exchange, None if head is None else head.status)

    def _rest(self) -> None:
        """Forget the exchange, ready for the next."""
        self.exchange = None
        self._keep_time = self._keep_read = keep_nothing
        self._framing = Framing()
        self._one_chunk = self._framing.one_chunk
        self._looked_at = 0
        self._body_seen = False

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
