"""The Prometheus counters of the OpenVINO server, under vLLM's names.

Only what is known is there. With an EAGLE-3 head the counters mean what they mean in vLLM. Prompt
lookup does not tell how much it drafts: then there is no ``vllm:spec_decode_num_draft_tokens``, and
``vllm:spec_decode_num_drafts`` counts every verify step, whether it drafted or not.
"""

from prometheus_client import CollectorRegistry, Counter

from speedstudy.engines.openvino_protocol import Verify


class Counters:
    """Counters since the start of the server, each with the label ``model_name``."""

    def __init__(
        self, registry: CollectorRegistry, model: str, draft_tokens: int, *, drafted_known: bool
    ) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"vllm:{name}", text, ["model_name"], registry=registry).labels(model)

        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens of accepted requests")
        self._generation_tokens = counter("generation_tokens", "Generated tokens")
        self._finished = Counter(
            "vllm:request_success",
            "Replies that ended by themselves",
            ["model_name", "finished_reason"],
            registry=registry,
        )
        self._model = model
        self._drafted: Counter | None = None
        if drafted_known:
            self._drafted = counter("spec_decode_num_draft_tokens", "Drafted tokens")
        if draft_tokens:
            self._drafts = counter(
                "spec_decode_num_drafts",
                "Verify steps that drafted" if drafted_known else "Verify steps, drafted or not",
            )
            self._accepted = counter("spec_decode_num_accepted_tokens", "Accepted draft tokens")
            per_position = Counter(
                "vllm:spec_decode_num_accepted_tokens_per_pos",
                "Verify steps that accepted the draft token at this position, from 0",
                ["model_name", "position"],
                registry=registry,
            )
            self._accepted_at = [per_position.labels(model, str(i)) for i in range(draft_tokens)]

    def prompt(self, tokens: int) -> None:
        """Count a request's prompt."""
        self._prompt_tokens.inc(tokens)

    def step(self, tokens: int, verify: Verify | None) -> None:
        """Count what one step gave one request."""
        self._generation_tokens.inc(tokens)
        if verify is None or verify.drafted == 0:
            return
        self._drafts.inc()
        if self._drafted is not None and verify.drafted is not None:
            self._drafted.inc(verify.drafted)
        self._accepted.inc(verify.accepted)
        for counter in self._accepted_at[: verify.accepted]:
            counter.inc()

    def finished(self, reason: str) -> None:
        """Count a reply that ended with this finish reason."""
        self._finished.labels(self._model, reason).inc()
