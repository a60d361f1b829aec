"""What a load is: plain, checked data, the same for a command line and for a cell."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from speedstudy.dialects.reply import Sampling

ArrivalKind = Literal["closed", "poisson", "gamma", "constant", "trace"]
ARRIVAL_KINDS: tuple[ArrivalKind, ...] = get_args(ArrivalKind)


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long a request may wait, in seconds from when it was sent or last heard of.

    Attributes:
        connect_s: For the connection.
        first_token_s: For the first bytes of the reply's body.
        between_tokens_s: For more bytes after the last.
        total_s: For the whole reply.
    """

    connect_s: float = 10.0
    first_token_s: float = 600.0
    between_tokens_s: float = 120.0
    total_s: float = 3600.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"timeout {name} is {value}; it must be above 0")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How a load is put on a server.

    Attributes:
        url: The server, ``http://host:port``, without the dialect's route.
        model: The model's name in the requests.
        concurrency: Requests in flight: just so many in a closed loop, at most in an open one,
            whose arrivals queue when all are taken.
        sampling: How to decode.
        arrivals: ``closed`` sends a conversation when another has ended; the others are open
            loops, see ``arrivals``.
        rate_per_s: Conversations a second of ``poisson``, ``gamma`` and ``constant``.
        burstiness: Shape of the ``gamma`` gaps: 1 is Poisson, below 1 burstier, above 1 more even.
        trace_s: Arrival times of ``trace``, seconds from the start, in rising order.
        ramp_s: Seconds over which concurrency or rate rises from nothing to its full value.
        ramp_steps: Rise in so many equal steps; 0 rises evenly.
        requests: Prompts to send, from the first on and again from there when they run out; a
            conversation counts as one. None with ``duration_s`` None sends each prompt once, or
            the trace's number.
        duration_s: Seconds during which requests are started; those open then are finished.
        arrival_seed: Seed of the random arrivals.
        processes: Client processes; None decides by ``default_processes``.
        timeouts: Limits on waiting.
    """

    url: str
    model: str
    concurrency: int
    sampling: Sampling
    arrivals: ArrivalKind = "closed"
    rate_per_s: float | None = None
    burstiness: float = 1.0
    trace_s: tuple[float, ...] | None = None
    ramp_s: float = 0.0
    ramp_steps: int = 0
    requests: int | None = None
    duration_s: float | None = None
    arrival_seed: int = 0
    processes: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}; it must start with http:// or https://")
        for name in ("concurrency", "rate_per_s", "burstiness", "requests", "duration_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        if self.sampling.max_tokens <= 0:
            raise ValueError(f"max_tokens is {self.sampling.max_tokens}; it must be above 0")
        if self.requests is not None and self.duration_s is not None:
            raise ValueError("requests and duration_s are both set; choose one")
        if self.processes is not None and not 1 <= self.processes <= self.concurrency:
            raise ValueError(
                f"processes is {self.processes}; it must be from 1 to the concurrency, "
                f"{self.concurrency}"
            )
        self._check_arrivals()

    def _check_arrivals(self) -> None:
        if self.arrivals not in ARRIVAL_KINDS:
            raise ValueError(f"arrivals is {self.arrivals!r}; choose {', '.join(ARRIVAL_KINDS)}")
        paced = self.arrivals in ("poisson", "gamma", "constant")
        if paced != (self.rate_per_s is not None):
            raise ValueError(
                "a rate belongs to poisson, gamma and constant arrivals, and to no other"
            )
        if self.burstiness != 1 and self.arrivals != "gamma":
            raise ValueError("burstiness belongs to gamma arrivals and to no other")
        if (self.arrivals == "trace") != (self.trace_s is not None):
            raise ValueError("a trace belongs to trace arrivals, and to no other")
        if self.ramp_s < 0 or self.ramp_steps < 0:
            raise ValueError("ramp_s and ramp_steps must not be below 0")
        if self.ramp_steps and not self.ramp_s:
            raise ValueError("ramp_steps without ramp_s: say how many seconds the ramp takes")
        if self.trace_s is not None:
            self._check_trace(self.trace_s)

    def _check_trace(self, trace_s: tuple[float, ...]) -> None:
        if not trace_s:
            raise ValueError("the trace has no arrivals")
        if not all(math.isfinite(due_s) and due_s >= 0 for due_s in trace_s):
            raise ValueError("the trace's times must be seconds from the start, from 0")
        if any(later < earlier for earlier, later in itertools.pairwise(trace_s)):
            raise ValueError("the trace's times must not fall; sort its rows")
        if self.ramp_s:
            raise ValueError("a trace has its own ramp; leave ramp_s out")
        if self.requests is not None and self.requests > len(trace_s):
            raise ValueError(f"{self.requests} requests from a trace of {len(trace_s)} arrivals")
