"""The live line of a running load.

A terminal gets a bar on stderr, anything else a log line now and then. Nothing is counted in the
hot path: workers tell a few numbers four times a second, and the newest reply of the journal,
decoded now and then, says how many tokens a read brings and how drafts are accepted.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from tqdm import tqdm

from speedstudy.client.answer import read_reply, unframe
from speedstudy.client.journal import read_exchange
from speedstudy.client.worker import DONE, FAILED, IN_FLIGHT, NEWEST, READS, TOLD
from speedstudy.dialects import Dialect

REFRESH_EVERY_S = 0.5
LOG_EVERY_S = 10.0
# A reply is decoded so seldom that even one of thousands of chunks, 10 ms of work, is under a
# five-hundredth of the time, should it share the process with a worker.
SAMPLE_EVERY_S = 5.0

LOG = logging.getLogger(__name__)


class Samples:
    """What the sampled replies say of all others.

    Attributes:
        tokens_a_read: Of the newest.
    """

    def __init__(self, journals: Sequence[Path], dialect: Dialect) -> None:
        self.tokens_a_read = 0.0
        self._journals = journals
        self._dialect = dialect
        self._steps = self._accepted = 0
        self._turn = 0

    def take(self, newest: Sequence[float]) -> bool:
        """Decode the newest reply of the next journal; returns whether there is one.

        Args:
            newest: Its place in each.
        """
        self._turn = (self._turn + 1) % len(self._journals)
        offset = int(newest[self._turn])
        if offset < 0:
            return False
        with self._journals[self._turn].open("rb") as file:
            exchange = read_exchange(file, offset)
        _, reply = read_reply(unframe(exchange), self._dialect)
        if exchange.reads and reply.chunk_tokens:
            self.tokens_a_read = sum(reply.chunk_tokens) / len(exchange.reads)
        told = reply.acceptance
        if told is not None and told.accepted is not None:
            self._accepted += told.accepted
            self._steps += told.steps or told.steps_drafted or 0
        return True

    def acceptance_length(self) -> float | None:
        """Accepted tokens and one a step, over the sampled replies."""
        return 1 + self._accepted / self._steps if self._steps else None


async def show_progress(
    told: Sequence[float], samples: Samples, total: int | None, duration_s: float | None
) -> None:
    """Report on a load until cancelled.

    Args:
        told: What its workers tell, see ``worker.TOLD``.
        samples: The sampled replies.
        total: Requests that the load will send, all turns counted; None if it has no number.
        duration_s: Seconds during which it starts requests, or None.
    """
    live = sys.stderr.isatty()
    every_s = REFRESH_EVERY_S if live else LOG_EVERY_S
    start_s = time_before = perf_counter()
    reads_before, sample_due_s = 0.0, start_s
    with tqdm(total=total, unit="req", disable=not live, dynamic_ncols=True) as bar:
        try:
            while True:
                await asyncio.sleep(every_s)
                now = perf_counter()
                if now >= sample_due_s and samples.take(told[NEWEST::TOLD]):
                    sample_due_s = now + SAMPLE_EVERY_S
                done, reads = int(sum(told[DONE::TOLD])), sum(told[READS::TOLD])
                rate = (reads - reads_before) / (now - time_before) * samples.tokens_a_read
                reads_before, time_before = reads, now
                length = samples.acceptance_length()
                left = time_left(done, total, duration_s, now - start_s)
                words = [
                    f"in flight {sum(told[IN_FLIGHT::TOLD]):.0f}",
                    f"~{rate:.0f} tok/s",
                    "" if length is None else f"AL ~{length:.2f}",
                    f"errors {sum(told[FAILED::TOLD]):.0f}",
                    "" if live and total is not None else left,  # the bar has one of its own
                ]
                state = ", ".join(word for word in words if word)
                bar.set_postfix_str(state, refresh=False)
                bar.update(done - bar.n)
                if not live:
                    LOG.info("%d of %s requests, %s", done, total or "?", state)
        finally:
            bar.update(int(sum(told[DONE::TOLD])) - bar.n)


def time_left(done: int, total: int | None, duration_s: float | None, elapsed_s: float) -> str:
    """Return in words how long the load will take yet, or nothing if that is unknown."""
    if duration_s is not None:
        return f"{max(0.0, duration_s - elapsed_s):.0f} s left"
    if not done or total is None:
        return ""
    return f"{elapsed_s / done * (total - done):.0f} s left"
