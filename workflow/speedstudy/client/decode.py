"""Raw exchanges into records: what runs after the load has ended.

Needs the bytes and stamps of one turn, leaves its ``TurnRecord`` with exactly one outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from speedstudy.client.transport import Exchange, Failure
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Acceptance, Reply
from speedstudy.dialects.sse import Event, split_events
from speedstudy.records import Outcome, TurnRecord
from speedstudy.workload import Prompt

BODY_EXCERPT_BYTES = 300


@dataclass(slots=True, kw_only=True)
class RawTurn:
    """One turn as the worker left it; times are of ``time.perf_counter``.

    Attributes:
        prompt: The conversation.
        turn: Index of the turn, from 0.
        scheduled_s: When the load wanted it sent.
        ready_s: When it could be sent: due, and its slot free.
        prompt_ids: The ids that were sent, the whole history of the conversation.
        exchange: What came back, or None if it was never sent.
        skipped: Why it was never sent, or None.
    """

    prompt: Prompt
    turn: int
    scheduled_s: float
    ready_s: float
    prompt_ids: Sequence[int]
    exchange: Exchange | None
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class DecodedTurn:
    """A turn's record, and what the self-check wants to know beside it.

    Attributes:
        record: The record.
        sent_tokens: Prompt ids sent.
        prompt_differs: The engine counted or echoed another prompt than the ids sent.
        assumed_chunks: Chunks whose tokens nobody counted, see ``Reply``.
        late_s: Seconds between "could be sent" and "was sent"; None if it never was.
    """

    record: TurnRecord
    sent_tokens: int
    prompt_differs: bool = False
    assumed_chunks: int = 0
    late_s: float | None = None


def decode_turn(raw: RawTurn, dialect: Dialect, start_s: float) -> DecodedTurn:
    """Return the record of a raw turn, its times in seconds from ``start_s``.

    An event's time is that of the read which completed it. Of the chunks that one read brought,
    all but the first count as coalesced. What was received is kept whatever the outcome.
    """
    record = TurnRecord(
        prompt_id=raw.prompt.prompt_id,
        category=raw.prompt.category,
        turn=raw.turn,
        outcome="cancelled",
        error=raw.skipped,
        scheduled_s=raw.scheduled_s - start_s,
    )
    exchange = raw.exchange
    if exchange is None:
        return DecodedTurn(record=record, sent_tokens=len(raw.prompt_ids))
    record.sent_s = exchange.sent_s - start_s
    late_s = max(0.0, exchange.sent_s - raw.ready_s)  # a timer may wake a little early
    if exchange.status != 200:
        record.outcome, record.error = _unanswered(exchange)
        return DecodedTurn(record=record, sent_tokens=len(raw.prompt_ids), late_s=late_s)

    events, reply = read_reply(exchange, dialect)
    record.outcome, record.error = judge(exchange, events, reply)
    reads = [events[chunk.event].read for chunk in reply.chunks]
    record.chunk_s = [exchange.read_s[read] - start_s for read in reads]
    record.chunk_tokens = [chunk.tokens for chunk in reply.chunks]
    record.coalesced_reads = len(reads) - len(set(reads))
    record.token_ids = reply.token_ids
    record.prompt_tokens = reply.prompt_tokens
    record.completion_tokens = reply.completion_tokens
    record.cached_tokens = reply.cached_tokens
    record.finish_reason = reply.finish_reason
    if reply.acceptance is not None:
        _fill_acceptance(record, reply.acceptance)
    return DecodedTurn(
        record=record,
        sent_tokens=len(raw.prompt_ids),
        prompt_differs=_prompt_differs(reply, raw.prompt_ids),
        assumed_chunks=reply.assumed_chunks,
        late_s=late_s,
    )


def read_reply(exchange: Exchange, dialect: Dialect) -> tuple[list[Event], Reply]:
    """Return the events of an exchange and what they say."""
    events = split_events(exchange.reads)
    return events, dialect.parse(events)


def judge(exchange: Exchange, events: Sequence[Event], reply: Reply) -> tuple[Outcome, str | None]:
    """Return the one outcome of a request with status 200, and the reason if it is not ``ok``.

    In this order: an error that the stream carries; a transport that broke (a timeout, an
    interrupt, or ``incomplete`` if it was cut) before the end mark came; no token (``empty``);
    neither a finish reason nor an end mark (``incomplete``).
    """
    whole = reply.terminated or reply.finish_reason is not None
    if reply.error is not None:
        return "error", reply.error
    if exchange.failure is not None and not reply.terminated:
        return exchange.failure.outcome, exchange.failure.text
    if not reply.chunks and (whole or not events):
        start = b"".join(exchange.reads)[:BODY_EXCERPT_BYTES].decode(errors="replace")
        return "empty", "no token in the reply" + ("" if events else f"; its body: {start!r}")
    if not whole:
        return "incomplete", "the stream ended without a finish reason and without its end mark"
    return "ok", None


def _unanswered(exchange: Exchange) -> tuple[Outcome, str]:
    """Outcome and reason of an exchange without a status 200."""
    if exchange.status is None:
        failure = exchange.failure or Failure("error", "no answer")
        return failure.outcome, failure.text
    text = b"".join(exchange.reads)[:BODY_EXCERPT_BYTES].decode(errors="replace").strip()
    reason = f"HTTP status {exchange.status}: {text or 'no body'}"
    if exchange.failure is not None:
        return exchange.failure.outcome, f"{reason} ({exchange.failure.text})"
    return "error", reason


def _fill_acceptance(record: TurnRecord, acceptance: Acceptance) -> None:
    record.steps = acceptance.steps
    record.steps_drafted = acceptance.steps_drafted
    record.drafted = acceptance.drafted
    record.accepted = acceptance.accepted
    record.step_drafted = acceptance.step_drafted
    record.step_accepted = acceptance.step_accepted
    record.acceptance_source = acceptance.source


def _prompt_differs(reply: Reply, prompt_ids: Sequence[int]) -> bool:
    echoed = reply.echoed_prompt_ids
    if echoed is not None and echoed != list(prompt_ids):
        return True
    return reply.prompt_tokens is not None and reply.prompt_tokens != len(prompt_ids)
