"""HTTP/1.1 replies out of bytes, however the network cut them.

The head is read by aiohttp's own parser. The framing of the body (RFC 9112, section 6) is read
here and not there: which read brought which bytes of the body is what the time stamps hang on,
and aiohttp's parser hands every chunk to a stream reader at several times the cost. The same code
finds the end of a reply while the load runs and its contents afterwards.
"""

from dataclasses import dataclass
from functools import lru_cache

from aiohttp.http import HttpProcessingError, HttpResponseParser

LINE_END = b"\r\n"
HEAD_END = b"\r\n\r\n"
MOST_HEAD_BYTES = 1 << 16
STATUSES_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a reply says.

    Attributes:
        status: HTTP status.
        reusable: Whether another request may follow on the connection.
        chunked: Whether the body is in chunks.
        length: Bytes of a body that is not; None: it ends with the connection.
        encoding: Its content encoding, or None.
    """

    status: int
    reusable: bool
    chunked: bool
    length: int | None
    encoding: str | None


@lru_cache(maxsize=1024)
def parse_head(data: bytes) -> Head:
    """Return what a head says; the heads of a server differ once a second, so they are kept.

    Raises:
        ValueError: It is not the head of an HTTP reply.
    """
    # aiohttp's parser needs neither protocol nor event loop where it is told of no body.
    parser = HttpResponseParser(None, None, MOST_HEAD_BYTES, response_with_body=False)
    try:
        messages, _, _ = parser.feed_data(data)
    except HttpProcessingError as error:
        raise ValueError(" ".join(str(error.message).split())) from error
    message = messages[0][0]
    length = message.headers.get("Content-Length")
    if message.chunked:
        length = None
    elif message.code in STATUSES_WITHOUT_BODY:
        length = "0"
    framed = message.chunked or length is not None
    return Head(
        status=message.code,
        reusable=framed and not message.should_close,
        chunked=message.chunked,
        length=None if length is None else int(length),
        encoding=message.headers.get("Content-Encoding"),
    )


class Framing:
    """Reads one reply piece by piece.

    Attributes:
        head: Its head; None until that is whole.
        done: Whether the reply has come to its end.
        surplus: Whether bytes came after its end.
    """

    def __init__(self) -> None:
        self.head: Head | None = None
        self.done = False
        self.surplus = False
        self._rest = b""  # of the head, or of a line between chunks, whose end has not come
        self._left: int | None = None  # bytes of the body, or of the chunk, that are to come
        self._between_chunks = True  # whether a size line is next, not the line end of a chunk
        self._in_trailer = False
        self._at_size_line = False  # whether the next byte is the first of a chunk's size

    @property
    def chunked(self) -> bool:
        """Whether the head has said that the body is in chunks."""
        return self.head is not None and self.head.chunked

    def one_chunk(self, data: bytes) -> int:
        """Return where the content begins in next bytes that are just one whole chunk, else 0.

        Most reads of a stream are. Nothing is to be taken in then: what comes next is the size of
        another chunk, as before.
        """
        if not self._at_size_line:
            return 0
        end = data.find(LINE_END)
        try:
            size = int(data[:end], 16)
        except ValueError:
            return 0
        return end + 2 if 0 < size == len(data) - end - 4 and data.endswith(LINE_END) else 0

    def feed(self, data: bytes) -> bytes:
        """Take in the next bytes and return what they add to the body.

        Raises:
            ValueError: They are no HTTP reply, or contradict its framing.
        """
        start = self.one_chunk(data)
        if start:
            return data[start:-2]
        if self.done:
            self.surplus = self.surplus or bool(data)
            return b""
        while self.head is None:
            data = self._rest + data
            end = data.find(HEAD_END)
            if end < 0:
                self._rest = data
                if len(data) > MOST_HEAD_BYTES:
                    raise ValueError(f"its head is longer than {MOST_HEAD_BYTES} bytes")
                return b""
            self._rest = b""
            head = parse_head(data[: end + len(HEAD_END)])
            data = data[end + len(HEAD_END) :]
            if head.status >= 200:  # others are notes ahead of the reply
                self.head = head
                self._left = 0 if head.chunked else head.length
                self.done = head.length == 0
        if self.head.chunked:
            return self._feed_chunks(data)
        if self._left is None:
            return data
        body = data[: self._left]
        self._left -= len(body)
        self.done = self._left == 0
        self.surplus = len(body) < len(data)
        return body

    def close(self) -> bool:
        """Take in that the server closed the connection; returns whether the reply is whole."""
        if self.head is not None and not self.head.chunked and self._left is None:
            self.done = True
        return self.done

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._rest:
            data, self._rest = self._rest + data, b""
        body: list[bytes] = []
        left, at, size = self._left or 0, 0, len(data)
        while True:
            if left:
                body.append(data[at : at + left])
                at, left = at + len(body[-1]), left - len(body[-1])
                if left:
                    break
                self._between_chunks = False
            end = data.find(LINE_END, at)
            if not self._between_chunks:
                if end != at and size - at >= len(LINE_END):
                    raise ValueError("a chunk is longer than its size says")
                if end < 0:
                    self._rest = data[at:]
                    break
                at = end + 2
                self._between_chunks = True
                continue
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > MOST_HEAD_BYTES:
                    raise ValueError(f"a line between chunks has more than {MOST_HEAD_BYTES} bytes")
                break
            line, at = data[at:end], end + 2
            if self._in_trailer:
                if not line:
                    self.done, self.surplus = True, at < size
                    break
                continue
            left = _chunk_size(line)
            self._in_trailer = not left
        self._left = left
        self._at_size_line = not (left or self._rest or self._in_trailer or self.done)
        self._at_size_line &= self._between_chunks
        return body[0] if len(body) == 1 else b"".join(body)


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.partition(b";")[0], 16)
    except ValueError:
        size = -1
    if size < 0:
        raise ValueError(f"{line[:40]!r} is not the size of a chunk")
    return size
