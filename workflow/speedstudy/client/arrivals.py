"""When the requests of a load are due: pure schedules."""

import random
from collections.abc import Iterator


def poisson(rate_per_s: float, seed: int) -> Iterator[float]:
    """Yield arrival times in seconds from the start, without end, in rising order.

    The gaps are independent and exponential with mean 1/rate; the first arrival comes after the
    first gap. The same rate and seed give the same times.
    """
    generator = random.Random(seed)
    due_s = 0.0
    while True:
        due_s += generator.expovariate(rate_per_s)
        yield due_s
