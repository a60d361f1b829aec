"""Artifacts: files of a package index, GitHub, a model hub or this machine."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from speedstudy.schema.model import Model

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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
