"""The live line of a running load.

A terminal gets a bar on stderr, anything else a log line now and then. Tokens are not counted
while the load runs: the rate is that of bytes, turned into tokens by the newest whole reply.
"""

import asyncio
import logging
import sys
from time import perf_counter

from tqdm import tqdm

from speedstudy.client.decode import read_reply
from speedstudy.client.worker import Worker

REFRESH_EVERY_S = 0.5
LOG_EVERY_S = 10.0

logger = logging.getLogger(__name__)


async def show_progress(worker: Worker, total: int | None) -> None:
    """Report on the worker until cancelled.

    Args:
        worker: The worker at work.
        total: Requests that the load will send, all turns counted; None if it has no number.
    """
    live = sys.stderr.isatty()
    every_s = REFRESH_EVERY_S if live else LOG_EVERY_S
    start_s, bytes_before, time_before = perf_counter(), 0, perf_counter()
    with tqdm(total=total, unit="req", disable=not live, dynamic_ncols=True) as bar:
        try:
            while True:
                await asyncio.sleep(every_s)
                now, received = perf_counter(), worker.transport.received_bytes
                rate = (received - bytes_before) / (now - time_before) * _tokens_per_byte(worker)
                bytes_before, time_before = received, now
                state = f"in flight {worker.transport.in_flight}, errors {worker.failed}"
                bar.set_postfix_str(f"~{rate:.0f} tok/s, {state}", refresh=False)
                bar.update(worker.done - bar.n)
                if not live:
                    left = _time_left(worker.done, total, now - start_s)
                    logger.info(
                        "%d of %s requests, %s, ~%.0f tok/s%s",
                        worker.done,
                        total or "?",
                        state,
                        rate,
                        left,
                    )
        finally:
            bar.update(worker.done - bar.n)


def _tokens_per_byte(worker: Worker) -> float:
    """Tokens to a byte in the newest whole reply; 0 before there is one."""
    if worker.latest is None:
        return 0.0
    _, reply = read_reply(worker.latest, worker.dialect)
    size = sum(len(read) for read in worker.latest.reads)
    return sum(chunk.tokens for chunk in reply.chunks) / size if size else 0.0


def _time_left(done: int, total: int | None, elapsed_s: float) -> str:
    if not done or total is None:
        return ""
    return f", {elapsed_s / done * (total - done):.0f} s left"
