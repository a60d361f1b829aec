"""Ids: readable, and ending in a hash of everything that can change the thing.

The hash covers what is known when the graph is built: configuration, the version of the stage and
the ids upstream. So a file under its id is never stale, even when Snakemake's own records are lost.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

ID_PATTERN = r"[a-z0-9_.-]+--[0-9a-f]{10}"


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_hash(value: Any) -> str:
    """Return the first ten hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:10]


def measured(model: BaseModel) -> dict[str, Any]:
    """Return the fields that can change a result: all but those of scope ``run``."""
    outside = {
        name
        for name, info in type(model).model_fields.items()
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("scope") == "run"
    }
    return model.model_dump(mode="json", exclude=outside)


@dataclass(frozen=True, kw_only=True)
class Node:
    """One file or folder that a rule makes.

    Attributes:
        id: Its id, also its name on disk.
        cfg: The slice of the study that its rule uses.
        needs: Ids of what the rule reads, in order.
    """

    id: str
    cfg: Mapping[str, Any]
    needs: tuple[str, ...] = ()


def node(name: str, version: int, cfg: Mapping[str, Any], needs: tuple[str, ...] = ()) -> Node:
    """Make a node whose id is ``name`` and the hash of version, configuration and needs."""
    digest = short_hash({"version": version, "cfg": cfg, "needs": list(needs)})
    return Node(id=f"{name}--{digest}", cfg=cfg, needs=needs)
