"""Server-sent events out of bytes, however the network cut them.

Needs the reads of one response body in order, leaves its events, each with the index of the read
that completed it. Follows the event stream format of the WHATWG HTML standard (section 9.2),
with two differences: a lone carriage return ends no line (no engine sends one, and a CRLF cut
between two reads needs no special case), and a last event without its blank line counts when
its lines are whole, since servers that close early leave it out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
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
    events: list[Event] = []
    rest: list[bytes] = []  # pieces of a line whose end has not come yet
    data: list[bytes] = []
    name = ""
    first_line = True
    index = -1
    for index, read in enumerate(reads):
        head, newline, tail = read.partition(b"\n")
        if not newline:
            rest.append(read)
            continue
        rest.append(head)
        lines = [b"".join(rest), *tail.split(b"\n")]
        rest = [lines.pop()]
        for line in lines:
            if line.endswith(b"\r"):
                line = line[:-1]
            if first_line:
                first_line = False
                line = line.removeprefix(BYTE_ORDER_MARK)
            if not line:
                if data:
                    events.append(Event(index, name, b"\n".join(data)))
                    data = []
                name = ""
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip().decode(errors="replace")
    if data:
        events.append(Event(index, name, b"\n".join(data)))
    return events
