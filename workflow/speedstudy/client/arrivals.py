"""When the requests of a load are due: pure schedules, in seconds from the start."""

import itertools
import math
import random
from collections.abc import Iterator

from speedstudy.client.options import LoadOptions


def due_times(options: LoadOptions, prompts: int) -> list[float] | None:
    """Return when each conversation of an open loop is due, in rising order; None for a closed one.

    Args:
        options: The load.
        prompts: Number of prompts, each sent once where nothing else says how many.
    """
    if options.arrivals == "closed":
        return None
    arrivals = (ramped(due_s, options.ramp_s, options.ramp_steps) for due_s in _arrivals(options))
    if options.duration_s is not None:
        limit_s = options.duration_s
        return list(itertools.takewhile(lambda due_s: due_s < limit_s, arrivals))
    count = options.requests or (prompts if options.trace_s is None else None)
    return list(itertools.islice(arrivals, count))


def _arrivals(options: LoadOptions) -> Iterator[float]:
    if options.trace_s is not None:
        return iter(options.trace_s)
    assert options.rate_per_s is not None
    if options.arrivals == "poisson":
        return poisson(options.rate_per_s, options.arrival_seed)
    if options.arrivals == "gamma":
        return gamma(options.rate_per_s, options.burstiness, options.arrival_seed)
    return constant(options.rate_per_s)


def poisson(rate_per_s: float, seed: int) -> Iterator[float]:
    """Yield arrival times without end, in rising order.

    The gaps are independent and exponential with mean 1/rate; the first arrival comes after the
    first gap. The same rate and seed give the same times.
    """
    generator = random.Random(seed)
    return itertools.accumulate(generator.expovariate(rate_per_s) for _ in itertools.count())


def gamma(rate_per_s: float, shape: float, seed: int) -> Iterator[float]:
    """Yield arrival times without end: independent gamma gaps of mean 1/rate.

    A gap's variance is 1 / (shape * rate^2): shape 1 is the exponential gap of ``poisson``
    (drawn otherwise, so that the times differ), shape 0.25 doubles its deviation.
    """
    generator = random.Random(seed)
    scale_s = 1 / (rate_per_s * shape)
    return itertools.accumulate(generator.gammavariate(shape, scale_s) for _ in itertools.count())


def constant(rate_per_s: float) -> Iterator[float]:
    """Yield 0, 1/rate, 2/rate, ... without end."""
    return (index / rate_per_s for index in itertools.count())


def ramped(due_s: float, ramp_s: float, steps: int = 0) -> float:
    """Return when an arrival is due if the rate only rises to its full value in ``ramp_s``.

    The arrival keeps its place in the number of arrivals that the full rate would have brought
    by ``due_s``; so a Poisson process stays one, with a rising rate.

    Args:
        due_s: When it is due at the full rate from the start on.
        ramp_s: Length of the rise; 0 changes nothing.
        steps: The rise has so many equal steps, of which the first begins at 0 with 1/steps of
            the rate; 0 is an even rise from nothing.
    """
    if not ramp_s:
        return due_s
    if not steps:  # the share that has come by t is t^2 / (2 * ramp_s)
        return math.sqrt(2 * ramp_s * due_s) if due_s < ramp_s / 2 else due_s + ramp_s / 2
    step_s = ramp_s / steps
    for step in range(steps):
        arrived_s = step_s * (step + 1) / steps  # of the full rate, by the end of this step
        if due_s < arrived_s:
            return step * step_s + due_s * steps / (step + 1)
        due_s -= arrived_s
    return ramp_s + due_s


def slot_start_s(slot: int, slots: int, ramp_s: float, steps: int = 0) -> float:
    """Return when a slot of a closed loop begins, of ``slots`` that begin over ``ramp_s``.

    With ``steps`` they begin in so many groups, the first at 0; evenly otherwise, slot 0 at 0.
    """
    if not steps:
        return ramp_s * slot / slots
    return ramp_s * (slot * steps // slots) / steps
