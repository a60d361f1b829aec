"""Framing of event streams: vectors V29 of the peers' list, and every split of a stream."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from speedstudy.dialects.sse import Event, split_events

# A three-byte character, U+2028 and U+0085 raw inside JSON, CRLF and LF, a comment, an event
# line, no space after the colon, two data lines.
STREAM = (
    ': ping\r\n\r\ndata:{"t":"\u20ac"}\n\n'
    'event: message\ndata: {"t":"a\u2028b\u0085c"}\r\n\r\n'
    "id: 7\nretry: 10\ndata: one\ndata:  two\n\n\n"
    "event: lost\n\n"
    "data: [DONE]\n\n"
).encode()
EXPECTED = [
    ("", '{"t":"\u20ac"}'),
    ("message", '{"t":"a\u2028b\u0085c"}'),
    ("", "one\n two"),
    ("", "[DONE]"),
]


def contents(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.name, event.data.decode()) for event in events]


def test_one_read_keeps_all_events_with_one_arrival():
    events = split_events([STREAM])
    assert contents(events) == EXPECTED
    assert {event.read for event in events} == {0}


def test_two_events_separated_by_crlf_in_one_read():
    events = split_events([b'data: {"a":1}\r\n\r\ndata: {"a":2}\r\n\r\n'])
    assert [event.data for event in events] == [b'{"a":1}', b'{"a":2}']


def test_every_cut_in_two_gives_the_same_events():
    for cut in range(len(STREAM) + 1):
        assert contents(split_events([STREAM[:cut], STREAM[cut:]])) == EXPECTED


def test_one_byte_reads_give_the_same_events_at_their_last_byte():
    reads = [STREAM[i : i + 1] for i in range(len(STREAM))]
    events = split_events(reads)
    assert contents(events) == EXPECTED
    assert events[-1].read == len(STREAM) - 1


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_split_gives_the_same_events(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    reads = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    events = split_events(reads)
    assert contents(events) == EXPECTED
    arrivals = [event.read for event in events]
    assert arrivals == sorted(arrivals)


def test_end_of_stream_keeps_whole_lines_and_drops_a_cut_one():
    assert contents(split_events([b"data: a\n\ndata: b\n"])) == [("", "a"), ("", "b")]
    assert contents(split_events([b'data: a\n\ndata: {"b'])) == [("", "a")]


def test_byte_order_mark_nothing_and_data_without_value():
    assert contents(split_events([b"\xef\xbb\xbfdata: a\n\n"])) == [("", "a")]
    assert split_events([]) == []
    assert split_events([b"", b""]) == []
    assert contents(split_events([b"data:\n\n"])) == [("", "")]
