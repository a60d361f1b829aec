"""What prompts are made from: sources, the embedder, selection and buckets."""

from typing import Annotated, Any, Literal

from pydantic import Field

from speedstudy.schema.artifacts import Artifact
from speedstudy.schema.model import Model, Name


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
