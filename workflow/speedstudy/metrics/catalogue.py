"""Every metric as data: where it lies in ``measure``'s object, unit, formula, needs.

``docs/metrics.md`` is made from it: ``python -m speedstudy.metrics.catalogue > docs/metrics.md``.
A test holds the page to this table, and this table to what ``measure`` returns.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        path: Keys in ``measure``'s object, joined by dots.
        unit: Unit, or ``1`` for a pure number.
        formula: Definition in the page's symbols.
        needs: The record's fields that it is computed from.
        note: What a reader must know, or nothing.
    """

    path: str
    unit: str
    formula: str
    needs: str
    note: str = ""


STEPS = "steps, accepted"

METRICS: tuple[Metric, ...] = (
    Metric(
        path="acceptance.pooled.al",
        unit="tokens/step",
        formula="1 + A / steps",
        needs=STEPS,
        note="The headline: tokens per verify pass. 1 without a drafter.",
    ),
    Metric(
        path="acceptance.pooled.al_drafted",
        unit="tokens/step",
        formula="1 + A / steps_drafted",
        needs="steps_drafted, accepted",
        note="What vLLM prints. Larger than al where some steps draft nothing (n-gram).",
    ),
    Metric(
        path="acceptance.pooled.al_emitted",
        unit="tokens/step",
        formula="sum(N - 1) / steps where the first token comes from prefill, sum(N) / steps "
        "where the engine verifies with the prefill",
        needs="completion_tokens, steps, first_token",
        note="Differs from al by tokens cut at an EOS or at the length limit.",
    ),
    Metric(
        path="acceptance.pooled.al_full_draft",
        unit="tokens/step",
        formula="1 + sum over k of c_1 * ... * c_k",
        needs="step_drafted, step_accepted",
        note="SPEED-Bench, equation 1. Equals al_drafted only where every L is the same.",
    ),
    Metric(
        path="acceptance.pooled.ar",
        unit="1",
        formula="A / sum(L)",
        needs="accepted, drafted",
        note="For a tree L is its nodes, j the depth of the accepted path.",
    ),
    Metric(
        path="acceptance.pooled.steps",
        unit="steps",
        formula="all verify steps",
        needs="steps, or steps_drafted, completion_tokens, chunk_tokens",
        note="Derived where the engine counts drafted steps only, see below.",
    ),
    Metric(
        path="acceptance.pooled.steps_drafted",
        unit="steps",
        formula="verify steps with L > 0",
        needs="steps_drafted or step_drafted",
    ),
    Metric(path="acceptance.pooled.drafted", unit="tokens", formula="sum(L)", needs="drafted"),
    Metric(
        path="acceptance.pooled.accepted", unit="tokens", formula="A = sum(j)", needs="accepted"
    ),
    Metric(
        path="acceptance.pooled.conditional",
        unit="1",
        formula="c_k = #(j >= k) / #(j >= k-1 and L >= k), list from k = 1",
        needs="step_drafted, step_accepted",
        note="The paper's AR_k. Without step_drafted only where drafted = k * steps.",
    ),
    Metric(
        path="acceptance.pooled.unconditional",
        unit="1",
        formula="a_k = #(j >= k) / #(L >= k), list from k = 1",
        needs="step_drafted, step_accepted",
        note="As conditional.",
    ),
    Metric(
        path="acceptance.pooled.identity_gap.sum",
        unit="tokens",
        formula="sum over requests of N - S - A, S the source's own count of steps",
        needs="completion_tokens, accepted, steps or steps_drafted",
        note="A request has 1 where the prefill token stands apart, 0 where it was verified with "
        "the prefill or one token was cut, more than 1 where steps without a draft were not "
        "counted, less than 0 where an EOS cut a step.",
    ),
    Metric(
        path="acceptance.pooled.identity_gap.counts",
        unit="requests",
        formula="requests by their value of N - S - A",
        needs="as identity_gap.sum",
    ),
    Metric(
        path="acceptance.per_request_mean.al",
        unit="tokens/step",
        formula="mean over requests of the request's own 1 + A / steps",
        needs=STEPS,
        note="Requests without a verify step have none and are left out.",
    ),
    Metric(
        path="acceptance.per_request_mean.ar",
        unit="1",
        formula="mean over requests of the request's own A / sum(L)",
        needs="accepted, drafted",
    ),
    Metric(
        path="latency.ttft_ms",
        unit="ms",
        formula="first chunk that carries a token - sent",
        needs="sent_s, chunk_s",
    ),
    Metric(
        path="latency.tpot_ms",
        unit="ms/token",
        formula="(t_last - t_first) / (N - n_first), n_first tokens in the first chunk",
        needs="chunk_s, chunk_tokens, completion_tokens",
        note="Over requests; none for a reply in one chunk.",
    ),
    Metric(
        path="latency.itl_ms",
        unit="ms/token",
        formula="a chunk of n tokens after a gap g gives n values g / n",
        needs="chunk_s, chunk_tokens",
        note="Over the tokens of all requests.",
    ),
    Metric(
        path="latency.chunk_gap_ms",
        unit="ms",
        formula="gaps between neighbouring chunks",
        needs="chunk_s",
        note="Over the chunks of all requests.",
    ),
    Metric(
        path="latency.e2e_ms",
        unit="ms",
        formula="last chunk that carries a token - sent",
        needs="sent_s, chunk_s",
    ),
    Metric(
        path="latency.ttft_scheduled_ms",
        unit="ms",
        formula="first chunk that carries a token - scheduled",
        needs="scheduled_s, chunk_s",
        note="Beside ttft_ms: holds the wait for a slot of an open loop at its limit.",
    ),
    Metric(
        path="latency.e2e_scheduled_ms",
        unit="ms",
        formula="last chunk that carries a token - scheduled",
        needs="scheduled_s, chunk_s",
    ),
    Metric(
        path="throughput.output_tok_per_s",
        unit="tokens/s",
        formula="tokens of ok requests / (last token stamp - first sent)",
        needs="completion_tokens, sent_s, chunk_s",
        note="The span is that of the whole load, failed requests included.",
    ),
    Metric(
        path="throughput.output_tok_per_s_per_device",
        unit="tokens/s/device",
        formula="output_tok_per_s / devices",
        needs="load.devices",
        note="The paper's Pareto y.",
    ),
    Metric(
        path="throughput.user_tok_per_s",
        unit="tokens/s",
        formula="mean over requests of 1000 / tpot_ms",
        needs="as tpot_ms",
        note="The paper's Pareto x.",
    ),
    Metric(
        path="throughput.requests_per_s",
        unit="requests/s",
        formula="ok requests / (last token stamp - first sent)",
        needs="sent_s, chunk_s",
    ),
    Metric(
        path="throughput.peak_tok_per_s",
        unit="tokens/s",
        formula="most tokens in a window w = min(1 s, span), over w",
        needs="chunk_s, chunk_tokens",
        note="Never below output_tok_per_s.",
    ),
    Metric(
        path="steady.start_s",
        unit="s",
        formula="closed loop: when the first C requests have their first token; open loop: when "
        "the first request has ended; not before the end of a ramp",
        needs="sent_s, chunk_s, load.concurrency, load.arrivals, load.ramp_s",
    ),
    Metric(
        path="steady.end_s",
        unit="s",
        formula="closed loop: when the last conversation is sent; open loop: the last arrival",
        needs="sent_s, scheduled_s",
        note="All of steady is null where the end does not come after the start.",
    ),
    Metric(
        path="steady.requests",
        unit="requests",
        formula="ok requests that were sent and ended within",
        needs="sent_s, chunk_s",
    ),
    Metric(
        path="steady.latency",
        unit="as latency",
        formula="the latencies above, over those requests",
        needs="as latency",
    ),
    Metric(
        path="steady.output_tok_per_s",
        unit="tokens/s",
        formula="tokens of ok requests that came within / (end_s - start_s)",
        needs="chunk_s, chunk_tokens",
    ),
    Metric(
        path="steady.user_tok_per_s",
        unit="tokens/s",
        formula="user_tok_per_s over those requests",
        needs="as tpot_ms",
    ),
    Metric(
        path="output_length.mean_tokens",
        unit="tokens",
        formula="mean over ok requests of N",
        needs="completion_tokens, else chunk_tokens",
    ),
    Metric(
        path="output_length.capped_share",
        unit="1",
        formula="ok requests that ended at the length limit, over those with a finish reason",
        needs="finish_reason",
        note="1 where the end-of-sequence token is ignored.",
    ),
)

PAGE = """\
# Metrics

<!-- Made by `python -m speedstudy.metrics.catalogue`; change the table there. -->

Every metric is a pure function of a cell's raw record (`requests.parquet`, `cell.json`). A turn of
a conversation counts as one request. Undefined is null, never 0 and never NaN.

## Symbols

N completion tokens of a request, the first included. Verify step i drafted L tokens (0 is
possible) and accepted the first j of them; A = sum(j). `steps` counts every verify step,
`steps_drafted` those with L > 0.

## Table

Paths are those of `speedstudy measure DIR --json`. `acceptance.by_category.NAME` has the keys of
`acceptance.pooled`. Each latency has mean, p50, p90, p95 and p99; a percentile interpolates
linearly between the two nearest ranks (numpy's default).

{table}

## Rules

* Only `ok` requests enter acceptance, latency and rates. Every request is in `requests`.
* Pooled (over steps) and mean of requests are two numbers under two names.
* A pooled ratio is over the requests of which anything is known and null if one of them lacks a
  side of it; `acceptance.coverage` counts them and `acceptance.notes` says what is missing.
* Sources, in order: the response of each request (`steps`, `totals`, `blocks`), then the server's
  counters (`counters`), without a drafter the definition (`definition`); `acceptance.source` names
  it. docs/dialects.md says what each engine tells.
* Where responses and counters both tell, `acceptance.cross_check` holds the totals of both, which
  of them could be compared, and whether they agree. If they do, the counters fill the totals that
  the responses lack; if not, the responses stand and a note says so. It is made only where every
  request is ok: the counters hold the others' steps too.
* Where sources within one response differ (lists, histogram, totals), the finer one counts and
  `acceptance_conflict` of the record says what differs; a note counts such requests.
* Counters are the difference of two scrapes, series by series: one that fell or vanished, also of
  one engine of several, gives no acceptance and a note, never a negative number.

## Steps that drafted nothing

vLLM's lists, histograms and counters hold drafted steps only. Where the first token comes from
prefill and no step was cut, N = 1 + steps + A. A cut (EOS or length inside a step) lowers N, a
step without a draft raises it; so `steps` is derived only with a second fact that agrees:

1. the listed steps appear in the stream as chunks of the same sizes, in order, with chunks of one
   token between them; each chunk is a step then, and a shorter last chunk is the cut;
2. nothing was accepted, or the last listed step accepted nothing: nothing can have been cut;
3. the identity closes on `steps_drafted`; or it falls short of it (a cut) and the stream has no
   more chunks than drafted steps: every step drafted;
4. the identity closes on the number of chunks;
5. the engine tells totals without steps and the reply ended at the length limit (llama.cpp, which
   does not draft beyond it).

Otherwise `steps`, `al` and `al_emitted` are null, and `al_drafted` stands alone.

The other way round, an engine that tells all steps (SGLang, TensorRT-LLM) drafted in each of them
if drafted = k * steps, since no step drafts more than k; `steps_drafted` is null otherwise.

A stream's blocks tell the steps only where the engine's own count proves it: TensorRT-LLM tells
completion tokens per iteration, the prefill is one iteration, and where just as many chunks came,
each chunk is one. What an EOS or the limit took off the last step is not seen then.

Where `steps` is known, a request with N < 1 + steps + A ended inside a step; a note counts them.

## Other tools' conventions

`acceptance.conventions` has their numbers under their own names, so that a published number can be
set beside ours.

* `specdec_bench` (SPEED-Bench's harness): one chunk is one step, the prefill's included;
  `Average_AL` is the mean over prompts of the mean chunk length. Biased down by the first chunk,
  and up where the engine merges steps under load. Its conditional rates skip lengths that never
  occurred.
* `sglang`: `spec_accept_length` = N / steps per request, which counts the prefill token;
  `spec_accept_rate` = A / sum(L).
* `vllm` (`vllm bench serve`): over drafted steps; rate in percent; per-position rates divide by
  all drafted steps.

## Intervals of acceptance length, and its change with the load

Columns of `cells.csv`. Both come from the percentile bootstrap over prompts, 95 %, with a fixed
seed: prompts are drawn with replacement, and AL is pooled over the steps of a draw.

* `al_low`, `al_high`: interval of `al`.
* `al_change`, `al_change_low`, `al_change_high`: al minus that of the cell with the fewest requests
  in flight, at the same engine, target, drafter, load, sampling and repeat; over the prompts that
  both have, a draw takes the same prompts from both. Failed cells are passed over. It is null for
  the cell with the fewest itself and without a drafter.
* All are null where the responses do not tell or show the steps of every request, also where the
  server's counters fill `al`: they know no prompts. An interval needs two prompts.
* AL changes with the load where the interval of `al_change` excludes 0; the figure of acceptance
  names the largest change of each drafter. Each interval is one of 95 %: of many, one in twenty
  excludes 0 by chance.

## Comparison with the cell without a drafter

Same engine, target, load, sampling and repeat.

* `speedup_user`: ratio of mean user_tok_per_s over the prompts that both cells have; 95 % interval
  from a paired percentile bootstrap over prompts with a fixed seed.
* `speedup_output`: ratio of the cells' output_tok_per_s.
* `output_length_drift`: mean completion tokens over the baseline's, same turns; a speedup at a
  drift other than 1 compares replies of different length.
* `projected_speedup` = t_ar * AL / t_sd (SPEED-Bench, appendix H).
* Token agreement: turns with equal token ids, and the first position that differs elsewhere. A
  prompt is compared up to its first difference.
"""


def page() -> str:
    """Return ``docs/metrics.md``."""
    rows = ["| metric | unit | formula | needs | note |", "|---|---|---|---|---|"]
    rows += [f"| `{m.path}` | {m.unit} | {m.formula} | {m.needs} | {m.note} |" for m in METRICS]
    return PAGE.format(table="\n".join(rows))


if __name__ == "__main__":
    print(page(), end="")
