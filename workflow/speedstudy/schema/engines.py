"""Engines: what runs a target, and the settings of it that change what it computes."""

from typing import Literal

from pydantic import Field, model_validator

from speedstudy.schema.model import Model, Name


class Estimate(Model):
    """Rough speeds of an engine, read only by `speedstudy plan` until a record knows better."""

    startup_s: float = Field(gt=0)
    prefill_tok_per_s: float = Field(gt=0)
    decode_tok_per_s: float = Field(gt=0, description="Output tokens/s of one stream.")


class Parallel(Model):
    """How an engine is spread over its GPUs."""

    tensor: int = Field(default=1, ge=1, description="GPUs that share each layer.")
    data: int = Field(default=1, ge=1, description="Copies of the model behind one address.")
    expert: int = Field(
        default=1, ge=1, description="GPUs over which the experts of a mixture are laid out whole."
    )


class Engine(Model):
    """One inference engine and the settings that change what it computes."""

    name: Name
    kind: Name = Field(description="Module of speedstudy.engines that starts and reads it.")
    version: str | None = Field(
        description="The version that must answer, another one is refused; null: any, and the "
        "record says which."
    )
    command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="How its server is called up to its flags: the interpreter and module of an "
        "environment of its own, or a container; null: the engine's usual command.",
        json_schema_extra={"scope": "run"},
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of its process."
    )
    precision: Literal["f32", "bf16", "f16", "auto"] = Field(
        description="Of the arithmetic; auto: as the target's weights are stored."
    )
    kv_cache_precision: Literal["f32", "bf16", "f16", "u8", "fp8", "auto"]
    threads: int = Field(ge=0, description="Compute threads; 0: one per physical core.")
    kv_cache_gib: float | None = Field(gt=0, description="null: the engine decides.")
    gpus: int = Field(ge=0, description="GPUs that one engine uses; 0: it runs on the CPU.")
    parallel: Parallel = Field(default=Parallel())
    gpu_memory_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of each GPU's memory that it may take, as the engine itself counts it "
        "(docs/engines.md); null: the engine decides.",
    )
    extra_args: tuple[str, ...] = Field(
        default=(), description="Further flags of the engine's own command line."
    )
    estimate: Estimate | None = Field(
        default=None,
        description="For `speedstudy plan` only.",
        json_schema_extra={"scope": "run"},
    )

    @model_validator(mode="after")
    def _parallel_fits_gpus(self) -> "Engine":
        ranks = self.parallel.tensor * self.parallel.data
        if ranks != max(1, self.gpus):
            raise ValueError(
                f"engine {self.name}: parallel.tensor x parallel.data is {ranks} and gpus is "
                f"{self.gpus}; make them equal"
            )
        if ranks % self.parallel.expert:
            raise ValueError(
                f"engine {self.name}: parallel.expert {self.parallel.expert} does not divide the "
                f"{ranks} GPUs"
            )
        return self
