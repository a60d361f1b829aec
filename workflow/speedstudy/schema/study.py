"""The study as a whole, and what holds between its parts."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, model_validator

from speedstudy.schema.data import Bucket, Embedder, Select, Source
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.engines import Engine
from speedstudy.schema.loads import Load, Sampling
from speedstudy.schema.model import Model, Name
from speedstudy.schema.targets import Target


class Canvas(Model):
    """Size of one figure."""

    width_in: float = Field(gt=0)
    height_in: float = Field(gt=0)


class Figure(Model):
    """How the figures are drawn."""

    dpi: int = Field(ge=50, description="Of the .png beside each .pdf.")
    pareto: Canvas
    acceptance: Canvas
    random_vs_real: Canvas
    diversity: Canvas


class Sessions(Model):
    """Sessions that a study wants: one engine and target with some drafters, by their keys."""

    engine: Name
    target: Name
    drafters: tuple[Name, ...] = Field(min_length=1)


class Server(Model):
    """Who starts the engine."""

    reuse: Literal["cell", "session"] = Field(
        description="cell: every cell starts its own, the cleanest state. session: one start "
        "serves all loads of an engine x target x drafter (docs/sessions.md). How often an engine "
        "starts is no part of a cell's hash; its record says whether it was shared."
    )


class Study(Model):
    """One study: what is measured, on which data, and how it is drawn."""

    name: Name
    title: str
    repeats: int = Field(ge=1, description="Times each cell is measured.")
    baseline_repeats: int = Field(
        ge=1,
        description="Times a cell without a drafter is measured, if more than `repeats`: how far "
        "an engine agrees with itself, beside which its agreement with a drafter is judged.",
    )
    sources: dict[Name, Source] = Field(min_length=1)
    embedder: Embedder
    select: Select
    buckets: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]+$")], Bucket] = Field(
        default_factory=dict
    )
    engines: dict[Name, Engine] = Field(min_length=1)
    targets: dict[Name, Target] = Field(min_length=1)
    drafters: dict[Name, Drafter] = Field(min_length=1)
    loads: dict[Name, Load] = Field(min_length=1)
    samplings: dict[Name, Sampling] = Field(min_length=1)
    sessions: tuple[Sessions, ...] | None = Field(
        default=None, description="null: every engine with every target and every drafter."
    )
    server: Server
    figure: Figure

    @model_validator(mode="after")
    def _sessions_are_known(self) -> "Study":
        for number, one in enumerate(self.sessions or ()):
            wanted: list[tuple[str, str, Collection[str]]] = [
                ("engine", one.engine, self.engines),
                ("target", one.target, self.targets),
                *(("drafter", name, self.drafters) for name in one.drafters),
            ]
            for what, name, known in wanted:
                if name not in known:
                    raise ValueError(
                        f"sessions.{number}: no {what} {name}; the study has {', '.join(known)}"
                    )
        return self

    @model_validator(mode="after")
    def _quota_fits_pool(self) -> "Study":
        for category in self.select.categories:
            pool = sum(
                source.candidates.get(category, 0)
                for source in self.sources.values()
                if source.gives == "prompts"
            )
            if pool < self.select.quota:
                raise ValueError(
                    f"select: quota {self.select.quota} is larger than the pool of {pool} in "
                    f"category {category}; lower select.quota or add a source"
                )
        return self

    @model_validator(mode="after")
    def _buckets_are_known(self) -> "Study":
        known = sorted(bucket.name for bucket in self.buckets.values())
        for load in self.loads.values():
            wanted = load.workload.bucket
            if wanted is not None and wanted not in known:
                raise ValueError(
                    f"load {load.name}: no bucket {wanted}; the study has "
                    f"{', '.join(known) or 'none'}"
                )
        return self

    @model_validator(mode="after")
    def _drafters_of_loads_are_known(self) -> "Study":
        for load in self.loads.values():
            unknown = set(load.drafters or ()) - set(self.drafters)
            if unknown:
                raise ValueError(
                    f"load {load.name}: no drafter {', '.join(sorted(unknown))}; the study has "
                    f"{', '.join(self.drafters)}"
                )
        return self

    @model_validator(mode="after")
    def _loads_fit_prompts(self) -> "Study":
        for load in self.loads.values():
            if load.workload.kind == "qualitative":
                available = self.select.quota * len(self.select.categories)
                where = "selected prompts; lower them or raise select.quota"
            else:
                wanted = load.workload.bucket
                bucket = next(b for b in self.buckets.values() if b.name == wanted)
                available = bucket.per_tier * len(bucket.tiers)
                where = f"prompts in bucket {wanted}; lower them or raise its per_tier"
            if load.requests + load.warmup_requests > available:
                raise ValueError(
                    f"load {load.name}: {load.requests} requests and {load.warmup_requests} for "
                    f"warm-up of {available} {where}"
                )
        return self
