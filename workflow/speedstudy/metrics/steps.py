"""The verify steps of one request: what its record tells, and what follows from it.

Engines differ in the steps they count. vLLM's lists, histograms and counters hold only steps
that drafted something; SGLang's, TensorRT-LLM's and OpenVINO's hold every step. The record keeps
the two apart (``steps_drafted``, ``steps``); this module derives the missing one where that is
possible.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from speedstudy.records import TurnRecord

LENGTH_FINISHES = ("length", "limit")


@dataclass(frozen=True, kw_only=True)
class StepCounts:
    """Verify steps of one request; every field is None where it is not known.

    Attributes:
        tokens: Completion tokens N, the first token included.
        steps: Verify steps, drafted or not.
        steps_drafted: Verify steps with at least one drafted token.
        drafted: Drafted tokens, the sum of L.
        accepted: Accepted draft tokens A, the sum of j.
        identity_gap: N - steps - A with the source's own step count; None if it told none.
        pairs: How many steps drafted L and accepted j, by (L, j), over the steps that the source
            lists; empty where there was no step.
    """

    tokens: int | None
    steps: int | None = None
    steps_drafted: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    identity_gap: int | None = None
    pairs: Counter[tuple[int, int]] | None = None

    @property
    def told(self) -> bool:
        """Whether anything is known of the request's verify steps."""
        values = (self.steps, self.steps_drafted, self.drafted, self.accepted)
        return any(value is not None for value in values)


def completion_tokens(turn: TurnRecord) -> int | None:
    """Return N as the engine counted it, else the tokens seen in the stream, else None."""
    if turn.completion_tokens is not None:
        return turn.completion_tokens
    return sum(turn.chunk_tokens) if turn.chunk_tokens else None


def has_drafter(cell: dict[str, Any]) -> bool:
    """Return False only if the cell says that it ran without a drafter (method ``none``).

    A measurement by hand names no drafter: the answer is True then, that is, not known to be
    without one.
    """
    drafter = (cell.get("cell") or {}).get("drafter") or {}
    return bool(drafter.get("method") != "none")


def tells_acceptance(turn: TurnRecord) -> bool:
    """Return whether the engine told anything about the request's verify steps."""
    fields = (turn.steps, turn.steps_drafted, turn.drafted, turn.accepted, turn.step_accepted)
    return any(value is not None for value in fields)


def draft_length(turns: Sequence[TurnRecord], cell: dict[str, Any]) -> int | None:
    """Return the configured draft length k, else the largest accepted length seen, else None."""
    configured = ((cell.get("cell") or {}).get("drafter") or {}).get("k")
    if configured is not None:
        return int(configured)
    return max((max(turn.step_accepted) for turn in turns if turn.step_accepted), default=None)


def resolve(turn: TurnRecord, cell: dict[str, Any], k: int | None) -> StepCounts:
    """Return the step counts of one request.

    Args:
        turn: The request.
        cell: The cell's record; ``first_token`` and the drafter's method are read.
        k: The draft length (``draft_length``); it turns a histogram into (L, j) pairs where
            drafted = k * steps, since no step drafts more than k.
    """
    tokens = completion_tokens(turn)
    first_token = cell.get("first_token")
    if not tells_acceptance(turn):
        return _without_report(tokens, first_token, has_drafter(cell))
    accepted = turn.accepted if turn.accepted is not None else _total(turn.step_accepted)
    drafted = turn.drafted if turn.drafted is not None else _total(turn.step_drafted)
    steps_drafted = turn.steps_drafted
    if steps_drafted is None and turn.step_drafted is not None:
        steps_drafted = sum(length > 0 for length in turn.step_drafted)
    own_steps = turn.steps if turn.steps is not None else steps_drafted
    if not has_drafter(cell) and accepted == 0:
        steps_drafted, drafted = steps_drafted or 0, drafted or 0
    steps = turn.steps
    if steps is None and first_token == "prefill" and tokens and accepted is not None:
        steps = _steps_of_stream(turn, tokens, accepted, steps_drafted)
    if steps_drafted is None and k and turn.steps and drafted == k * turn.steps:
        steps_drafted = turn.steps  # no step drafts more than k, so each one drafted
    gap = None
    if tokens is not None and own_steps is not None and accepted is not None:
        gap = tokens - own_steps - accepted
    return StepCounts(
        tokens=tokens,
        steps=steps,
        steps_drafted=steps_drafted,
        drafted=drafted,
        accepted=accepted,
        identity_gap=gap,
        pairs=_pairs(turn, drafted, k),
    )


def derive_steps(
    *, tokens: int, requests: int, accepted: int, steps_drafted: int | None, chunks: int | None
) -> int | None:
    """Derive all verify steps from N = 1 + steps + A, summed over requests, or return None.

    The identity holds where the first token comes from prefill and no reply was cut inside a
    step. A cut lowers N and a step without a draft raises it, so the identity alone proves
    nothing; it is used with one more fact that agrees:

    * nothing was accepted, so that nothing can have been cut;
    * it closes on the drafted steps: no other step ran;
    * it falls short of the drafted steps, so that a reply was cut, and the stream has no more
      chunks than drafted steps: no other step ran;
    * it closes on the number of chunks: each chunk was a step, some without a draft.

    Args:
        tokens: Completion tokens.
        requests: Replies with at least one token.
        accepted: Accepted draft tokens.
        steps_drafted: Steps with a draft, if known.
        chunks: Chunks after each reply's first one, or None where the first chunk is not exactly
            the prefill token. A stream of one token a chunk tells nothing and is ignored.
    """
    closing = tokens - requests - accepted
    if accepted == 0:
        return closing if closing >= (steps_drafted or 0) else None
    if chunks == tokens - requests:
        chunks = None
    if steps_drafted is None or closing > steps_drafted:
        return closing if closing == chunks else None
    if chunks is None:
        return steps_drafted if closing == steps_drafted else None
    return steps_drafted if chunks <= steps_drafted else None


def chunks_after_prefill(turn: TurnRecord) -> list[int] | None:
    """Return the tokens of each chunk after the prefill token's, or None if it had no own chunk."""
    if turn.chunk_tokens[:1] != [1] or sum(turn.chunk_tokens) != completion_tokens(turn):
        return None
    return turn.chunk_tokens[1:]


def _without_report(tokens: int | None, first_token: str | None, with_drafter: bool) -> StepCounts:
    """Count the steps of a request about which the engine told nothing."""
    steps = None
    if tokens is not None and first_token in ("prefill", "verify"):
        steps = tokens - 1 if first_token == "prefill" else tokens
    if with_drafter and steps != 0:
        return StepCounts(tokens=tokens)
    # Without a drafter each token is a step; a reply of the prefill token alone had no step.
    return StepCounts(
        tokens=tokens, steps=steps, steps_drafted=0, drafted=0, accepted=0, pairs=Counter()
    )


def _steps_of_stream(
    turn: TurnRecord, tokens: int, accepted: int, steps_drafted: int | None
) -> int | None:
    chunks = chunks_after_prefill(turn)
    ordered = turn.step_accepted if turn.acceptance_source == "steps" else None
    if chunks and ordered and _one_step_a_chunk(chunks, ordered):
        return len(chunks)
    steps = derive_steps(
        tokens=tokens,
        requests=1,
        accepted=accepted,
        steps_drafted=steps_drafted,
        chunks=None if chunks is None else len(chunks),
    )
    if steps is not None:
        return steps
    closing = tokens - 1 - accepted
    if ordered and ordered[-1] == 0 and closing >= len(ordered):
        return closing  # only the last step can be cut, and it had nothing to cut
    if steps_drafted is None and turn.finish_reason in LENGTH_FINISHES and closing >= 0:
        return closing  # totals without steps (llama.cpp), which never drafts beyond the limit
    return None


def _one_step_a_chunk(chunks: Sequence[int], step_accepted: Sequence[int]) -> bool:
    """Return whether the chunks are the listed steps, steps of one token between them.

    A listed step that accepted j emits j + 1 tokens, a step without a draft emits one. Steps of
    several tokens must appear as chunks of that size in the same order; only the last chunk may
    be shorter, where the reply was cut inside its step. An engine that merges steps into one
    chunk under load breaks the order.
    """
    if len(chunks) < len(step_accepted):
        return False
    emitted = [accepted + 1 for accepted in step_accepted]
    if _several(chunks) == _several(emitted):
        return True
    return chunks[-1] < emitted[-1] and _several(chunks[:-1]) == _several(emitted[:-1])


def _several(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size > 1]


def _pairs(turn: TurnRecord, drafted: int | None, k: int | None) -> Counter[tuple[int, int]] | None:
    accepted = turn.step_accepted
    if accepted is None:
        return None
    if turn.step_drafted is not None and len(turn.step_drafted) == len(accepted):
        return Counter(zip(turn.step_drafted, accepted, strict=True))
    if k is not None and drafted == k * len(accepted):
        return Counter((k, step) for step in accepted)
    return None


def _total(values: Sequence[int] | None) -> int | None:
    return None if values is None else sum(values)
