"""Subcommand ``collect``: the files of a source become candidate prompts or long texts.

An adapter is a module of this package with one function
``read(source, files, options) -> Iterator``: the source's name, its local files by name, and the
options of its configuration go in; candidates (or long texts) and ``Dropped`` rows come out, in
any order. To add a source, write its module, name it in ``ADAPTERS`` and add
``config/source/<name>.yaml``; nothing else knows about sources.
"""

import argparse
import json
import logging
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from speedstudy.artifacts import missing_reason, read_manifest
from speedstudy.collect.candidates import (
    CATEGORIES,
    TIERS,
    Candidate,
    LongText,
    keep_good,
    write_candidates,
    write_long_texts,
)

ADAPTERS = {
    "ada_leval": "speedstudy.collect.ada_leval",
    "bamboo": "speedstudy.collect.bamboo",
    "chat_rag_bench": "speedstudy.collect.chat_rag_bench",
    "cnn_dailymail": "speedstudy.collect.cnn_dailymail",
    "code_contests": "speedstudy.collect.code_contests",
    "coser": "speedstudy.collect.coser",
    "creative_writing": "speedstudy.collect.creative_writing",
    "embedded": "speedstudy.collect.embedded",
    "embedded_text": "speedstudy.collect.embedded_text",
    "evals_few_shot": "speedstudy.collect.evals_few_shot",
    "gutenberg": "speedstudy.collect.gutenberg",
    "hle": "speedstudy.collect.hle",
    "hle_few_shot": "speedstudy.collect.hle_few_shot",
    "human_eval_pack": "speedstudy.collect.human_eval_pack",
    "live_code_bench": "speedstudy.collect.live_code_bench",
    "long_code_arena": "speedstudy.collect.long_code_arena",
    "mcif": "speedstudy.collect.mcif",
    "mmath": "speedstudy.collect.mmath",
    "mmlu_pro": "speedstudy.collect.mmlu_pro",
    "mt_bench_101": "speedstudy.collect.mt_bench_101",
    "openai_evals": "speedstudy.collect.openai_evals",
    "opus_100": "speedstudy.collect.opus_100",
    "prepared_split": "speedstudy.collect.prepared_split",
    "repo_bench": "speedstudy.collect.repo_bench",
    "role_bench": "speedstudy.collect.role_bench",
    "source_code": "speedstudy.collect.source_code",
    "spec_bench": "speedstudy.collect.spec_bench",
    "writing_bench": "speedstudy.collect.writing_bench",
    "writing_bench_long": "speedstudy.collect.writing_bench_long",
}

LOG = logging.getLogger(__name__)

Kind = TypeVar("Kind", Candidate, LongText)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``speedstudy collect``."""
    parser.add_argument("--config", type=json.loads, required=True, help="the source, as JSON")
    parser.add_argument(
        "--manifest", type=Path, required=True, help="manifest.json of the source's artifact"
    )
    parser.add_argument("--out", type=Path, required=True, help="parquet file to write")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy collect``; returns the report of ``collect`` or ``collect_nothing``."""
    files = read_manifest(arguments.manifest)
    reason = missing_reason(arguments.manifest)
    if reason is not None:
        return collect_nothing(arguments.config, reason, arguments.out)
    return collect(arguments.config, files, arguments.out)


def collect_nothing(source: Mapping[str, Any], reason: str, out: Path) -> dict[str, Any]:
    """Write the empty file of a source that may be skipped and could not be had, with a note.

    The note names the source, the reason and the categories (or tiers) that it would have given.

    Returns:
        A report for JSON: ``source``, ``version``, ``rows`` (0) and ``missing``, the reason.
    """
    name, gives = source["name"], [*CATEGORIES, *TIERS]
    note = {
        "source": name,
        "reason": reason,
        "categories": sorted(source["candidates"], key=gives.index),
    }
    if source["gives"] == "long_text":
        write_long_texts(out, [], note)
    else:
        write_candidates(out, [], note)
    LOG.warning("source %s is left out: %s", name, reason)
    return {"source": name, "version": source["version"], "rows": 0, "missing": reason}


def collect(source: Mapping[str, Any], files: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Read one source and write its candidates or long texts to ``out`` as parquet.

    Shows a progress bar on stderr.

    Args:
        source: The source's configuration; ``name``, ``version``, ``adapter``, ``gives``
            (``prompts``, ``comparison`` or ``long_text``), ``candidates``, ``counted`` and
            ``options`` are used.
        files: Local path of each of the artifact's files, by its name in the artifact.
        out: File to write; it appears whole or not at all.

    Returns:
        A report for JSON: ``source``, ``version``, ``rows``, ``by_category`` (or ``by_tier``) in
        the paper's order, ``multiturn``, and ``dropped`` by reason.

    Raises:
        ValueError: Unknown adapter, a file of the wrong shape, or fewer candidates than the
            configuration promises.
    """
    name, adapter = source["name"], source["adapter"]
    if adapter not in ADAPTERS:
        raise ValueError(
            f"source {name}: no adapter {adapter!r}; there are {', '.join(sorted(ADAPTERS))}"
        )
    rows = import_module(ADAPTERS[adapter]).read(name, files, source["options"])
    kept, dropped = keep_good(tqdm(rows, unit="row", desc=f"collect {name}"))
    report = {
        "source": name,
        "version": source["version"],
        "rows": len(kept),
        "dropped": dict(sorted(dropped.items())),
    }
    if source["gives"] == "long_text":
        texts = _only(LongText, kept, name)
        counts = _count(TIERS, Counter(text.tier for text in texts))
        _check_promise(source, counts, dropped)
        write_long_texts(out, texts)
        return report | {"by_tier": counts}
    candidates = _only(Candidate, kept, name)
    counts = _count(CATEGORIES, Counter(item.category for item in candidates))
    _check_promise(source, counts, dropped)
    write_candidates(out, candidates)
    multiturn = sum(item.multiturn for item in candidates)
    return report | {"by_category": counts, "multiturn": multiturn}


def _check_promise(
    source: Mapping[str, Any], counts: Mapping[str, int], dropped: Mapping[str, int]
) -> None:
    found = {name: counts.get(name, 0) for name in source["candidates"]}
    short = {
        name: f"{found[name]} of {least}"
        for name, least in source["candidates"].items()
        if found[name] < least
    }
    if short or not counts:
        mend = "check the artifact's version and the options"
        if not source["counted"]:
            mend = (
                "nobody had counted them at this revision (counted: false): if what was dropped "
                f"looks right, set {found} and counted: true in config/source/{source['name']}.yaml"
            )
        raise ValueError(
            f"source {source['name']}: fewer candidates than `candidates` promises: {short}; "
            f"dropped {dict(dropped)}; {mend}"
        )
    if not source["counted"]:
        LOG.info(
            "source %s: %s were promised uncounted and %s found: set these and counted: true in "
            "its configuration",
            *(source["name"], dict(source["candidates"]), found),
        )


def _only(kind: type[Kind], items: list[Any], source: str) -> list[Kind]:
    if not all(isinstance(item, kind) for item in items):
        raise ValueError(f"source {source}: `gives` does not fit what its adapter reads")
    return items


def _count(names: tuple[str, ...], counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in names if counts[name]}
