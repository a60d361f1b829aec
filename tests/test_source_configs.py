"""Every file in config/source fits the schema, and so does what it promises."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from speedstudy.collect import ADAPTERS
from speedstudy.collect.candidates import CATEGORIES, TIERS
from speedstudy.config import Source

FILES = sorted((Path(__file__).parents[1] / "config/source").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_source_is_whole(path: Path) -> None:
    source = Source.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert source.name == path.stem
    assert callable(import_module(ADAPTERS[source.adapter]).read)
    assert source.artifact.licence == source.licence
    known = CATEGORIES if source.gives == "prompts" else TIERS
    assert set(source.candidates) <= set(known)
