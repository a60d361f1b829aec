"""One request and what came back for it, as raw as it was seen."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speedstudy.records import Outcome


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an exchange did not come to its end.

    Attributes:
        outcome: ``incomplete`` (cut after some bytes), ``error``, ``timeout`` or ``cancelled``.
        text: What happened; never empty.
    """

    outcome: "Outcome"
    text: str


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One turn's request and reply; times are of ``time.perf_counter``.

    On Linux that clock is CLOCK_MONOTONIC, which all processes of a machine share, so that the
    times of several client processes compare.

    Attributes:
        job: Place of the conversation in the order of the load, from 0.
        turn: Index of the turn in its conversation, from 0.
        scheduled_s: When the load wanted it sent.
        ready_s: When it could be sent: due, and its slot free.
        sent_s: When its bytes were handed to the connection; None if it never had one.
        reads: The reply with its HTTP head and framing, as the network cut it.
        read_s: Arrival of each of ``reads``.
        ended_s: When it was over.
        failure: Why it broke, or None if the reply came to its end.
    """

    job: int
    turn: int
    scheduled_s: float
    ready_s: float
    sent_s: float | None = None
    reads: list[bytes] = field(default_factory=list)
    read_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    failure: Failure | None = None
