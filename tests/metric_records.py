"""Short ways to write down a request and a cell for the tests of the metrics."""

from typing import Any

from speedstudy.records import RECORD_VERSION, TurnRecord, write_json, write_requests

PREFILL: dict[str, Any] = {"first_token": "prefill", "load": {"devices": 1}}
VERIFY: dict[str, Any] = {"first_token": "verify", "load": {"devices": 1}}


def reply(
    chunks: list[tuple[float, int]] | None = None,
    *,
    prompt_id: str = "p",
    sent_s: float | None = 0.0,
    outcome: str = "ok",
    **fields: Any,
) -> TurnRecord:
    """Return a request whose chunks are (seconds, tokens)."""
    chunks = chunks or []
    fields.setdefault("completion_tokens", sum(tokens for _, tokens in chunks) or None)
    fields.setdefault("category", None)
    fields.setdefault("turn", 0)
    fields.setdefault("scheduled_s", 0.0)
    return TurnRecord(
        prompt_id=prompt_id,
        outcome=outcome,  # type: ignore[arg-type]
        error=None if outcome == "ok" else "it failed",
        sent_s=sent_s,
        chunk_s=[second for second, _ in chunks],
        chunk_tokens=[tokens for _, tokens in chunks],
        **fields,
    )


def stepped(
    step_drafted: list[int],
    step_accepted: list[int],
    *,
    tokens: int,
    steps: int | None = None,
    sizes: list[int] | None = None,
    **fields: Any,
) -> TurnRecord:
    """Return a request with per-step lists; without ``steps`` they hold drafted steps only."""
    return reply(
        [(0.1 + 0.01 * i, size) for i, size in enumerate(sizes or [])],
        completion_tokens=tokens,
        steps=steps,
        steps_drafted=sum(length > 0 for length in step_drafted),
        drafted=sum(step_drafted),
        accepted=sum(step_accepted),
        step_drafted=step_drafted,
        step_accepted=step_accepted,
        acceptance_source="steps",
        **fields,
    )


def drafter_cell(method: str, k: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return a cell that names its drafter."""
    return {**PREFILL, "cell": {"drafter": {"method": method, "k": k}}, **fields}


def counters(
    drafts: int, draft_tokens: int, accepted: int, per_position: list[int]
) -> dict[str, Any]:
    """Return the totals of a snapshot of a server's counters."""
    return {
        "num_drafts": drafts,
        "num_draft_tokens": draft_tokens,
        "num_accepted_tokens": accepted,
        "num_accepted_tokens_per_pos": per_position,
    }


def write_cell(folder, cell_id, turns=(), *, method="none", k=0, concurrency=1, **fields):
    """Write a finished cell's folder as run_cell does; `fields` replace parts of cell.json."""
    directory = folder / cell_id
    directory.mkdir()
    record = {
        "record_version": RECORD_VERSION,
        "status": "ok",
        "reason": None,
        "cell_id": cell_id,
        "cell": {
            "engine": {"name": "openvino", "version": "2026.4.1"},
            "target": {"name": "smollm2"},
            "drafter": {"name": "ngram" if k else "none", "method": method, "k": k},
            "load": {
                "name": "qualitative",
                "workload": {"kind": "qualitative", "bucket": None, "ids": "real"},
                "concurrency": concurrency,
                "max_tokens": 48,
            },
            "sampling": {"name": "greedy", "temperature": 0.0, "seed": 0},
            "repeat": 1,
        },
        "workload": {"name": "qualitative--1", "digest": "a" * 64, "prompts": 2},
        "load": {"devices": 1},
        "engine": {"version": "2026.4.1-build", "startup_s": 2.5},
        "first_token": "prefill",
        "counters": None,
        "client": {"verdict": "valid"},
        **fields,
    }
    write_requests(directory / "requests.parquet", turns)
    write_json(directory / "cell.json", record)
    return directory
