"""The part of vLLM's completion API that the OpenVINO server speaks: bodies in, bodies out; pure.

Needs nothing but the bytes of a request and the ids of each step. What vLLM would take and this
server can't do is refused by name, never ignored: a benchmark that believes it sampled with
``top_p`` must not get greedy text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

BLOCK_TOKENS = 32
"""Tokens in one block of GenAI's CPU key/value cache."""


class StreamOptions(BaseModel):
    """``stream_options`` of a completion request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = Field(False, description="end with an event of usage and acceptance")


class CompletionRequest(BaseModel):
    """Body of ``POST /v1/completions``; defaults are vLLM's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field(description="the served model name")
    prompt: list[int] = Field(min_length=1, description="token ids; text is not tokenised here")
    max_tokens: int = Field(16, ge=1, description="most tokens to generate")
    temperature: float = Field(1.0, ge=0, le=2, description="0 is greedy")
    seed: int | None = Field(None, ge=0, description="seed of this request's sampling")
    ignore_eos: bool = Field(False, description="go on past the end-of-text token")
    stream: bool = Field(False, description="one server-sent event per verify step")
    stream_options: StreamOptions | None = None
    return_token_ids: bool = Field(False, description="send ids; streamed text is then empty")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a request is checked against.

    Attributes:
        model: The served model name.
        vocabulary: Number of token ids. OpenVINO does not check them: an id outside reads
            beside the embedding table and gives a fluent wrong answer.
        context_tokens: Longest prompt plus reply of the model.
        cache_tokens: Tokens that the key/value cache holds, ``draft_tokens`` included.
        draft_tokens: Tokens drafted per step, 0 without a drafter.
        drafted_known: Whether each step tells how much it drafted.
        greedy_only: Refuse to sample, since the drafter would change the text.
    """

    model: str
    vocabulary: int
    context_tokens: int
    cache_tokens: int
    draft_tokens: int
    drafted_known: bool
    greedy_only: bool


class RequestError(Exception):
    """A request that is answered with an error body.

    Attributes:
        status: HTTP status.
        kind: vLLM's error type.
    """

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def body(self) -> dict[str, Any]:
        """Return vLLM's error body."""
        error = {"message": str(self), "type": self.kind, "param": None, "code": self.status}
        return {"error": error}


def parse_request(body: bytes, limits: Limits) -> CompletionRequest:
    """Return the checked request.

    Raises:
        RequestError: 400 for a body, a field or a length that can't be served, 404 for another
            model; the message names the field.
    """
    try:
        request = CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        problems = (
            f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
            for problem in error.errors(include_url=False)[:3]
        )
        raise RequestError("; ".join(problems)) from None
    if request.model != limits.model:
        raise RequestError(
            f"The model `{request.model}` does not exist; served: `{limits.model}`",
            status=404,
            kind="NotFoundError",
        )
    outside = next((i for i in request.prompt if not 0 <= i < limits.vocabulary), None)
    if outside is not None:
        raise RequestError(f"prompt: token id {outside} is not in 0..{limits.vocabulary - 1}")
    if request.temperature > 0 and limits.greedy_only:
        raise RequestError(
            "temperature: with an EAGLE-3 head OpenVINO GenAI samples other text than without; "
            "give 0"
        )
    total = len(request.prompt) + request.max_tokens
    if total > limits.context_tokens:
        raise RequestError(
            f"{len(request.prompt)} prompt tokens + max_tokens {request.max_tokens} = {total}, "
            f"more than the model's context of {limits.context_tokens}"
        )
    if reserved_tokens(total, limits.draft_tokens) > limits.cache_tokens:
        raise RequestError(
            f"{len(request.prompt)} prompt tokens + max_tokens {request.max_tokens} don't fit in "
            f"the key/value cache of {limits.cache_tokens} tokens; raise --cache-gib"
        )
    return request


def reserved_tokens(total_tokens: int, draft_tokens: int) -> int:
    """Return the cache tokens that a request can ever hold: whole blocks, draft included."""
    return -(-(total_tokens + draft_tokens) // BLOCK_TOKENS) * BLOCK_TOKENS


@dataclass(frozen=True, kw_only=True)
class Verify:
    """One verify step of one request.

    Attributes:
        drafted: Tokens that the drafter proposed; None: the engine does not tell.
        accepted: How many of them the target took.
    """

    drafted: int | None
    accepted: int


def draft_length(draft_tokens: int, max_tokens: int, emitted: int) -> int:
    """Return how many tokens GenAI has a draft model or an EAGLE-3 head draft in a verify step.

    It drafts k in every step after the prefill, but never past the length limit: the step's last
    token is the target's own. Nothing of the API that serves several requests tells it; a test
    holds the rule against the engine's counters and against a drafter that is always right.

    Args:
        draft_tokens: k.
        max_tokens: Most tokens of the reply.
        emitted: Tokens of the reply before the step.
    """
    return min(draft_tokens, max_tokens - 1 - emitted)


@dataclass(kw_only=True)
class Completion:
    """One reply while it grows; turns steps into response bodies.

    Attributes:
        reply_id: The ``id`` of every body.
        created: Unix time, whole seconds.
        request: What was asked.
        draft_tokens: k of the drafter, None without one.
        verified: The verify steps so far, in order. GenAI drafts only after the prefill's token,
            so what gave that one is not among them.
        token_ids: All ids so far.
        finish_reason: ``stop`` or ``length`` once the engine said so.
    """

    reply_id: str
    created: int
    request: CompletionRequest
    draft_tokens: int | None
    verified: list[Verify] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def add_step(
        self, token_ids: Sequence[int], finish_reason: str | None, verify: Verify | None
    ) -> None:
        """Take in what one engine step gave this request."""
        self.token_ids.extend(token_ids)
        if verify is not None:
            self.verified.append(verify)
        self.finish_reason = finish_reason

    def event(self, token_ids: Sequence[int], text: str) -> dict[str, Any]:
        """Return the event of the step just added; the first one repeats the prompt's ids."""
        choice: dict[str, Any] = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": self.finish_reason,
            "stop_reason": None,
        }
        if self.request.return_token_ids:
            first = len(self.token_ids) == len(token_ids)
            choice["token_ids"] = list(token_ids)
            choice["prompt_token_ids"] = self.request.prompt if first else None
        return {**self._head(), "choices": [choice]}

    def usage_event(self) -> dict[str, Any]:
        """Return the trailing event: no choice, the usage and the acceptance."""
        return {**self._head(), "choices": [], "usage": self._usage(), "metrics": self._metrics()}

    def whole(self, text: str) -> dict[str, Any]:
        """Return the body of a reply that is not streamed."""
        event = self.event(self.token_ids, text)
        return {**event, "usage": self._usage(), "metrics": self._metrics()}

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.reply_id,
            "object": "text_completion",
            "created": self.created,
            "model": self.request.model,
        }

    def _usage(self) -> dict[str, int]:
        prompt, completion = len(self.request.prompt), len(self.token_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }

    def _metrics(self) -> dict[str, Any] | None:
        if self.draft_tokens is None:
            return None
        return {"speculative_decoding": speculative_decoding(self.verified, self.draft_tokens)}


def speculative_decoding(verified: Sequence[Verify], draft_tokens: int) -> dict[str, Any]:
    """Return the fields of vLLM's per-request acceptance object.

    Where the drafted tokens are known they mean what they mean in vLLM: only steps that drafted
    something are counted. Where they are not (prompt lookup), every verify step is, and each field
    that needs them is null. Then too, a step that an end-of-text token cut counts the drafts that
    were emitted, which can be fewer than were accepted.

    Args:
        verified: The verify steps, in order.
        draft_tokens: Most tokens that a step may draft.
    """
    counted = [step for step in verified if step.drafted != 0]
    accepted = [step.accepted for step in counted]
    told = [step.drafted for step in counted if step.drafted is not None]
    drafted = told if len(told) == len(counted) else None
    steps, total = len(accepted), sum(accepted)
    return {
        "mean_acceptance_length": 1 + total / steps if steps else None,
        "draft_acceptance_rate": total / sum(drafted) if drafted else None,
        "acceptance_histogram": [accepted.count(length) for length in range(draft_tokens + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": total,
        "num_draft_tokens": None if drafted is None else sum(drafted),
        "num_spec_tokens": draft_tokens,
        "per_step_accepted": accepted,
        "per_step_drafted": drafted,
    }
