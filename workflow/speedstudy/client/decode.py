"""Raw exchanges into records: what runs after the load has ended.

Needs the bytes and stamps of one turn, leaves its ``TurnRecord`` with exactly one outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from speedstudy.client.answer import judge, judge_unanswered, read_reply, unframe
from speedstudy.client.exchange import Exchange
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Acceptance, Reply
from speedstudy.records import TurnRecord
from speedstudy.workload import Prompt


@dataclass(frozen=True, kw_only=True)
class DecodedTurn:
    """A turn's record, and what the self-check wants to know beside it.

    Attributes:
        record: The record.
        sent_tokens: Prompt ids sent; 0 if the turn never was.
        prompt_told: The engine counted or echoed the prompt.
        prompt_differs: It counted or echoed another prompt than the ids sent.
        assumed_chunks: Chunks whose tokens nobody counted, see ``Reply``.
        late_s: Seconds between "could be sent" and "was sent"; None if it never was.
        ended_s: When it was over, in seconds from the start; None if it never was sent.
    """

    record: TurnRecord
    sent_tokens: int = 0
    prompt_told: bool = False
    prompt_differs: bool = False
    assumed_chunks: int = 0
    late_s: float | None = None
    ended_s: float | None = None


def never_sent(prompt: Prompt, turn: int, scheduled_s: float, reason: str) -> DecodedTurn:
    """Return the record of a turn that was to be sent and was not."""
    record = TurnRecord(
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        turn=turn,
        outcome="cancelled",
        error=reason,
        scheduled_s=scheduled_s,
    )
    return DecodedTurn(record=record)


def decode_exchange(
    exchange: Exchange, prompt: Prompt, prompt_ids: Sequence[int], dialect: Dialect, start_s: float
) -> DecodedTurn:
    """Return the record of an exchange, its times in seconds from ``start_s``.

    An event's time is that of the read which completed it. Of the chunks that one read brought,
    all but the first count as coalesced. What was received is kept whatever the outcome.

    Args:
        exchange: What was seen.
        prompt: The conversation.
        prompt_ids: The ids that were sent, the whole history of the conversation.
        dialect: The server's wire format.
        start_s: When the load began.
    """
    record = TurnRecord(
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        turn=exchange.turn,
        outcome="cancelled",
        scheduled_s=exchange.scheduled_s - start_s,
    )
    answer = unframe(exchange)
    if exchange.sent_s is None:
        record.outcome, record.error = judge_unanswered(answer)
        return DecodedTurn(record=record)
    record.sent_s = exchange.sent_s - start_s
    late_s = max(0.0, exchange.sent_s - exchange.ready_s)  # a timer may wake a little early
    ended_s = exchange.ended_s - start_s
    if answer.status != 200:
        record.outcome, record.error = judge_unanswered(answer)
        return DecodedTurn(
            record=record, sent_tokens=len(prompt_ids), late_s=late_s, ended_s=ended_s
        )

    events, reply = read_reply(answer, dialect)
    record.outcome, record.error = judge(answer, events, reply)
    reads = [events[event].read for event in reply.chunk_events]
    record.chunk_s = [exchange.read_s[read] - start_s for read in reads]
    record.chunk_tokens = reply.chunk_tokens
    record.coalesced_reads = len(reads) - len(set(reads))
    record.token_ids = reply.token_ids
    record.prompt_tokens = reply.prompt_tokens
    record.completion_tokens = reply.completion_tokens
    record.cached_tokens = reply.cached_tokens
    record.finish_reason = reply.finish_reason
    record.acceptance_conflict = reply.acceptance_conflict
    if reply.acceptance is not None:
        _fill_acceptance(record, reply.acceptance)
    return DecodedTurn(
        record=record,
        sent_tokens=len(prompt_ids),
        prompt_told=reply.prompt_tokens is not None or reply.echoed_prompt_ids is not None,
        prompt_differs=_prompt_differs(reply, prompt_ids),
        assumed_chunks=reply.assumed_chunks,
        late_s=late_s,
        ended_s=ended_s,
    )


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
