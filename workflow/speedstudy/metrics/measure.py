"""All metrics of one cell as one JSON object."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from speedstudy.metrics.acceptance import acceptance
from speedstudy.metrics.output_length import output_length
from speedstudy.metrics.steady import steady
from speedstudy.metrics.throughput import throughput
from speedstudy.metrics.timing import latency
from speedstudy.records import OUTCOMES, TurnRecord

CLIENT_FIELDS = ("loop_lag_ms", "coalesced_share", "verdict")


def measure(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> dict[str, Any]:
    """Return every metric of a cell from its raw record.

    Args:
        turns: The rows of ``requests.parquet``; each turn counts as one request.
        cell: ``cell.json``. Read are ``first_token`` (``prefill`` or ``verify``),
            ``cell.drafter`` (``method``, ``k``), ``load``, ``counters`` and ``client``;
            any of them may be absent, and what hangs on it is None then.

    Returns:
        ``acceptance``, ``latency``, ``throughput``, ``steady``, ``output_length``, ``requests``
        and ``client``, the shape of ``speedstudy measure --json``. Undefined is None; there is no
        NaN in it.
    """
    client = cell.get("client") or {}
    outcomes = Counter(turn.outcome for turn in turns)
    return {
        "acceptance": acceptance(turns, cell),
        "latency": latency(turns),
        "throughput": throughput(turns, cell),
        "steady": steady(turns, cell),
        "output_length": output_length(turns),
        "requests": {"total": len(turns), **{name: outcomes[name] for name in OUTCOMES}},
        "client": {name: client.get(name) for name in CLIENT_FIELDS},
    }
