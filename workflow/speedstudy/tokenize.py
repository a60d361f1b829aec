"""Prompts to token ids, once, outside every engine.

Needs selected prompts or a bucket (parquet) and the target's tokenizer; leaves the workload and
the prompts of its warm-up, which are never measured.
"""

import argparse
import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from speedstudy.chat import conversation_ids, load_tokenizer
from speedstudy.coverage import read_note
from speedstudy.tables import read_rows_in_order
from speedstudy.workload import Prompt, digest, write_workload

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LOG = logging.getLogger(__name__)


def round_robin(
    rows: Iterable[Mapping[str, Any]], categories: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Order rows as first of each category, second of each, ...; others are left out.

    Any first n rows are then spread evenly over the categories, and within one category they are
    the first of the selection. This is the reference's rule for ``--num_requests``.
    """
    by_category: dict[str, list[Mapping[str, Any]]] = {name: [] for name in categories}
    for row in rows:
        if row["category"] in by_category:
            by_category[row["category"]].append(row)
    layers = itertools.zip_longest(*by_category.values())
    return [row for layer in layers for row in layer if row is not None]


def make_workload(
    rows: Sequence[Mapping[str, Any]],
    tokenizer: "PreTrainedTokenizerBase",
    config: Mapping[str, Any],
) -> tuple[list[Prompt], list[Prompt]]:
    """Tokenise the prompts of a workload and of its warm-up.

    With ``ids: random`` every turn keeps its number of ids, each drawn uniformly from the
    vocabulary without special tokens by a generator of the prompt's own id, so that real and
    random prompts have the same lengths. The warm-up takes the rows after the measured ones; if
    too few are left, it goes on with random ids in the lengths of the measured prompts.

    Args:
        rows: ``question_id``, ``category`` and ``turns`` in the order of the selection.
        tokenizer: The target's.
        config: ``workload`` (its ``ids``: ``real`` or ``random``), ``categories``, ``requests``,
            ``warmup``, ``seed``; optional ``chat_template``, further variables of the template.

    Returns:
        The measured prompts and the warm-up's; no prompt is in both.

    Raises:
        ValueError: There are fewer rows than requests, or the chat template refuses a prompt.
    """
    ordered = round_robin(rows, config["categories"])
    requests, warmup = config["requests"], config["warmup"]
    if len(ordered) < requests:
        raise ValueError(
            f"workload: {requests} requests, but {len(ordered)} prompts; lower requests or raise "
            "the quota (per_tier for a bucket)"
        )
    vocabulary = plain_vocabulary(tokenizer)
    seed, random_ids = config["seed"], config["workload"]["ids"] == "random"
    prompts = []
    for row in ordered[: requests + warmup]:
        try:
            turns = conversation_ids(tokenizer, row["turns"], config.get("chat_template"))
        except ValueError as error:
            raise ValueError(f"prompt {row['question_id']}: {error}") from error
        prompt = Prompt(
            prompt_id=row["question_id"], category=row["category"], turn_token_ids=turns
        )
        prompts.append(with_random_ids(prompt, vocabulary, seed) if random_ids else prompt)
    measured, warm = prompts[:requests], prompts[requests:]
    for number in range(warmup - len(warm)):
        like = measured[number % requests]
        twin = Prompt(
            prompt_id=f"warmup-{number}", category=None, turn_token_ids=like.turn_token_ids
        )
        warm.append(with_random_ids(twin, vocabulary, seed))
    return measured, warm


def plain_vocabulary(tokenizer: "PreTrainedTokenizerBase") -> npt.NDArray[np.int64]:
    """Return the ids that are no special tokens, ascending."""
    special = set(tokenizer.all_special_ids)
    special.update(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)
    return np.array(sorted(set(tokenizer.get_vocab().values()) - special), dtype=np.int64)


def with_random_ids(prompt: Prompt, vocabulary: npt.NDArray[np.int64], seed: int) -> Prompt:
    """Return a prompt of the same id and lengths whose ids are drawn from ``vocabulary``."""
    key = hashlib.sha256(f"{seed}:{prompt.prompt_id}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(key))
    return Prompt(
        prompt_id=prompt.prompt_id,
        category=prompt.category,
        turn_token_ids=tuple(
            tuple(generator.choice(vocabulary, size=len(ids)).tolist())
            for ids in prompt.turn_token_ids
        ),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``speedstudy tokenize``."""
    parser.add_argument("--config", type=json.loads, required=True, help="workload slice, as JSON")
    parser.add_argument("--prompts", type=Path, required=True, help="prompts (parquet)")
    parser.add_argument("--tokenizer", type=Path, required=True, help="the target's folder")
    parser.add_argument("--out", type=Path, required=True, help="workload (parquet)")
    parser.add_argument("--warmup-out", type=Path, required=True, help="its warm-up (parquet)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run ``speedstudy tokenize``; returns counts, lengths and the workload's digest."""
    rows = read_rows_in_order(arguments.prompts, ("question_id", "category", "turns"))
    tokenizer = load_tokenizer(arguments.tokenizer)
    note, config = read_note(arguments.prompts), arguments.config
    if note is not None and rows:  # a source was skipped: what is left is measured, and says so
        config = {**config, "requests": min(config["requests"], len(rows))}
    measured, warm = make_workload(rows, tokenizer, config)
    write_workload(arguments.warmup_out, warm)
    write_workload(arguments.out, measured, note)
    lengths = [len(prompt.turn_token_ids[0]) for prompt in measured]
    LOG.info("%d prompts, first turns of %d to %d ids", len(lengths), min(lengths), max(lengths))
    return {
        "prompts": len(measured),
        "warmup": len(warm),
        "isl_mean": sum(lengths) / len(lengths),
        "isl_max": max(lengths),
        "digest": digest(measured),
    }
