import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

from collected import read_candidates, read_long_texts
from speedstudy.collect import ADAPTERS, collect, source_code
from speedstudy.collect.candidates import (
    CATEGORIES,
    TIERS,
    Dropped,
    LongText,
)

ROOT = Path(__file__).parents[1]
CONFIGS = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "config" / "source").glob("*.yaml"))
]
SHIPPED = [  # a file without a sum is the user's own
    config
    for config in CONFIGS
    if config["artifact"]["kind"] == "file" and "sha256" in config["artifact"]
]


def test_source_files_are_chosen_by_pattern_length_and_id(tmp_path: Path) -> None:
    path = tmp_path / "p-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("p/a.py", "p/sub/b.py", "p/c.py"):
            archive.writestr(name, f"# {name}\n" + "x = 1\n" * 20)
        archive.writestr("p/tests/t.py", "y = 2\n" * 20)
        archive.writestr("p/short.py", "z = 3\n")
        archive.writestr("p/latin.py", b"# caf\xe9\n" * 20)
        archive.writestr("p/data.txt", "no code\n" * 20)
    options = {
        "tier": "low_entropy",
        "licence": "MIT",
        "instruction": "Continue.",
        "include": ["p/*.py"],
        "exclude": ["*/tests/*"],
        "min_chars": 50,
        "max_texts": 2,
    }
    items = list(source_code.read("code", {path.name: path}, options))
    texts = [item for item in items if isinstance(item, LongText)]
    reasons = Counter(item.reason for item in items if isinstance(item, Dropped))
    assert reasons == {"under_min_chars": 1, "broken_text": 1, "over_quota": 1}
    assert {text.title for text in texts} < {"p/a.py", "p/sub/b.py", "p/c.py"}
    for text in texts:
        assert text.opening == f"Continue.\n\n# {text.title}\n"
        assert text.text.startswith(f"# {text.title}\nx = 1\n")
        assert (text.tier, text.licence) == ("low_entropy", "MIT")
    assert [text.text_id for text in texts] == sorted(text.text_id for text in texts)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["name"]))
def test_every_source_names_a_known_adapter_licence_and_promise(config: dict) -> None:  # type: ignore[type-arg]
    assert config["adapter"] in ADAPTERS
    assert config["licence"]
    assert config["licence_url"].startswith("https://")
    names = TIERS if config["gives"] == "long_text" else CATEGORIES
    assert set(config["candidates"]) <= set(names)


@pytest.mark.parametrize("config", SHIPPED, ids=lambda config: str(config["name"]))
def test_what_ships_is_what_the_configuration_pins(config: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    path = ROOT / config["artifact"]["path"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == config["artifact"]["sha256"]
    out = tmp_path / "out.parquet"
    report = collect(config | {"counted": True}, {path.name: path}, out)
    assert report["dropped"] == {}
    assert report.get("by_category", report.get("by_tier")) == config["candidates"]
    json.dumps(report)
    if config["gives"] == "prompts":
        starts = Counter(item.turns[0][:30] for item in read_candidates(out))
        assert max(starts.values()) == 1  # written one by one, no template
    else:
        assert all(len(text.text) > 9000 for text in read_long_texts(out))


def test_shipped_prompts_and_texts_are_enough_for_the_demo() -> None:
    least: Counter[str] = Counter()
    for config in CONFIGS:
        if config["name"] != "spec_bench":  # the demo needs no repository host
            least.update(config["candidates"])
    assert all(least[category] >= 40 for category in CATEGORIES)
    assert all(least[tier] >= 64 for tier in TIERS)
