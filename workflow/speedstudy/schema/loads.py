"""Loads: which prompts are sent, when and how many at once, and how tokens are drawn."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from speedstudy.schema.model import Model, Name


class Workload(Model):
    """Which prompts a load sends."""

    kind: Literal["qualitative", "bucket"]
    bucket: str | None = Field(default=None, description="Name of the bucket, for kind bucket.")
    ids: Literal["real", "random"] = Field(
        default="real",
        description="random: as many ids as the real prompt has, drawn from the vocabulary.",
    )

    @model_validator(mode="after")
    def _bucket_named(self) -> "Workload":
        if (self.kind == "bucket") != (self.bucket is not None):
            raise ValueError("workload: `bucket` names a bucket for kind bucket and only for it")
        return self


class Arrivals(Model):
    """When the conversations of an open loop are due."""

    kind: Literal["poisson", "gamma", "constant", "trace"]
    rate_per_s: float | None = Field(
        default=None, gt=0, description="Conversations a second, of all kinds but trace."
    )
    burstiness: float = Field(
        default=1.0, gt=0, description="Shape of gamma gaps: 1 is Poisson, below 1 burstier."
    )
    offsets_s: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        default=None, description="Times of a trace, seconds from the start, in rising order."
    )
    seed: int = Field(default=0, ge=0, description="Of the random kinds.")

    @model_validator(mode="after")
    def _fields_fit_kind(self) -> "Arrivals":
        if (self.kind == "trace") != (self.offsets_s is not None):
            raise ValueError("arrivals: offsets_s is set for kind trace and only for it")
        if (self.kind == "trace") == (self.rate_per_s is not None):
            raise ValueError("arrivals: rate_per_s is set for every kind but trace")
        if self.burstiness != 1 and self.kind != "gamma":
            raise ValueError("arrivals: burstiness is set for kind gamma and only for it")
        return self


class Ramp(Model):
    """How concurrency, or the rate of arrivals, rises to its full value at the start."""

    seconds: float = Field(gt=0)
    steps: int = Field(default=0, ge=0, description="Equal steps; 0 rises evenly.")


def _absent(value: Any) -> bool:
    """Leave a field out of the dump: a load without it has the hash it had before."""
    return value is None


class Load(Model):
    """How a workload is sent: at each concurrency, in a closed loop unless it has arrivals."""

    name: Name
    workload: Workload
    concurrency: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="Requests in flight (the paper's batch size)."
    )
    requests: int = Field(ge=1, description="Conversations, taken round-robin over categories.")
    max_tokens: int = Field(ge=1, description="Most output tokens of a turn.")
    ignore_eos: bool = Field(description="Pin every output to max_tokens.")
    warmup_requests: int = Field(ge=0, description="Sent first, on other prompts, never counted.")
    arrivals: Arrivals | None = Field(
        default=None,
        exclude_if=_absent,
        description="Open loop; `concurrency` is then the most in flight. Null: closed loop.",
    )
    ramp: Ramp | None = Field(default=None, exclude_if=_absent)
    duration_s: float | None = Field(
        default=None,
        gt=0,
        exclude_if=_absent,
        description="Start conversations for so long, `requests` prompts over and over; null: "
        "each once.",
    )
    drafters: tuple[Name, ...] | None = Field(
        default=None, description="Keys of the drafters that run this load; null: all."
    )


class Sampling(Model):
    """How the target's distribution becomes tokens."""

    name: Name
    temperature: float = Field(ge=0, description="0 is greedy.")
    seed: int = Field(ge=0)
