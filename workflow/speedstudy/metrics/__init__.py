"""Metrics: pure functions from the raw record to numbers.

Needs the turns of ``requests.parquet`` and the dict of ``cell.json``; leaves one JSON object
(``measure.measure``). Nothing here knows an engine, a client or a clock. Undefined is None,
never 0 and never NaN. ``catalogue`` lists every metric as data; ``docs/metrics.md`` is made from
it.
"""
