"""The Prometheus counters of the OpenVINO server, under vLLM's names.

Only what is known is there: no ``vllm:spec_decode_num_draft_tokens``, because prompt lookup does
not tell how much it drafts. ``vllm:spec_decode_num_drafts`` counts every verify step, whether it
drafted or not; vLLM's own counts the drafted ones.
"""

from prometheus_client import CollectorRegistry, Counter


class Counters:
    """Counters since the start of the server, each with the label ``model_name``."""

    def __init__(self, registry: CollectorRegistry, model: str, draft_tokens: int) -> None:
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
        self._drafts: Counter | None = None
        self._accepted_at: list[Counter] = []
        if draft_tokens:
            self._drafts = counter("spec_decode_num_drafts", "Verify steps, drafted or not")
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

    def step(self, tokens: int, *, first: bool) -> None:
        """Count what one step gave one request; ``first`` is the prefill's token."""
        self._generation_tokens.inc(tokens)
        if self._drafts is None or first or not tokens:
            return
        self._drafts.inc()
        self._accepted.inc(tokens - 1)
        for counter in self._accepted_at[: tokens - 1]:
            counter.inc()

    def finished(self, reason: str) -> None:
        """Count a reply that ended with this finish reason."""
        self._finished.labels(self._model, reason).inc()
