"""What the OpenVINO server and its worker process say to each other."""

from dataclasses import dataclass

from speedstudy.engines.openvino_protocol import Verify


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Message to the worker: a new request."""

    request_id: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int | None
    ignore_eos: bool


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Message to the worker: nobody waits for this request any more."""

    request_id: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """Message from the worker: what one engine step gave one request.

    ``verify`` is None for the prefill's token and where nothing drafts.
    """

    request_id: int
    token_ids: list[int]
    finish_reason: str | None
    verify: Verify | None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Message from the worker: the engine did not take or keep this request."""

    request_id: int
    message: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Message from the worker, the first: the pipeline is built."""


@dataclass(frozen=True, kw_only=True)
class Dead:
    """Message from the worker, the last: the engine failed."""

    message: str
