"""Every dialect on the bytes of the fixture's streams: any split into reads, every trap."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixture_server import FixtureServer, Script
from fixture_server.wire import WIRES
from speedstudy.dialects import DIALECTS
from speedstudy.dialects.sse import split_events

PROMPT = (3, 1, 4)
NAMES = sorted(DIALECTS)
# The prefill token, steps that accepted 2, 0 and 1 of 3 drafted, one that drafted nothing.
SCRIPT = Script(blocks=((5,), (6, 6, 6), (7,), (6, 5), (8,)), step_drafted=(3, 3, 3, 0))
IDS = [5, 6, 6, 6, 7, 6, 5, 8]


def stream(name, script=SCRIPT):
    return b"".join(frame for _, frame in FixtureServer(dialect=name).frames(script, PROMPT))


def parse(name, *reads):
    return DIALECTS[name].parse(split_events(reads))


def cut(body, places):
    edges = [0, *sorted(places), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def test_the_fixture_plays_every_dialect():
    assert set(WIRES) == set(DIALECTS)
    assert {name: WIRES[name].route for name in NAMES} == {
        name: DIALECTS[name].route for name in NAMES
    }
    assert {name: WIRES[name].counter_route for name in NAMES} == {
        name: DIALECTS[name].counter_route for name in NAMES
    }


@pytest.mark.parametrize("name", NAMES)
def test_what_a_whole_reply_says(name):
    reply = parse(name, stream(name))
    assert reply.error is None
    assert reply.terminated
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 8)
    assert reply.finish_reason == ("limit" if name == "llamacpp" else "length")
    # The openai stream has no ids and, without a usage on every event, no counts.
    assert reply.token_ids == (None if name == "openai" else IDS)
    sizes = [1] * 5 if name == "openai" else [1] * 8 if name == "llamacpp" else [1, 3, 1, 2, 1]
    assert [chunk.tokens for chunk in reply.chunks] == sizes
    assert reply.acceptance_conflict is None
    told = {
        "vllm": ("steps", None, 3, 9, 3),
        "sglang": ("totals", 4, None, 12, 3),
        "trtllm": ("blocks", 4, None, None, 3),
        "llamacpp": ("totals", None, None, 9, 3),
    }
    if name != "openai":
        has = reply.acceptance
        assert (has.source, has.steps, has.steps_drafted, has.drafted, has.accepted) == told[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_in_two_gives_the_same_reply(name):
    body = stream(name)
    whole = parse(name, body)
    for place in range(len(body) + 1):
        assert parse(name, body[:place], body[place:]) == whole


scripts = st.builds(
    Script,
    blocks=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5),
    step_drafted=st.none() | st.lists(st.integers(0, 4), max_size=5),
    usage=st.sampled_from(["alone", "last", "each", "none"]),
    finish_reason=st.sampled_from(["length", "stop", None]),
    done=st.booleans(),
    incremental=st.booleans(),
    silent_ids=st.sampled_from([frozenset(), frozenset({3, 4})]),
    newline=st.sampled_from([b"\n", b"\r\n"]),
    fault=st.sampled_from([None, None, "error_event"]),
)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(script=scripts, data=st.data())
def test_any_stream_split_anyhow_gives_the_same_reply(name, script, data):
    body = stream(name, script)
    whole = parse(name, body)
    places = data.draw(st.lists(st.integers(0, len(body)), max_size=20), label="cuts")
    reads = cut(body, places)
    events = split_events(reads)
    assert DIALECTS[name].parse(events) == whole
    arrivals = [event.read for event in events]
    assert arrivals == sorted(arrivals)
    # A stream that broke off may lack the event that would tell of a silent token before it.
    if whole.token_ids is not None and whole.error is None and whole.finish_reason is not None:
        assert whole.token_ids == [id_ for block in script.blocks for id_ in block]


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=60)
@given(noise=st.lists(st.binary(max_size=60), max_size=6), data=st.data())
def test_parse_never_raises(name, noise, data):
    body = stream(name)
    place = data.draw(st.integers(0, len(body)), label="place")
    garbage = b"\n\ndata: ".join([b"", *noise])
    reply = parse(name, body[:place] + garbage + b"\n\n" + body[place:])
    assert reply.error is None or reply.error != ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "noisy",
    [
        lambda body: body.replace(b"\n\n", b"\r\n\r\n"),
        lambda body: body.replace(b"data: ", b"data:"),
        lambda body: body.replace(b"data: ", b": ping\n\nevent: message\nid: 7\ndata: "),
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: body.replace(b"\n\n", b"\n\n\n\n:\n\n"),
    ],
    ids=["crlf", "no space", "comment and event lines", "byte order mark", "pings"],
)
def test_forms_of_the_same_stream(name, noisy):
    reply, plain = parse(name, noisy(stream(name))), parse(name, stream(name))
    # A comment is no event, so that even the places of the chunks are the same.
    assert reply == plain


@pytest.mark.parametrize("name", NAMES)
def test_several_events_in_a_read_and_an_event_over_several(name):
    body = stream(name)
    assert {event.read for event in split_events([body])} == {0}
    arrivals = [event.read for event in split_events(cut(body, range(1, len(body))))]
    assert arrivals == sorted(set(arrivals))


@pytest.mark.parametrize("name", ["vllm", "trtllm", "openai"])
@pytest.mark.parametrize("usage", ["alone", "last", "each", "none"])
def test_usage_wherever_it_comes(name, usage):
    reply = parse(name, stream(name, replace(SCRIPT, usage=usage)))
    told = usage != "none"
    assert reply.prompt_tokens == (3 if told else None)
    assert reply.completion_tokens == (8 if told or name != "openai" else None)
    if name == "openai":  # usage on every event counts the tokens of each
        sizes = [1, 3, 1, 2, 1] if usage == "each" else [1] * 5
        assert [chunk.tokens for chunk in reply.chunks] == sizes
        assert reply.assumed_chunks == (0 if usage == "each" else 5)


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_without_its_end_mark_is_not_terminated_but_whole(name):
    reply = parse(name, stream(name, replace(SCRIPT, done=False)))
    assert reply.terminated == (name == "llamacpp")  # its end is the event with `stop`
    assert reply.finish_reason is not None
    assert reply.completion_tokens == 8


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_cut_short_keeps_what_came(name):
    body = stream(name, replace(SCRIPT, fault="cut"))
    reply = parse(name, body[: body.rindex(b"data:") + 9])
    assert (reply.finish_reason, reply.terminated, reply.error) == (None, False, None)
    assert reply.token_ids == (None if name == "openai" else IDS[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_an_error_inside_the_stream(name):
    reply = parse(name, stream(name, replace(SCRIPT, fault="error_event")))
    assert "engine died" in reply.error
    assert reply.chunks


@pytest.mark.parametrize("name", NAMES)
def test_no_token_at_all(name):
    reply = parse(name, stream(name, Script(blocks=())))
    assert (reply.chunks, reply.token_ids) == ([], [])
    assert reply.completion_tokens == 0
