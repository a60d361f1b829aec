"""A server's Prometheus counters of draft acceptance, under our names.

Needs the text of the counter route, leaves a snapshot: ``num_drafts``, ``num_draft_tokens``,
``num_accepted_tokens`` (numbers) and ``num_accepted_tokens_per_pos`` (a list, position 0 first),
each None if the server does not have it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from speedstudy.dialects import Dialect

TOTALS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
PER_POSITION = "num_accepted_tokens_per_pos"
SCRAPE_TIMEOUT = aiohttp.ClientTimeout(total=10)

Snapshot = dict[str, Any]


def read_counters(text: str, names: Mapping[str, str]) -> Snapshot:
    """Return a snapshot from Prometheus text, each counter summed over its label sets.

    Several engines behind one server have a series each (``engine="0"``, ``"1"``); the sum is
    the server. Positions without a series count as 0 between others.

    Args:
        text: The exposition.
        names: The server's sample name for each of our names, ``Dialect.counter_names``.

    Raises:
        ValueError: The text is not a Prometheus exposition.
    """
    totals: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    ours = {theirs: name for name, theirs in names.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = ours.get(sample.name)
            if name == PER_POSITION:
                positions[int(sample.labels["position"])] += sample.value
            elif name is not None:
                totals[name] += sample.value
    snapshot: Snapshot = {name: totals.get(name) for name in TOTALS}
    snapshot[PER_POSITION] = (
        [positions.get(index, 0.0) for index in range(max(positions) + 1)] if positions else None
    )
    return snapshot


async def scrape(
    session: aiohttp.ClientSession, url: str, dialect: Dialect
) -> tuple[Snapshot | None, str | None]:
    """Return the server's snapshot and None, or None and why there is none."""
    if not dialect.counter_names:
        return None, f"the {dialect.name} dialect names no counters"
    route = url + dialect.counter_route
    try:
        async with session.get(route, timeout=SCRAPE_TIMEOUT) as response:
            text = await response.text()
            if response.status != 200:
                return None, f"{route}: HTTP status {response.status}"
        return read_counters(text, dialect.counter_names), None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return None, f"{route}: {type(error).__name__} {error}".rstrip()
    except (KeyError, ValueError) as error:
        return None, f"{route}: not counters in Prometheus text ({error})"


def reset_error(before: Snapshot, after: Snapshot) -> str | None:
    """Return which counter fell or vanished between two snapshots, in words, or None."""
    for name in TOTALS:
        old, new = before[name], after[name]
        if old is not None and (new is None or new < old):
            return _reset(name, old, new)
    old_positions, new_positions = before[PER_POSITION] or [], after[PER_POSITION] or []
    for index, old in enumerate(old_positions):
        new = new_positions[index] if index < len(new_positions) else None
        if new is None or new < old:
            return _reset(f"{PER_POSITION}[{index}]", old, new)
    return None


def _reset(name: str, old: float, new: float | None) -> str:
    fell = "vanished" if new is None else f"fell to {new:g}"
    return f"counter {name} {fell} from {old:g}: the server restarted or was reset"
