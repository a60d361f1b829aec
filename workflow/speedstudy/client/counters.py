"""A server's Prometheus counters of draft acceptance, under our names.

Needs the text of the counter route, leaves a snapshot. Totals are numbers: ``num_steps`` (all
verify steps), ``num_drafts`` (those that drafted), ``num_draft_tokens``,
``num_accepted_tokens``. Counts by draft position are lists, position 0 first:
``num_draft_tokens_per_pos``, ``num_accepted_tokens_per_pos``. Each is None if the server does
not have it. ``series`` keeps the value of every label set, by which a restart of one of several
engines is seen that the sum hides.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from speedstudy.dialects import Dialect

TOTALS = ("num_steps", "num_drafts", "num_draft_tokens", "num_accepted_tokens")
PER_POSITION = ("num_draft_tokens_per_pos", "num_accepted_tokens_per_pos")
POSITION_LABELS = ("position", "token_position")
SCRAPE_TIMEOUT = aiohttp.ClientTimeout(total=10)

Snapshot = dict[str, Any]


def read_counters(text: str, names: Mapping[str, str]) -> Snapshot:
    """Return a snapshot from Prometheus text, each counter summed over its label sets.

    Several engines behind one server have a series each (``engine="0"``, ``"1"``); the sum is
    the server. Positions without a series count as 0 between others. A ``_created`` line is a
    sample of another name, a time stamp behind a value is not a part of it.

    Args:
        text: The exposition.
        names: The server's sample name for each of our names, ``Dialect.counter_names``.

    Raises:
        ValueError: The text is not a Prometheus exposition, a counter is not a number from 0, or
            a position is not one.
    """
    totals: dict[str, float] = defaultdict(float)
    positions: dict[str, dict[int, float]] = {name: defaultdict(float) for name in PER_POSITION}
    series: dict[str, float] = {}
    ours = {theirs: name for name, theirs in names.items()}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = ours.get(sample.name)
            if name is None:
                continue
            key = _series_key(sample)
            if not math.isfinite(sample.value) or sample.value < 0:
                raise ValueError(f"{key} is {sample.value}")
            series[key] = float(sample.value)
            if name in PER_POSITION:
                positions[name][_position(sample)] += sample.value
            else:
                totals[name] += sample.value
    return {
        **{name: totals.get(name) for name in TOTALS},
        **{name: _dense(positions[name]) for name in PER_POSITION},
        "series": series,
    }


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
        snapshot = read_counters(text, dialect.counter_names)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return None, f"{route}: {type(error).__name__} {error}".rstrip()
    except (KeyError, ValueError) as error:
        return None, f"{route}: not counters in Prometheus text ({error})"
    return _exact(snapshot, dialect, route)


def reset_error(before: Snapshot, after: Snapshot) -> str | None:
    """Return which series fell or vanished between two snapshots, in words, or None."""
    for key, old in before["series"].items():
        new = after["series"].get(key)
        if new is None or new < old:
            fell = "vanished" if new is None else f"fell to {new:g}"
            return f"counter {key} {fell} from {old:g}: the server restarted or was reset"
    return None


def _exact(snapshot: Snapshot, dialect: Dialect, route: str) -> tuple[Snapshot | None, str | None]:
    """Refuse counters that have grown so large that the server prints them rounded."""
    limit = dialect.counters_exact_below
    for name in TOTALS:
        value = snapshot[name]
        if limit is not None and value is not None and value >= limit:
            return None, (
                f"{route}: {name} is {value:g}; {dialect.name} prints counters rounded from "
                f"{limit:g} on, so that differences are not exact; restart the server"
            )
    return snapshot, None


def _series_key(sample: Sample) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}}"


def _position(sample: Sample) -> int:
    for label in POSITION_LABELS:
        if sample.labels.get(label, "").isdecimal():
            return int(sample.labels[label])
    raise ValueError(f"{_series_key(sample)} has no number in {' or '.join(POSITION_LABELS)}")


def _dense(positions: Mapping[int, float]) -> list[float] | None:
    return [positions.get(index, 0.0) for index in range(max(positions) + 1)] if positions else None
