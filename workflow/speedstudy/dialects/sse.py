"""Server-sent events out of bytes, however the network cut them.

Needs the reads of one response body in order, leaves its events, each with the index of the read
that completed it. Follows the event stream format of the WHATWG HTML standard (section 9.2),
with two differences: a lone carriage return ends no line (no engine sends one), and a last event
without its blank line counts when its lines are whole, since servers that close early leave it
out.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event.

    Attributes:
        read: Index of the read that brought its last byte, from 0.
        name: Value of its ``event:`` line, empty if it had none.
        data: Its ``data:`` lines joined by line feeds, as bytes.
    """

    read: int
    name: str
    data: bytes


def split_events(reads: Iterable[bytes]) -> list[Event]:
    r"""Return the events of one stream, in order.

    Lines end at LF or CRLF only, on bytes: U+0085 and U+2028 are line ends to ``str.splitlines``
    but legal inside JSON, and a character may be cut between two reads. Comments and unknown
    fields are dropped; an event without data is none; a line cut by the end of the stream is
    dropped.

    Args:
        reads: The body in the order and the pieces in which it arrived; empty pieces are fine.
    """
    pieces = list(reads)
    body = b"".join(pieces)
    ends = list(accumulate(map(len, pieces)))  # offset behind each read
    read = 0
    start = len(BYTE_ORDER_MARK) if body.startswith(BYTE_ORDER_MARK) else 0
    events: list[Event] = []
    data: list[bytes] = []
    name = ""
    while (end := body.find(b"\n", start)) >= 0:
        line = body[start:end]
        start = end + 1
        if line.endswith(b"\r"):
            line = line[:-1]
        if line.startswith(b"data:"):
            data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
        elif not line:
            if data:
                while ends[read] <= end:
                    read += 1
                events.append(Event(read, name, data[0] if len(data) == 1 else b"\n".join(data)))
                data = []
            name = ""
        elif line.startswith(b"event:"):
            name = line[6:].strip().decode(errors="replace")
    if data:
        events.append(Event(len(pieces) - 1, name, b"\n".join(data)))
    return events
