"""The event stream of ``POST /v1/completions``, as every OpenAI-like server sends it.

Needs the events of one reply, leaves a ``Reply``. What the servers add to the standard
(``token_ids``, ``prompt_token_ids``, ``metrics``) is read where it is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from speedstudy.dialects.acceptance import read_acceptance
from speedstudy.dialects.reply import Chunk, Reply
from speedstudy.dialects.sse import Event

END_MARK = b"[DONE]"
EXCERPT_CHARACTERS = 300
# Finish reasons by which an engine says that it gave up, not that the reply is whole.
BROKEN_OFF = frozenset({"abort", "error"})


def parse_completions(events: Sequence[Event]) -> Reply:
    """Return what the events say; never raises, whatever a server sends.

    Tokens are counted by ``token_ids`` where an event has them (an empty text with ids is a
    token, a role or an empty text without is none), else by the growth of a usage that rides on
    every event, else as one for a text that is not empty (``assumed_chunks``). Text is never
    tokenised. Usage counts wherever it comes: in the last content event, in one of its own, in
    each. Reading stops at the first event that is an error or cannot be read: what came before
    is kept, and ``error`` says what it was.
    """
    reply = Reply()
    speculative: Mapping[str, Any] | None = None
    for index, event in enumerate(events):
        if event.data.strip() == END_MARK:
            reply.terminated = True
            break
        try:
            payload = orjson.loads(event.data)
            reply.error = _error_text(event.name, payload)
            if reply.error is None:
                _read_payload(reply, index, payload)
                metrics = payload.get("metrics") or {}
                speculative = metrics.get("speculative_decoding") or speculative
        except orjson.JSONDecodeError:
            reply.error = f"event {index} is not JSON: {_excerpt(event.data)}"
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            reply.error = f"event {index} cannot be read ({problem!r}): {_excerpt(event.data)}"
        if reply.error is not None:
            break
    _finish(reply, speculative)
    return reply


def _read_payload(reply: Reply, index: int, payload: Mapping[str, Any]) -> None:
    usage = payload.get("usage") or {}
    completion_tokens: int | None = usage.get("completion_tokens")
    choices = payload.get("choices")
    if choices:
        choice = choices[0]
        ids = choice.get("token_ids")
        if ids:
            tokens = len(ids)
            if reply.token_ids is not None:
                reply.token_ids.extend(ids)
        elif ids is None:
            tokens = _uncounted_tokens(reply, choice, completion_tokens)
        else:
            tokens = 0
        if tokens:
            reply.chunks.append(Chunk(index, tokens))
        if choice.get("finish_reason") is not None:
            reply.finish_reason = str(choice["finish_reason"])
        if choice.get("prompt_token_ids") is not None:
            reply.echoed_prompt_ids = list(choice["prompt_token_ids"])
    if completion_tokens is not None:
        reply.completion_tokens = completion_tokens
    if usage.get("prompt_tokens") is not None:
        reply.prompt_tokens = usage["prompt_tokens"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if cached is not None:
        reply.cached_tokens = cached


def _uncounted_tokens(
    reply: Reply, choice: Mapping[str, Any], completion_tokens: int | None
) -> int:
    """Tokens of an event without ids; the reply then has no ids either."""
    if completion_tokens is not None and not reply.assumed_chunks:
        tokens = completion_tokens - sum(chunk.tokens for chunk in reply.chunks)
    elif choice.get("text"):
        tokens = 1
        reply.assumed_chunks += 1
    else:
        return 0
    if tokens > 0:
        reply.token_ids = None
    return max(tokens, 0)


def _finish(reply: Reply, speculative: Mapping[str, Any] | None) -> None:
    if reply.completion_tokens is None and reply.token_ids is not None:
        reply.completion_tokens = len(reply.token_ids)
    if speculative is not None:
        try:
            reply.acceptance = read_acceptance(speculative)
        except (AttributeError, TypeError, ValueError) as problem:
            reply.error = reply.error or f"metrics.speculative_decoding: {problem}"
    if reply.error is None and reply.finish_reason in BROKEN_OFF:
        reply.error = f"the engine broke the reply off (finish_reason {reply.finish_reason!r})"


def _error_text(name: str, payload: Any) -> str | None:
    """The error that an event carries, or None; a null or empty ``error`` field is none."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"not an object but {type(payload).__name__}")
    error = payload.get("error")
    if not error and (name == "error" or payload.get("object") == "error"):
        error = payload
    if not error:
        return None
    message = error.get("message") if isinstance(error, Mapping) else None
    return f"the server reports an error: {message or _excerpt(orjson.dumps(error))}"


def _excerpt(data: bytes) -> str:
    return data[:EXCERPT_CHARACTERS].decode(errors="replace")
