"""Sends a share of a load and returns raw bytes and stamps.

Needs prompts with a time or a place in the queue, leaves ``RawTurn``s. One worker is one event
loop; its results are plain data, so that several can run in processes of their own.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import orjson

from speedstudy.client.decode import RawTurn, judge, read_reply
from speedstudy.client.transport import Exchange, Failure, Transport
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt, continue_ids


@dataclass(frozen=True, slots=True)
class Job:
    """One conversation to send.

    Attributes:
        prompt: The conversation.
        body: Request body of its first turn, serialised before the clock starts.
        due_s: When to send it (``time.perf_counter``); None sends it as soon as a slot is free.
    """

    prompt: Prompt
    body: bytes
    due_s: float | None


@dataclass(kw_only=True)
class Worker:
    """State of one worker.

    Attributes:
        transport: Where it sends.
        dialect: The server's wire format.
        model: The model's name in the request.
        sampling: How to decode.
        turns: What it has done, in the order in which the turns ended.
        done: Requests that ended.
        failed: Those of them that broke or got another status than 200.
        latest: The last exchange that ended well, for the progress line.
        stopped: Set once the load is to end.
        stop_reason: Why, if it was interrupted.
    """

    transport: Transport
    dialect: Dialect
    model: str
    sampling: Sampling
    turns: list[RawTurn] = field(default_factory=list)
    done: int = 0
    failed: int = 0
    latest: Exchange | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """End the load now: open requests are cut and keep what they have received."""
        self.stop_reason = reason
        self.stopped.set()
        self.transport.abort_all(Failure("cancelled", reason))

    async def run(self, jobs: Iterator[Job], concurrency: int) -> None:
        """Work off the jobs in order, at most ``concurrency`` at a time.

        Each slot takes the next job, waits until it is due and holds on to the conversation
        until its last turn. Without due times this is a closed loop with exactly
        ``concurrency`` requests in flight while jobs last; with them, an open loop whose
        arrivals queue when all slots are taken. After ``stop`` the jobs that are left are
        recorded as never sent.
        """
        await asyncio.gather(*(self._slot(jobs) for _ in range(concurrency)))
        if self.stop_reason is not None:
            for job in jobs:
                self._skip(job.prompt, 0, job.due_s or perf_counter(), self.stop_reason)

    async def _slot(self, jobs: Iterator[Job]) -> None:
        while not self.stopped.is_set():
            job = next(jobs, None)
            if job is None:
                return
            ready_s = perf_counter()
            if job.due_s is not None and job.due_s > ready_s:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopped.wait(), job.due_s - ready_s)
                ready_s = job.due_s
            scheduled_s = ready_s if job.due_s is None else job.due_s
            if self.stop_reason is not None:
                self._skip(job.prompt, 0, scheduled_s, self.stop_reason)
                return
            await self._converse(job, scheduled_s, ready_s)

    async def _converse(self, job: Job, scheduled_s: float, ready_s: float) -> None:
        """Send the turns of a conversation one after the other.

        A turn that is not ``ok`` ends it; the turns after that are recorded as never sent.
        """
        prompt = job.prompt
        ids: Sequence[int] = prompt.turn_token_ids[0]
        body = job.body
        for turn in range(len(prompt.turn_token_ids)):
            exchange = await self.transport.post(body)
            self.turns.append(
                RawTurn(
                    prompt=prompt,
                    turn=turn,
                    scheduled_s=scheduled_s,
                    ready_s=ready_s,
                    prompt_ids=ids,
                    exchange=exchange,
                )
            )
            self.done += 1
            if exchange.failure is None and exchange.status == 200:
                self.latest = exchange
            else:
                self.failed += 1
            if turn + 1 == len(prompt.turn_token_ids):
                return
            scheduled_s = ready_s = exchange.ended_s
            reply_ids, problem = self._reply_ids(exchange)
            if problem is not None:
                reason = f"not sent: turn {turn} {problem}"
                self._skip(prompt, turn + 1, scheduled_s, reason)
                return
            ids = continue_ids(ids, reply_ids, prompt.turn_token_ids[turn + 1])
            body = orjson.dumps(self.dialect.body(self.model, ids, self.sampling))

    def _reply_ids(self, exchange: Exchange) -> tuple[Sequence[int], str | None]:
        """The ids of a reply, or why the conversation cannot go on from it."""
        if self.stop_reason is not None:
            return (), f"was the last before the end ({self.stop_reason})"
        if exchange.status != 200:
            return (), "failed"
        events, reply = read_reply(exchange, self.dialect)
        outcome, _ = judge(exchange, events, reply)
        if outcome != "ok":
            return (), f"ended as {outcome}"
        if reply.token_ids is None:
            return (), "came back without token ids, from which the next turn would continue"
        return reply.token_ids, None

    def _skip(self, prompt: Prompt, first_turn: int, scheduled_s: float, reason: str) -> None:
        """Record the turns of a conversation from ``first_turn`` on as never sent."""
        self.turns.extend(
            RawTurn(
                prompt=prompt,
                turn=turn,
                scheduled_s=scheduled_s,
                ready_s=scheduled_s,
                prompt_ids=(),
                exchange=None,
                skipped=reason,
            )
            for turn in range(first_turn, len(prompt.turn_token_ids))
        )
