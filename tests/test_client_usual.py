"""The one-pass reader against the framing and the event stream read one after the other."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedstudy.client.framing import Framing
from speedstudy.client.usual import usual_events
from speedstudy.dialects.sse import Event, split_events

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def step_by_step(reads: list[bytes]) -> tuple[list[Event], bool]:
    """The events, and whether the reply came to its end."""
    framing = Framing()
    try:
        pieces = [framing.feed(read) for read in reads]
    except ValueError:
        return [], False
    return split_events(pieces), framing.done and not framing.surplus


def cut(reply: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(reply), *(place % (len(reply) + 1) for place in places)})
    return [reply[start:end] for start, end in pairwise(bounds)]


def test_usual_reply_by_hand() -> None:
    reads = [HEAD, chunk(b'data: {"a": 1}\n\n') + b"e\r\ndata: [DO", b"NE]\n\n", b"\r\n" + LAST]
    assert usual_events(reads) == [Event(1, "", b'{"a": 1}'), Event(2, "", b"[DONE]")]


@pytest.mark.parametrize(
    "body",
    [
        chunk(b"data: a\n\n"),  # cut before the last chunk
        chunk(b"data: a\n\n") + b"0\r\nX-Trailer: 1\r\n\r\n",
        chunk(b"data: a\r\n\r\n") + LAST,
        chunk(b"data:a\n\n") + LAST,
        chunk(b": note\n\n") + LAST,
        chunk(b"event: x\ndata: a\n\n") + LAST,
        chunk(b"data: a\ndata: b\n\n") + LAST,
        chunk(b"data: a\n\ndata: b\n\n") + LAST,
        chunk(b"data: a") + chunk(b"\n\n") + LAST,
        b"8;x=y\r\ndata: \n\n\r\n" + LAST,
        b"a\r\ndata: a\n\n\r\n" + LAST,  # a size that is wrong
    ],
)
def test_another_layout_is_left_to_the_general_readers(body: bytes) -> None:
    assert usual_events([HEAD + body]) is None


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"no head\r\n\r\n",
        b"",
    ],
)
def test_another_head_is_left_to_the_general_readers(head: bytes) -> None:
    assert usual_events([head + chunk(b"data: [DONE]\n\n") + LAST]) is None


def test_nothing_at_all() -> None:
    assert usual_events([]) is None


texts = st.lists(st.text(alphabet='a{}": \u0085\u2028é', max_size=8), max_size=6)
places = st.lists(st.integers(min_value=0), max_size=12)


@given(texts, places)
def test_every_cut_gives_the_events_of_the_general_readers(lines: list[str], at: list[int]) -> None:
    reply = HEAD + b"".join(chunk(f"data: {line}\n\n".encode()) for line in lines) + LAST
    reads = cut(reply, at)
    assert (usual_events(reads), True) == step_by_step(reads)


@given(texts, places, st.integers(min_value=0), st.sampled_from([b"", b"\n", b"\r", b"0", b"x"]))
def test_a_damaged_reply_is_left_alone_or_read_alike(
    lines: list[str], at: list[int], place: int, byte: bytes
) -> None:
    reply = HEAD + b"".join(chunk(f"data: {line}\n\n".encode()) for line in lines) + LAST
    place = place % len(reply)
    reads = cut(reply[:place] + byte + reply[place + 1 :], at)
    events = usual_events(reads)
    assert events is None or (events, True) == step_by_step(reads)
