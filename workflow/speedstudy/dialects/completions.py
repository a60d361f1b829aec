"""The event stream of ``POST /v1/completions``, as every OpenAI-like server sends it.

What the servers add to the standard (``token_ids``, ``prompt_token_ids``) is read where it is
there; of what they add about drafts, the last word is kept for the dialect to read.
"""

from collections.abc import Mapping
from typing import Any

from speedstudy.dialects.reply import Reply


class CompletionsReader:
    """Reads the payloads of one reply.

    Tokens are counted by ``token_ids`` where an event has them (an empty text with ids is a
    token, a role or an empty text without is none), else by the growth of a usage that rides on
    every event, else as one for a text that is not empty (``assumed_chunks``). Text is never
    tokenised. Usage counts wherever it comes: in the last content event, in one of its own, in
    each.

    Attributes:
        reply: The reply so far.
        seen: Tokens in its chunks.
        metrics: The latest ``metrics`` object at the root.
        choice: The latest choice.
    """

    def __init__(self) -> None:
        self.reply = Reply()
        self.seen = 0
        self.metrics: Mapping[str, Any] = {}
        self.choice: Mapping[str, Any] = {}

    def read(self, index: int, payload: Mapping[str, Any]) -> None:
        """Take in one event."""
        usage = payload.get("usage")
        choices = payload.get("choices")
        if choices:
            reply = self.reply
            self.choice = choice = choices[0]
            ids = choice.get("token_ids")
            if ids:
                tokens = len(ids)
                if reply.token_ids is not None:
                    reply.token_ids.extend(ids)
            elif ids is None:
                tokens = self._uncounted_tokens(choice, usage)
            else:
                tokens = 0
            if tokens:
                self.seen += tokens
                reply.chunk_events.append(index)
                reply.chunk_tokens.append(tokens)
            finish_reason = choice.get("finish_reason")
            if finish_reason is not None:
                reply.finish_reason = str(finish_reason)
            prompt_ids = choice.get("prompt_token_ids")
            if prompt_ids is not None:
                reply.echoed_prompt_ids = list(prompt_ids)
        if usage:
            self._read_usage(usage)
        metrics = payload.get("metrics")
        if metrics:
            self.metrics = metrics

    def _uncounted_tokens(self, choice: Mapping[str, Any], usage: Mapping[str, Any] | None) -> int:
        """Tokens of an event without ids; the reply then has no ids either."""
        counted: int | None = (usage or {}).get("completion_tokens")
        if counted is not None and not self.reply.assumed_chunks:
            tokens = max(counted - self.seen, 0)
        elif choice.get("text"):
            tokens = 1
            self.reply.assumed_chunks += 1
        else:
            return 0
        if tokens:
            self.reply.token_ids = None
        return tokens

    def _read_usage(self, usage: Mapping[str, Any]) -> None:
        reply = self.reply
        if usage.get("completion_tokens") is not None:
            reply.completion_tokens = usage["completion_tokens"]
        if usage.get("prompt_tokens") is not None:
            reply.prompt_tokens = usage["prompt_tokens"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if cached is not None:
            reply.cached_tokens = cached
