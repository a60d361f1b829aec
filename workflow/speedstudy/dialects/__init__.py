"""Dialects: one module a wire format; request body out, stream events in.

A dialect knows no process, no clock and no transport. ``parse`` gets all events of a reply at
once, so that a stream that repeats itself (cumulative text) or that sends one token an event
needs no state here. ``docs/dialects.md`` says what each asks for and reads.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

from speedstudy.dialects.llamacpp import LlamaCpp
from speedstudy.dialects.openai import OpenAI
from speedstudy.dialects.reply import Reply, Sampling
from speedstudy.dialects.sglang import SGLang
from speedstudy.dialects.sse import Event
from speedstudy.dialects.trtllm import Trtllm
from speedstudy.dialects.vllm import Vllm


class Dialect(Protocol):
    """What the client needs to know of a wire format."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def route(self) -> str:
        """Path of the completion route, from the server's URL."""

    @property
    def first_token(self) -> Literal["prefill", "verify"]:
        """Whether the first token comes from prefill alone or from a verify step with it."""

    @property
    def counter_route(self) -> str:
        """Path of the server's Prometheus counters."""

    @property
    def counter_names(self) -> Mapping[str, str]:
        """Prometheus sample name of each of ours that the server has (``client.counters``)."""

    @property
    def counters_exact_below(self) -> float | None:
        """Value from which on the server prints counters rounded, or None."""

    @property
    def keeps_connections(self) -> bool:
        """Whether the server takes another request on the connection of a streamed reply."""

    def body(self, model: str, token_ids: Sequence[int], sampling: Sampling) -> dict[str, Any]:
        """Return the request body, or raise ValueError for what the format cannot say."""

    def parse(self, events: Sequence[Event]) -> Reply:
        """Return what the events of one reply say, whole or cut short; never raises."""


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {dialect.name: dialect for dialect in (Vllm(), SGLang(), Trtllm(), LlamaCpp(), OpenAI())}
)
