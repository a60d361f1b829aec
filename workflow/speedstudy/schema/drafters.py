"""Drafters: the methods of speculation, their draft lengths and settings."""

import math
from typing import Literal

from pydantic import Field, model_validator

from speedstudy.schema.artifacts import Artifact
from speedstudy.schema.model import Model, Name

Method = Literal["none", "ngram", "draft_model", "eagle3", "mtp", "suffix", "pard", "dflash"]

# mtp is in neither: some targets carry its layers, for others they are a checkpoint of their own.
WITH_WEIGHTS = frozenset({"draft_model", "eagle3", "pard", "dflash"})
WITHOUT_WEIGHTS = frozenset({"none", "ngram", "suffix"})


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
