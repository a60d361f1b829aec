"""Targets: the models that are measured."""

from typing import Literal

from pydantic import Field

from speedstudy.schema.artifacts import Artifact
from speedstudy.schema.model import Model, Name


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
