"""What a dialect hands over: the fields of a request and the contents of a reply.

Needs nothing, leaves plain data: no process, no clock, no transport.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the engine is asked to decode.

    Attributes:
        max_tokens: Most completion tokens of one reply.
        temperature: 0 is greedy.
        seed: Seed of the engine's sampler; None leaves it to the engine.
        ignore_eos: Go on after the end-of-sequence token until ``max_tokens``.
    """

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = False


class Chunk(NamedTuple):
    """One streamed event that carries at least one token.

    Attributes:
        event: Index of the event in the stream, from 0; the client knows when it arrived.
        tokens: Tokens in it, at least 1.
    """

    event: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Draft acceptance as one reply tells it; the fields are those of ``records.TurnRecord``."""

    source: str
    steps: int | None = None
    steps_drafted: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    step_drafted: list[int] | None = None
    step_accepted: list[int] | None = None


@dataclass(kw_only=True)
class Reply:
    """Everything that the events of one reply say, whole or cut short.

    Attributes:
        chunk_events: Index in the stream, from 0, of each event that carries at least one token;
            the client knows when it arrived.
        chunk_tokens: Tokens in each of those events, at least 1. Two lists, not one of pairs: a
            run makes millions of them.
        token_ids: Completion token ids in order; None if a token came without its id.
        echoed_prompt_ids: Prompt ids as the engine echoed them, or None.
        prompt_tokens: Prompt tokens as the engine counted them, or None.
        completion_tokens: Completion tokens as the engine counted them; without a count the ids
            seen; None if there are neither.
        cached_tokens: Prompt tokens from the engine's prefix cache, or None.
        finish_reason: The engine's word, or None if the stream did not get that far.
        terminated: The stream's own end mark was seen.
        assumed_chunks: Chunks whose tokens nobody counted; each stands with the least, 1.
        acceptance: What the engine told of drafts, or None.
        acceptance_conflict: What contradicts itself or cannot be read in that, or None.
        error: Why the reply is not one: the engine's error text, or what could not be read.
    """

    chunk_events: list[int] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    token_ids: list[int] | None = field(default_factory=list)
    echoed_prompt_ids: list[int] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    terminated: bool = False
    assumed_chunks: int = 0
    acceptance: Acceptance | None = None
    acceptance_conflict: str | None = None
    error: str | None = None

    @property
    def chunks(self) -> list[Chunk]:
        """The events that carry tokens, in order."""
        return list(map(Chunk, self.chunk_events, self.chunk_tokens))
