"""The whole object: its shape, its nulls, and the page that describes it."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_records import PREFILL, drafter_cell, reply, stepped
from speedstudy.metrics.catalogue import METRICS, page
from speedstudy.metrics.measure import measure
from speedstudy.records import read_requests, write_requests

DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"
PERCENTILES = {"mean", "p50", "p90", "p95", "p99"}


def leaves(value, path=""):
    if isinstance(value, dict) and value:
        return {leaf for key in value for leaf in leaves(value[key], f"{path}.{key}".strip("."))}
    return {path}


def test_shape_of_the_contract():
    cell = {
        **drafter_cell("ngram", 3),
        "client": {"loop_lag_ms": {"p99": 0.4}, "coalesced_share": 0.0, "verdict": "valid"},
    }
    result = measure([stepped([3], [2], tokens=4, sizes=[1, 3], category="math")], cell)
    assert {"acceptance", "latency", "throughput", "requests", "client"} <= set(result)
    assert {"pooled", "per_request_mean", "by_category", "conventions", "source"} <= set(
        result["acceptance"]
    )
    assert set(result["acceptance"]["by_category"]) == {"math"}
    assert all(set(values) == PERCENTILES for values in result["latency"].values())
    assert result["client"] == cell["client"]
    assert result["requests"] == {
        "total": 1,
        "ok": 1,
        "incomplete": 0,
        "empty": 0,
        "error": 0,
        "timeout": 0,
        "cancelled": 0,
    }


def test_every_outcome_is_counted():
    outcomes = ["ok", "incomplete", "empty", "error", "timeout", "cancelled", "error"]
    requests = measure([reply(outcome=outcome) for outcome in outcomes], PREFILL)["requests"]
    assert requests["total"] == 7
    assert requests["error"] == 2
    assert sum(requests[name] for name in requests if name != "total") == 7


def test_no_request_and_no_cell_is_all_null():
    result = measure([], {})
    assert result["client"] == {"loop_lag_ms": None, "coalesced_share": None, "verdict": None}
    assert set(result["throughput"].values()) == {None}
    assert result["acceptance"]["pooled"]["al"] is None
    assert result["acceptance"]["by_category"] == {}


def test_catalogue_names_what_measure_returns():
    result = measure([stepped([3], [2], tokens=4, sizes=[1, 3])], PREFILL)
    latency = {f"latency.{name}" for name in result["latency"]}
    throughput = {f"throughput.{name}" for name in result["throughput"]}
    steady = {f"steady.{name}" for name in result["steady"]}
    length = {f"output_length.{name}" for name in result["output_length"]}
    pooled = {"acceptance.pooled." + name for name in result["acceptance"]["pooled"]}
    pooled.remove("acceptance.pooled.identity_gap")
    pooled |= {"acceptance.pooled.identity_gap.sum", "acceptance.pooled.identity_gap.counts"}
    means = {"acceptance.per_request_mean." + n for n in result["acceptance"]["per_request_mean"]}
    groups = latency | throughput | steady | length | pooled | means
    assert {metric.path for metric in METRICS} == groups
    assert len({metric.path for metric in METRICS}) == len(METRICS)


def test_page_is_made_from_the_catalogue():
    assert DOCS.read_text(encoding="utf-8") == page(), (
        "docs/metrics.md is stale: python -m speedstudy.metrics.catalogue > docs/metrics.md"
    )


STAMP_S = st.integers(0, 5_000_000).map(lambda microseconds: microseconds / 1e6)
CHUNKS = st.lists(st.tuples(STAMP_S, st.integers(1, 4)), max_size=5).map(sorted)
COUNT = st.none() | st.integers(0, 20)
STEP_LIST = st.none() | st.lists(st.integers(0, 4), max_size=5)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            reply,
            CHUNKS,
            prompt_id=st.sampled_from(["a", "b"]),
            category=st.sampled_from([None, "math"]),
            sent_s=st.sampled_from([0.0, None]),
            outcome=st.sampled_from(["ok", "ok", "incomplete", "empty", "error"]),
            completion_tokens=COUNT,
            steps=COUNT,
            steps_drafted=COUNT,
            drafted=COUNT,
            accepted=COUNT,
            step_drafted=STEP_LIST,
            step_accepted=STEP_LIST,
            acceptance_source=st.sampled_from([None, "steps", "totals"]),
        ),
        max_size=4,
    ),
    st.sampled_from([{}, PREFILL, drafter_cell("none"), {"first_token": "verify"}]),
)
def test_any_record_measures_without_nan(turns, cell):
    # Engines omit fields as they like; measure works on what is there.
    text = json.dumps(measure(turns, cell), allow_nan=False)
    assert json.loads(text)["requests"]["total"] == len(turns)


def test_a_record_without_later_columns_is_read(tmp_path):
    path = tmp_path / "requests.parquet"
    write_requests(path, [reply([(0.1, 1)])])
    pq.write_table(pq.read_table(path).drop_columns(["acceptance_conflict"]), path)
    (turn,) = read_requests(path)
    assert turn.acceptance_conflict is None
    pq.write_table(pq.read_table(path).drop_columns(["chunk_s"]), path)
    with pytest.raises(ValueError, match="no column chunk_s"):
        read_requests(path)
