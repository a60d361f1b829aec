"""llama.cpp's native dialect, ``POST /completion`` of ``llama-server``.

Each token is an event of its own, also those of one verify step: steps are not in the stream.
The stream has no end mark but an event with ``stop``.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from speedstudy.dialects.acceptance import read_llamacpp
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sse import Event
from speedstudy.dialects.stream import attach_acceptance, read_stream

LAST_SEED = 2**32 - 2  # 32 bits, of which the last value draws a seed


class LlamaCpp:
    """Token ids in and out, counts and acceptance in the last event.

    The prompt cache is turned off, and so are the samplers that the server adds by default at a
    temperature above 0. The counters need ``--metrics``.
    """

    name = "llamacpp"
    route = "/completion"
    first_token: Literal["prefill", "verify"] = "prefill"
    counter_route = "/metrics"
    counter_names: Mapping[str, str] = MappingProxyType(
        {
            "num_drafts": "llamacpp:spec_decode_num_drafts_total",
            "num_draft_tokens": "llamacpp:spec_decode_num_draft_tokens_total",
            "num_accepted_tokens": "llamacpp:spec_decode_num_accepted_tokens_total",
            "num_accepted_tokens_per_pos": "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
        }
    )
    # It prints them with six digits: 1234567 comes as 1.23457e+06.
    counters_exact_below: float | None = 1e6
    # It ends the connection after each streamed reply, though its head says keep-alive (b11434).
    keeps_connections = False

    def body(self, model: str, token_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request body; these fields and no others.

        Raises:
            ValueError: A seed that the server would draw itself or cut to 32 bits.
        """
        if sampling.seed is not None and not 0 <= sampling.seed <= LAST_SEED:
            raise ValueError(f"seed {sampling.seed}: llama.cpp takes 0 to {LAST_SEED}")
        return {
            "model": model,
            "prompt": list(token_ids),
            "stream": True,
            "return_tokens": True,
            "cache_prompt": False,
            "n_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "ignore_eos": sampling.ignore_eos,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
        }

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events say; see ``CompletionReader`` and ``read_llamacpp``."""
        reader = CompletionReader()
        reply = read_stream(events, reader)
        attach_acceptance(reply, lambda: read_llamacpp(reader.timings))
        return reply


class CompletionReader:
    """Reads the payloads of one reply.

    A token that ends inside a character has no event: the next event brings its bytes and, in
    ``tokens_predicted``, its count, but not its id. Tokens are counted by that number therefore,
    and the reply has no ids from then on. Without the number the ids count.

    Attributes:
        reply: The reply so far.
        seen: Tokens in its chunks.
        timings: The latest ``timings``.
    """

    def __init__(self) -> None:
        self.reply = Reply()
        self.seen = 0
        self.timings: Mapping[str, Any] = {}

    def read(self, index: int, payload: Mapping[str, Any]) -> None:
        """Take in one event."""
        reply = self.reply
        ids = payload.get("tokens") or []
        counted: int | None = payload.get("tokens_predicted")
        tokens = len(ids) if counted is None else counted - self.seen
        if tokens == 0 and counted is None and payload.get("content"):
            tokens = 1
            reply.assumed_chunks += 1
        if tokens != len(ids):
            reply.token_ids = None
        if tokens > 0:
            self.seen += tokens
            reply.chunk_events.append(index)
            reply.chunk_tokens.append(tokens)
            if reply.token_ids is not None:
                reply.token_ids.extend(ids)
        self.timings = payload.get("timings") or self.timings
        if counted is not None:
            reply.completion_tokens = counted
        if payload.get("tokens_evaluated") is not None:
            reply.prompt_tokens = payload["tokens_evaluated"]
        if payload.get("stop"):
            reply.terminated = True
            reply.finish_reason = payload.get("stop_type")
            reply.cached_tokens = self.timings.get("cache_n")
