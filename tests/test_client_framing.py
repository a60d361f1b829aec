"""HTTP replies cut at every place: the same end, the same body, the same record."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speedstudy.client.answer import unframe
from speedstudy.client.decode import decode_exchange
from speedstudy.client.exchange import Exchange
from speedstudy.client.framing import Framing
from speedstudy.client.link import Link
from speedstudy.dialects import DIALECTS
from speedstudy.workload import Prompt

VLLM = DIALECTS["vllm"]
PROMPT = Prompt(prompt_id="p", category=None, turn_token_ids=((1, 2),))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
EVENTS = (
    b'data: {"choices": [{"token_ids": [7], "text": "\xc3\xa9\xe2\x80\xa8"}]}\n\n',
    b": a comment\n\n",
    b'data: {"choices": [{"token_ids": [8, 9], "text": "10", "finish_reason": "stop"}]}\r\n\r\n',
    b'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}\n\n',
    b"data: [DONE]\n\n",
)
BODY = b"".join(EVENTS)


def in_chunks(pieces, extension=b"", trailer=b""):
    framed = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces)
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n" + trailer + b"\r\n"


REPLIES = {
    "chunks": in_chunks(EVENTS),
    "upper case, extension, trailers": in_chunks([BODY], b";a=b", b"X-A: b\r\nX-C: d\r\n").replace(
        b"\r\n" + b"%x" % len(BODY), b"\r\n" + b"%X" % len(BODY)
    ),
    "chunks cut inside events": in_chunks([BODY[i : i + 9] for i in range(0, len(BODY), 9)]),
    "chunk that ends like a reply": in_chunks([BODY, b": 0\r\n\r\n"]),
    "length": HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY,
    "note ahead": b"HTTP/1.1 100 Continue\r\n\r\n" + in_chunks(EVENTS),
}
UNTIL_CLOSE = HEAD + b"Connection: close\r\n\r\n" + BODY


def cut(data, places):
    bounds = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


def record(reads):
    exchange = Exchange(job=0, turn=0, scheduled_s=0.0, ready_s=0.0, sent_s=0.0, reads=reads)
    exchange.read_s = [float(index) for index in range(len(reads))]
    return decode_exchange(exchange, PROMPT, (1, 2), VLLM, 0.0).record


def seen(reply):
    return (reply.outcome, reply.error, reply.token_ids, reply.chunk_tokens, reply.prompt_tokens)


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_every_cut_in_two_gives_the_same_record_and_the_same_end(reply):
    whole = ("ok", None, [7, 8, 9], [1, 2], 2)
    assert seen(record([reply])) == whole
    for place in range(len(reply) + 1):
        assert seen(record(cut(reply, [place]))) == whole
        assert ends(cut(reply, [place])) == [None]


@settings(deadline=None)
@given(reply=st.sampled_from([*REPLIES.values(), UNTIL_CLOSE]), data=st.data())
def test_every_cut_gives_the_same_body(reply, data):
    places = data.draw(st.lists(st.integers(0, len(reply)), max_size=30))
    reads = cut(reply, places)
    answer = unframe(Exchange(job=0, turn=0, scheduled_s=0, ready_s=0, reads=reads))
    assert (answer.status, answer.failure) == (200, None)
    assert b"".join(answer.reads).startswith(BODY)
    assert len(answer.reads) == len(reads)
    assert seen(record(reads))[:3] == ("ok", None, [7, 8, 9])


def test_a_chunk_has_the_time_of_the_read_that_completed_its_event():
    reply = REPLIES["chunks"]
    middle = reply.index(b'"text": "10"')
    turn = record([reply[:20], reply[20:middle], reply[middle:]])
    assert turn.chunk_s == [1.0, 2.0]
    assert turn.coalesced_reads == 0
    assert record([reply]).coalesced_reads == 1


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "Expected HTTP"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "b'xyz' is not the size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-4\r\n", "not the size"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n", "longer than its size"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "longer than 65536"),
    ],
)
def test_what_is_no_sound_reply_is_named(reply, text):
    with pytest.raises(ValueError, match=text):
        Framing().feed(reply)
    (failure,) = ends([reply])
    assert (failure.outcome, text in failure.text) == ("error", True)


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
    ],
)
def test_replies_without_a_body_end_with_their_head(head, reusable):
    framing = Framing()
    assert framing.feed(head) == b""
    assert framing.done
    assert framing.head.reusable is reusable
    assert not framing.surplus
    framing.feed(b"HTTP/1.1")
    assert framing.surplus


def test_a_body_without_framing_ends_with_the_connection():
    assert ends([UNTIL_CLOSE]) == []
    assert ends([UNTIL_CLOSE], closed=True) == [None]
    (failure,) = ends([REPLIES["chunks"][:-2]], closed=True)
    assert failure.outcome == "incomplete"
    (failure,) = ends([REPLIES["length"][:-1]], closed=True)
    assert failure.outcome == "incomplete"
    (failure,) = ends([], closed=True)
    assert (failure.outcome, "without a reply" in failure.text) == ("error", True)


def test_a_compressed_reply_is_refused():
    reply = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
    turn = record([reply])
    assert turn.outcome == "error"
    assert "compressed (gzip)" in turn.error


class Wire(asyncio.Transport):
    """A transport that leads nowhere."""

    def write(self, data):
        pass

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return 0

    def abort(self):
        pass


def ends(reads, closed=False):
    """How the exchange ends, each time it does, when a link gets these reads."""
    seen = []
    link = Link(lambda exchange, status: seen.append(exchange.failure))
    link.attach(Wire(), socket=None)
    link.send(Exchange(job=0, turn=0, scheduled_s=0.0, ready_s=0.0), b"request")
    for read in reads:
        if read:
            link.data_received(read)
    if closed:
        link.connection_lost(None)
    return seen
