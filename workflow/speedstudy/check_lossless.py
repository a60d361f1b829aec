"""Compare greedy replies with a drafter to those without, and weigh every first difference.

Speculative decoding must not change greedy output. Where a reply differs all the same, the gap
between the two tokens' logits, computed by the target itself in float32 on the common prefix, tells
a near tie (rounding, in another batch) from a fault. In a lower precision an engine does not even
agree with itself: what the cells without a drafter agree in among each other, measured again and in
other batches, is the yardstick. Engines are compared with the first one too. Needs the records, the
workloads and the targets in ``hf`` format; leaves one row a differing reply, and one row a compared
pair of cells. Equal replies cost no computation.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from speedstudy.cells import Cell, comparable, read_cells
from speedstudy.metrics.compare import token_agreement
from speedstudy.metrics.ratios import divide
from speedstudy.records import TurnRecord, read_requests
from speedstudy.tables import write_csv
from speedstudy.workload import Prompt, continue_ids, read_workload

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first token at which a reply with a drafter leaves the one without.

    Attributes:
        cell_id: Cell with the drafter.
        baseline_cell_id: Comparable cell without one.
        target: Name of the target.
        prompt_id: The prompt.
        turn: Turn of the conversation.
        position: Position of the token in the reply, from 0.
        baseline_token_id: Token without a drafter; None where that reply had ended.
        drafter_token_id: Token with the drafter; None where that reply had ended.
        prefix: All ids before it: prompt, earlier turns, and the common part of the reply.
    """

    cell_id: str
    baseline_cell_id: str
    target: str
    prompt_id: str
    turn: int
    position: int
    baseline_token_id: int | None
    drafter_token_id: int | None
    prefix: tuple[int, ...]


PAIR_COLUMNS = [
    "kind",
    "cell_id",
    "other_cell_id",
    "target",
    "load",
    "concurrency",
    "replies_compared",
    "replies_equal",
    "share_equal",
    "median_first_difference",
]
COLUMNS = [*(field.name for field in fields(Difference) if field.name != "prefix"), "logit_gap"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument(
        "--config", type=json.loads, required=True, help="hashes of the cells' ids, a JSON list"
    )
    parser.add_argument("--cells", type=Path, required=True, help="folder of the cells' folders")
    parser.add_argument("--workloads", type=Path, nargs="+", required=True, help="workload files")
    parser.add_argument(
        "--models", type=Path, nargs="+", required=True, help="folders TARGET--hf--HASH"
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV of the differing replies")
    parser.add_argument("--agreement", type=Path, required=True, help="CSV of the pairs of cells")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Write the tables; returns how many replies differ and the largest gap in logits."""
    workloads = {path.stem: read_workload(path) for path in arguments.workloads}
    cells = read_cells(arguments.cells, arguments.config)
    found = differences(cells, workloads)
    gaps: dict[Difference, float | None] = {}
    for folder in arguments.models:
        target = folder.name.split("--")[0]
        gaps |= logit_gaps([one for one in found if one.target == target], folder)
    rows = [asdict(one) | {"logit_gap": gaps[one]} for one in found]
    table = pd.DataFrame(rows, columns=COLUMNS).astype(
        {"baseline_token_id": "Int64", "drafter_token_id": "Int64"}
    )
    write_csv(arguments.out, table)
    write_csv(arguments.agreement, pd.DataFrame(agreements(cells), columns=PAIR_COLUMNS))
    known = [gap for gap in gaps.values() if gap is not None]
    LOG.info("%d replies differ from those without a drafter", len(found))
    return {"differences": len(found), "largest_logit_gap": max(known, default=None)}


def agreements(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Compare the greedy replies of pairs of cells; a row a pair, in the order of the cells.

    Kinds: ``drafter``, a cell with a drafter and the one without at the same load; ``repeat``, a
    cell without a drafter and its first repeat; ``batch``, a cell without a drafter and the one at
    the lowest concurrency; ``engine``, a cell without a drafter and that of the first engine. A
    drafter that agrees less than ``repeat`` and ``batch`` is at fault. Acceptance compares between
    two engines as far as they give the same text.
    ``share_equal`` is over the replies compared; ``median_first_difference`` is the median
    position, from 0, of the first token that differs, null where all are equal.
    """
    usable = [cell for cell in cells if not cell.failed and cell.is_greedy]
    baselines = [cell for cell in usable if not cell.has_drafter]
    pairs = []
    for cell in usable:
        if cell.has_drafter:
            pairs.append(("drafter", cell, _alike(cell, baselines, ())))
        else:
            pairs.append(("repeat", cell, _alike(cell, baselines, ("repeat",))))
            pairs.append(("batch", cell, _alike(cell, baselines, ("concurrency",))))
            pairs.append(("engine", cell, _alike(cell, baselines, ("engine",))))
    return [
        _agreement(kind, cell, other)
        for kind, cell, other in pairs
        if other is not None and other is not cell
    ]


def _alike(cell: Cell, baselines: Sequence[Cell], free: Sequence[str]) -> Cell | None:
    """Return the baseline with the same engine, target, load, sampling and repeat.

    What is free may differ: the one with the lowest concurrency or repeat is returned, or that of
    the first engine.
    """

    def rank(one: Cell) -> tuple[int, int]:
        return (one.record["cell"]["load"]["concurrency"], one.record["cell"]["repeat"])

    wanted = cell.comparison_key(*free)
    alike = (one for one in baselines if one.comparison_key(*free) == wanted)
    return min(alike, key=rank, default=None)


def _agreement(kind: str, cell: Cell, other: Cell) -> dict[str, Any]:
    before, after = (read_requests(one.directory / "requests.parquet") for one in (other, cell))
    agreement = token_agreement(before, after)
    positions = agreement.first_difference.values()
    return {
        "kind": kind,
        "cell_id": cell.cell_id,
        "other_cell_id": other.cell_id,
        "target": cell.record["cell"]["target"]["name"],
        "load": cell.record["cell"]["load"]["name"],
        "concurrency": cell.record["cell"]["load"]["concurrency"],
        "replies_compared": agreement.compared,
        "replies_equal": agreement.equal,
        "share_equal": divide(agreement.equal, agreement.compared),
        "median_first_difference": median(positions) if positions else None,
    }


def differences(
    cells: Sequence[Cell], workloads: Mapping[str, Sequence[Prompt]]
) -> list[Difference]:
    """Return the first difference of every greedy reply, in the order of the cells' groups.

    Turns after a conversation's first difference answer other prompts and are not compared.
    """
    found = []
    for group in comparable(cells):
        usable = [cell for cell in group if not cell.failed and cell.is_greedy]
        baselines = [cell for cell in usable if not cell.has_drafter]
        for cell in usable:
            if baselines and cell.has_drafter:
                prompts = {prompt.prompt_id: prompt for prompt in workloads[cell.workload]}
                found += _differences(baselines[0], cell, prompts)
    return found


def _differences(baseline: Cell, cell: Cell, prompts: Mapping[str, Prompt]) -> list[Difference]:
    before = _replies(read_requests(baseline.directory / "requests.parquet"))
    after = _replies(read_requests(cell.directory / "requests.parquet"))
    agreement = token_agreement([*before.values()], [*after.values()])
    found = []
    for (prompt_id, turn), position in agreement.first_difference.items():
        ours = before[prompt_id, turn].token_ids or []
        theirs = after[prompt_id, turn].token_ids or []
        replies = [before[prompt_id, index].token_ids or [] for index in range(turn)]
        sent = _sent_ids(prompts[prompt_id], replies)
        found.append(
            Difference(
                cell_id=cell.cell_id,
                baseline_cell_id=baseline.cell_id,
                target=cell.record["cell"]["target"]["name"],
                prompt_id=prompt_id,
                turn=turn,
                position=position,
                baseline_token_id=next(islice(ours, position, None), None),
                drafter_token_id=next(islice(theirs, position, None), None),
                prefix=(*sent, *ours[:position]),
            )
        )
    return found


def _replies(turns: Sequence[TurnRecord]) -> dict[tuple[str, int], TurnRecord]:
    return {(turn.prompt_id, turn.turn): turn for turn in turns}


def _sent_ids(prompt: Prompt, replies: Sequence[Sequence[int]]) -> list[int]:
    """Return the ids that were sent for the turn after these replies."""
    ids = list(prompt.turn_token_ids[0])
    for reply, continuation in zip(replies, prompt.turn_token_ids[1:], strict=False):
        ids = continue_ids(ids, reply, continuation)
    return ids


def logit_gaps(found: Sequence[Difference], model_folder: Path) -> dict[Difference, float | None]:
    """Return, by difference, how far apart the two tokens' logits are in the target.

    The absolute difference in float32 after the common prefix; None where one reply had ended, so
    that there are no two tokens to weigh.
    """
    gaps: dict[Difference, float | None] = dict.fromkeys(found)
    weighed = [
        (one, one.baseline_token_id, one.drafter_token_id)
        for one in found
        if one.baseline_token_id is not None and one.drafter_token_id is not None
    ]
    if not weighed:
        return gaps
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, local_files_only=True
    ).eval()
    with torch.inference_mode():
        for one, baseline_id, drafter_id in weighed:
            logits = model(torch.tensor([one.prefix]), logits_to_keep=1).logits[0, -1]
            gaps[one] = abs(float(logits[baseline_id] - logits[drafter_id]))
    return gaps
