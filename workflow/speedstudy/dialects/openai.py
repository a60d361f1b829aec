"""The plain OpenAI completion route: ids in, text and usage out."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from speedstudy.dialects.completions import CompletionsReader
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sse import Event
from speedstudy.dialects.stream import read_stream


class OpenAI:
    """Nothing beyond the standard: no ids come back, so no later turn can follow a reply."""

    name = "openai"
    route = "/v1/completions"
    first_token: Literal["prefill", "verify"] = "prefill"
    counter_route = "/metrics"
    counter_names: Mapping[str, str] = MappingProxyType({})
    counters_exact_below: float | None = None
    keeps_connections = True

    def body(self, model: str, token_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request body; these fields and no others.

        Raises:
            ValueError: ``ignore_eos`` is set, which the standard cannot say.
        """
        if sampling.ignore_eos:
            raise ValueError("the openai dialect has no ignore_eos; leave it out or use vllm")
        return {
            "model": model,
            "prompt": list(token_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
        }

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events say; see ``completions``."""
        return read_stream(events, CompletionsReader())
