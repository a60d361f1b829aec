"""What a raw exchange says: HTTP taken off, events split, its outcome judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from speedstudy.client.exchange import Exchange, Failure
from speedstudy.client.framing import Framing
from speedstudy.client.usual import usual_events
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Reply
from speedstudy.dialects.sse import Event, split_events

if TYPE_CHECKING:
    from speedstudy.records import Outcome

BODY_EXCERPT_BYTES = 300


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reply without its framing.

    Attributes:
        status: HTTP status, or None if no whole head came.
        reads: What each read added to the body, empty pieces included.
        failure: Why the reply did not come to its end, or None.
        events: The events of a reply in the usual layout, which then has no ``reads``; else None.
    """

    status: int | None
    reads: list[bytes]
    failure: Failure | None
    events: list[Event] | None = None


def unframe(exchange: Exchange) -> Answer:
    """Take the HTTP framing off, read by read; bytes that contradict it end the body."""
    events = usual_events(exchange.reads)
    if events is not None:
        return Answer(status=200, reads=[], failure=exchange.failure, events=events)
    framing, reads, failure = Framing(), [], exchange.failure
    try:
        for read in exchange.reads:
            reads.append(framing.feed(read))
    except ValueError as error:
        failure = failure or Failure("error", f"the reply is not sound HTTP: {error}")
    head = framing.head
    if head is not None and head.encoding not in (None, "identity") and failure is None:
        failure = Failure("error", f"the reply is compressed ({head.encoding}), unasked")
    return Answer(status=None if head is None else head.status, reads=reads, failure=failure)


def read_reply(answer: Answer, dialect: Dialect) -> tuple[list[Event], Reply]:
    """Return the events of an answer and what they say."""
    events = split_events(answer.reads) if answer.events is None else answer.events
    return events, dialect.parse(events)


def reply_ids(exchange: Exchange, dialect: Dialect) -> list[int] | None:
    """Return the ids that a conversation goes on from, or None if it cannot go on."""
    answer = unframe(exchange)
    if answer.status != 200:
        return None
    events, reply = read_reply(answer, dialect)
    return reply.token_ids if judge(answer, events, reply)[0] == "ok" else None


def judge(answer: Answer, events: Sequence[Event], reply: Reply) -> tuple["Outcome", str | None]:
    """Return the one outcome of a request with status 200, and the reason if it is not ``ok``.

    In this order: an error that the stream carries; a transport that broke (a timeout, an
    interrupt, or ``incomplete`` if it was cut) before the end mark came; no token (``empty``);
    neither a finish reason nor an end mark (``incomplete``).
    """
    whole = reply.terminated or reply.finish_reason is not None
    if reply.error is not None:
        return "error", reply.error
    if answer.failure is not None and not reply.terminated:
        return answer.failure.outcome, answer.failure.text
    if not reply.chunk_events and (whole or not events):
        start = _excerpt(answer)
        return "empty", "no token in the reply" + ("" if events else f"; its body: {start!r}")
    if not whole:
        return "incomplete", "the stream ended without a finish reason and without its end mark"
    return "ok", None


def judge_unanswered(answer: Answer) -> tuple["Outcome", str]:
    """Return outcome and reason of a request without a status 200."""
    if answer.status is None:
        failure = answer.failure or Failure("error", "no answer")
        return failure.outcome, failure.text
    reason = f"HTTP status {answer.status}: {_excerpt(answer).strip() or 'no body'}"
    if answer.failure is not None:
        return answer.failure.outcome, f"{reason} ({answer.failure.text})"
    return "error", reason


def _excerpt(answer: Answer) -> str:
    return b"".join(answer.reads)[:BODY_EXCERPT_BYTES].decode(errors="replace")
