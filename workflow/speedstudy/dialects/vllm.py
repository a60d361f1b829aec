"""vLLM's completion dialect, which our OpenVINO server speaks too."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from speedstudy.dialects.acceptance import read_vllm
from speedstudy.dialects.completions import CompletionsReader
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sse import Event
from speedstudy.dialects.stream import attach_acceptance, read_stream


class Vllm:
    """Token ids in and out at ``/v1/completions``, acceptance on the trailing usage event."""

    name = "vllm"
    route = "/v1/completions"
    first_token: Literal["prefill", "verify"] = "prefill"
    counter_route = "/metrics"
    counter_names: Mapping[str, str] = MappingProxyType(
        {
            "num_drafts": "vllm:spec_decode_num_drafts_total",
            "num_draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
            "num_accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
            "num_accepted_tokens_per_pos": "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        }
    )
    counters_exact_below: float | None = None
    keeps_connections = True

    def body(self, model: str, token_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request body; these fields and no others."""
        return {
            "model": model,
            "prompt": list(token_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "ignore_eos": sampling.ignore_eos,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
        }

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events say; see ``completions`` and ``acceptance.read_vllm``."""
        reader = CompletionsReader()
        reply = read_stream(events, reader)
        attach_acceptance(
            reply, lambda: read_vllm(reader.metrics.get("speculative_decoding") or {})
        )
        return reply
