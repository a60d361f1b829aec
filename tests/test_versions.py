"""A stage's version is raised when its results would change: nobody forgets.

`stage_versions.json` keeps, by stage, the version and the fingerprint of the code behind it. When
the code changed, either raise the version in `speedstudy/versions.py`, or, if results stay as they
are, leave it; then record with `python tests/test_versions.py` and say in the commit which it was.
"""

import json
from pathlib import Path

import pytest

from speedstudy import versions
from speedstudy.collect import ADAPTERS
from speedstudy.fingerprint import fingerprint

RECORDED = Path(__file__).with_name("stage_versions.json")
MODULES = {
    "FETCH_VERSION": ["speedstudy.fetch"],
    "COLLECT_VERSION": ["speedstudy.collect", *ADAPTERS.values()],
    "EMBED_VERSION": ["speedstudy.embed"],
    "SELECT_VERSION": ["speedstudy.select"],
    "BUCKET_VERSION": ["speedstudy.bucket"],
    "CONVERT_VERSION": ["speedstudy.convert"],
    "TOKENIZE_VERSION": ["speedstudy.tokenize"],
    "MEASUREMENT_VERSION": ["speedstudy.run_cell"],
}


def current():
    return {
        name: {"version": getattr(versions, name), "code": fingerprint(*modules)}
        for name, modules in MODULES.items()
    }


def test_every_version_is_guarded():
    assert set(MODULES) == {name for name in vars(versions) if name.endswith("_VERSION")}


@pytest.mark.parametrize("name", MODULES)
def test_the_code_behind_a_version_is_the_recorded_one(name):
    assert current()[name] == json.loads(RECORDED.read_text())[name], (
        f"the code behind {name} changed: raise it in speedstudy/versions.py if results would "
        "change; either way record with `python tests/test_versions.py`"
    )


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(current(), indent=2) + "\n")
