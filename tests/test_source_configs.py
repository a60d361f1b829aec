"""Every file in config/source fits the schema, and so does what it promises."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from speedstudy.collect import ADAPTERS
from speedstudy.collect.candidates import CATEGORIES, TIERS
from speedstudy.schema.data import Source
from speedstudy.study import load_study

FILES = sorted((Path(__file__).parents[1] / "config/source").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_source_is_whole(path: Path) -> None:
    source = Source.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert source.name == path.stem
    assert callable(import_module(ADAPTERS[source.adapter]).read)
    assert source.artifact.licence == source.licence
    known = TIERS if source.gives == "long_text" else CATEGORIES
    assert set(source.candidates) <= set(known)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_revision_is_a_commit(path: Path) -> None:
    artifact = yaml.safe_load(path.read_text(encoding="utf-8"))["artifact"]
    if "revision" in artifact:
        assert len(set(artifact["revision"])) > 4, "a placeholder"


EMBEDDERS = sorted((Path(__file__).parents[1] / "config/embedder").glob("*.yaml"))


@pytest.mark.parametrize("name", [path.stem for path in EMBEDDERS])
def test_an_embedder_composes(name: str) -> None:
    study = load_study(EMBEDDERS[0].parents[1], [f"embedder={name}"])
    assert study.embedder.name in name
