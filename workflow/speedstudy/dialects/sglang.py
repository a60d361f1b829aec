"""SGLang's native dialect, ``POST /generate``.

Every event repeats the reply so far, unless the server runs with
``--incremental-streaming-output``; nothing in an event says which. A server that is behind drops
events (cumulative) or joins them (incremental), so that a chunk is no verify step.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from speedstudy.dialects.acceptance import read_sglang
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sse import Event
from speedstudy.dialects.stream import attach_acceptance, read_stream


class SGLang:
    """Token ids in and out, counts and acceptance in ``meta_info``.

    The prompt's ids are not asked back: the server would repeat them in every event.
    """

    name = "sglang"
    route = "/generate"
    first_token: Literal["prefill", "verify"] = "prefill"
    counter_route = "/metrics"
    # The gauges beside it (spec_accept_length and others) are of the last interval, not counters.
    counter_names: Mapping[str, str] = MappingProxyType(
        {"num_steps": "sglang:spec_verify_calls_total"}
    )
    counters_exact_below: float | None = None
    keeps_connections = True

    def body(self, model: str, token_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request body; these fields and no others. The route knows no model name."""
        return {
            "input_ids": list(token_ids),
            "sampling_params": {
                "max_new_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "ignore_eos": sampling.ignore_eos,
                **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
            },
            "stream": True,
        }

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events say; see ``GenerateReader`` and ``acceptance.read_sglang``."""
        reader = GenerateReader()
        reply = read_stream(events, reader)
        attach_acceptance(reply, lambda: read_sglang(reader.meta))
        return reply


class GenerateReader:
    """Reads the payloads of one reply.

    An event is cumulative if it has at least as many ids as the reply has tokens by then
    (``completion_tokens``); an incremental one has fewer, from the second on. Cumulative ids may
    run ahead of the count of their own event. Without a count the ids tell: they repeat the reply
    so far, or do not. Without ids the growth of the count tells the tokens, without either the
    growth of the text that there is one (``assumed_chunks``).

    Attributes:
        reply: The reply so far.
        seen: Tokens in its chunks.
        text: Characters of the last event's text.
        meta: The latest ``meta_info``.
    """

    def __init__(self) -> None:
        self.reply = Reply()
        self.seen = 0
        self.text = 0
        self.meta: Mapping[str, Any] = {}

    def read(self, index: int, payload: Mapping[str, Any]) -> None:
        """Take in one event."""
        meta = payload.get("meta_info") or {}
        counted: int | None = meta.get("completion_tokens")
        ids = payload.get("output_ids")
        if ids is not None:
            tokens = self._new_ids(ids, counted)
        else:
            tokens = self._uncounted_tokens(payload.get("text") or "", counted)
        if tokens > 0:
            self.seen += tokens
            self.reply.chunk_events.append(index)
            self.reply.chunk_tokens.append(tokens)
        self._read_meta(meta, counted)

    def _new_ids(self, ids: Sequence[int], counted: int | None) -> int:
        if counted is None:
            cumulative = list(ids[: self.seen]) == self.reply.token_ids
        else:
            cumulative = len(ids) >= counted
        new = ids[self.seen :] if cumulative and self.seen else ids
        if self.reply.token_ids is not None:
            self.reply.token_ids.extend(new)
        return len(new)

    def _uncounted_tokens(self, text: str, counted: int | None) -> int:
        if counted is not None:
            tokens = counted - self.seen
        else:
            tokens = int(len(text) > self.text)
            self.reply.assumed_chunks += tokens
        self.text = max(self.text, len(text))
        if tokens > 0:
            self.reply.token_ids = None
        return tokens

    def _read_meta(self, meta: Mapping[str, Any], counted: int | None) -> None:
        reply = self.reply
        self.meta = meta or self.meta
        if counted is not None:
            reply.completion_tokens = counted
        if meta.get("prompt_tokens") is not None:
            reply.prompt_tokens = meta["prompt_tokens"]
        if meta.get("cached_tokens") is not None:
            reply.cached_tokens = meta["cached_tokens"]
        finish = meta.get("finish_reason")
        if finish is not None:
            kind = finish.get("type") if isinstance(finish, Mapping) else finish
            reply.finish_reason = str(kind)
            if kind == "abort" and isinstance(finish, Mapping):
                reply.error = f"the engine broke the reply off: {finish.get('message') or kind}"
