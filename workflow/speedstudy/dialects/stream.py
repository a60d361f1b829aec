"""What the event streams of all dialects have in common: payloads, end mark, errors.

Needs the events of one reply and a reader of the dialect's payloads, leaves the reader's
``Reply``, whole or cut short.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from speedstudy.dialects.reply import Acceptance, Reply
from speedstudy.dialects.sse import Event

END_MARK = b"[DONE]"  # is no JSON
EXCERPT_CHARACTERS = 300
# Finish reasons by which an engine says that it gave up, not that the reply is whole.
BROKEN_OFF = frozenset({"abort", "error"})


class PayloadReader(Protocol):
    """Builds one reply out of the payloads of its events."""

    reply: Reply

    def read(self, index: int, payload: Mapping[str, Any]) -> None:
        """Take in one event; raises AttributeError, KeyError, TypeError or ValueError."""


def read_stream(events: Sequence[Event], reader: PayloadReader) -> Reply:
    """Return the reader's reply after all events; never raises, whatever a server sends.

    Reading stops at the end mark and at the first event that is an error or cannot be read: what
    came before is kept, and ``error`` says what it was. Without a count of the engine's the ids
    seen are the completion tokens.
    """
    reply, read = reader.reply, reader.read
    for index, (_, name, data) in enumerate(events):
        try:
            payload = orjson.loads(data)
            if (
                type(payload) is not dict
                or name
                or "error" in payload
                or payload.get("object") == "error"
            ):
                reply.error = _error_text(name, payload)
                if reply.error is not None:
                    break
            read(index, payload)
        except orjson.JSONDecodeError:
            if data.strip() == END_MARK:
                reply.terminated = True
            else:
                reply.error = f"event {index} is not JSON: {excerpt(data)}"
            break
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            reply.error = f"event {index} cannot be read ({problem!r}): {excerpt(data)}"
            break
    if reply.completion_tokens is None and reply.token_ids is not None:
        reply.completion_tokens = len(reply.token_ids)
    if reply.error is None and reply.finish_reason in BROKEN_OFF:
        reply.error = f"the engine broke the reply off (finish_reason {reply.finish_reason!r})"
    return reply


def attach_acceptance(
    reply: Reply, read: Callable[[], tuple[Acceptance | None, str | None]]
) -> None:
    """Put what ``read`` returns, acceptance and conflict, into the reply.

    An acceptance that cannot be read takes nothing from the reply's tokens and times: it is
    left out, and the conflict says why.
    """
    try:
        reply.acceptance, reply.acceptance_conflict = read()
    except (AttributeError, TypeError, ValueError) as problem:
        reply.acceptance_conflict = f"acceptance cannot be read: {problem}"


def excerpt(data: bytes) -> str:
    """Return the beginning of the data as text, for messages."""
    return data[:EXCERPT_CHARACTERS].decode(errors="replace")


def _error_text(name: str, payload: Any) -> str | None:
    """The error that an event carries, or None; a null or empty ``error`` field is none."""
    if not isinstance(payload, dict):
        raise TypeError(f"not an object but {type(payload).__name__}")
    error = payload.get("error")
    if not error and (name == "error" or payload.get("object") == "error"):
        error = payload
    if not error:
        return None
    message = error.get("message") if isinstance(error, Mapping) else None
    return f"the server reports an error: {message or excerpt(orjson.dumps(error))}"
