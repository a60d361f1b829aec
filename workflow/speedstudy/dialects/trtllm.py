"""TensorRT-LLM's completion dialect (``trtllm-serve``)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from speedstudy.dialects.acceptance import read_trtllm
from speedstudy.dialects.completions import CompletionsReader
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sse import Event
from speedstudy.dialects.stream import attach_acceptance, read_stream


class Trtllm:
    """Token ids in and out at ``/v1/completions``.

    The server refuses unknown fields. ``detokenize`` off makes it send ids instead of text;
    ``continuous_usage_stats`` is said because its default changed between releases. The counters
    need ``return_perf_metrics`` in the server's configuration.
    """

    name = "trtllm"
    route = "/v1/completions"
    first_token: Literal["prefill", "verify"] = "prefill"
    counter_route = "/prometheus/metrics"
    counter_names: Mapping[str, str] = MappingProxyType(
        {
            "num_draft_tokens": "trtllm_spec_decode_num_draft_tokens_total",
            "num_accepted_tokens": "trtllm_spec_decode_num_accepted_tokens_total",
            "num_draft_tokens_per_pos": "trtllm_spec_decode_drafted_tokens_total",
            "num_accepted_tokens_per_pos": "trtllm_spec_decode_accepted_tokens_total",
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
            "stream_options": {"include_usage": True, "continuous_usage_stats": False},
            "detokenize": False,
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "ignore_eos": sampling.ignore_eos,
            **({} if sampling.seed is None else {"seed": sampling.seed}),
        }

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events say; see ``completions`` and ``acceptance.read_trtllm``."""
        reader = CompletionsReader()
        reply = read_stream(events, reader)
        attach_acceptance(
            reply, lambda: read_trtllm(reader.choice, reply.chunks, reply.completion_tokens)
        )
        return reply
