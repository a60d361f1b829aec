"""A FIXTURE: a TCP server that answers requests with given bytes, sound HTTP or not."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

BODY = (
    b'data: {"choices": [{"token_ids": [11]}]}\n\n'
    b'data: {"choices": [{"token_ids": [12], "finish_reason": "length"}]}\n\n'
    b"data: [DONE]\n\n"
)


def with_length(head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (head, len(BODY), BODY)


@dataclass
class RawServer:
    """A context manager that runs the server in a thread.

    ``reply`` gives the bytes for the n-th request, from 0; None closes without any. After a reply
    the server closes where ``close`` says so, or when the connection was idle for ``idle_s``.
    """

    reply: Callable[[int], bytes | None]
    close: bool = False
    idle_s: float = 60.0
    tls: ssl.SSLContext | None = None
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

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
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self.tls)
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
        started.set()
        await self._end.wait()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
        self.connections += 1
        try:
            while True:
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.idle_s)
                size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(size or 0))
                if head.startswith(b"GET"):  # counters and version, which it does not have
                    writer.write(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.requests.append(body)
                reply = self.reply(len(self.requests) - 1)
                if reply is None:
                    break
                writer.write(reply)
                await writer.drain()
                if self.close:
                    break
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
