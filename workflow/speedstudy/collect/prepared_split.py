"""A split that NVIDIA's own scripts prepared, read in place of ours.

Two layouts are in use. Model-Optimizer's ``prepare_data.py`` writes ``<config>/test.parquet`` with
the columns of the published data set, ``turns`` among them. NeMo-Skills' ``prepare.py`` writes
``<config>.jsonl``, where ``messages`` (``{"role": "user", "content": str}`` each) stand in place of
``turns``. Either file may be given; both give the same prompts.

A prepared split is a finished selection, so a row that cannot be used stops the collection instead
of leaving a gap: above all a row whose text was never filled in. Rows keep the ``question_id``,
``source`` and ``src_id`` of the published data set, so that results can be set beside those of
others row by row. Rows of the throughput split, whose category is a tier, become long texts.

Options: ``licence`` (of long texts).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import TIERS, Candidate, LongText, fault
from speedstudy.collect.json_lines import read_json_lines
from speedstudy.tables import read_rows_in_order

_COLUMNS = ("question_id", "category", "sub_category", "source", "src_id", "difficulty")
_MENDS = {
    "placeholder": "its text was not filled in: prepare the split with NVIDIA's script, which "
    "needs access to every gated source, and give the prepared file"
}


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | LongText]:
    """Read every row of every file, ``.parquet`` or JSON lines.

    Raises:
        ValueError: A column is missing, a message is not the user's, or a row is unusable (a
            placeholder, empty, broken text); the message names the file and the row's id.
    """
    for path in files.values():
        for row in _rows(source, path):
            place = f"{path}: row {row['question_id']}"
            turns = _turns(row, place)
            item = (
                _long_text(row, turns, place, options)
                if row["category"] in TIERS
                else _candidate(row, turns)
            )
            reason = fault(item)
            if reason is not None:
                raise ValueError(f"{place}: {reason}; {_MENDS.get(reason, 'prepare it again')}")
            yield item


def _rows(source: str, path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        yield from read_rows_in_order(path, (*_COLUMNS, "turns"))
        return
    for _, row in read_json_lines(source, path, set(_COLUMNS)):
        yield row


def _turns(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    turns, messages = row.get("turns"), row.get("messages")
    if isinstance(turns, list):
        return tuple(turns)
    if not isinstance(messages, list):
        raise ValueError(
            f"{place}: neither a list `turns` nor a list `messages`; found {', '.join(sorted(row))}"
        )
    for message in messages:
        if not isinstance(message, dict) or message.get("role") != "user":
            raise ValueError(
                f"{place}: a message is not the user's; only the qualitative and throughput "
                "splits, which hold nothing but user turns, can be read"
            )
    return tuple(message.get("content") for message in messages)


def _candidate(row: Mapping[str, Any], turns: tuple[str, ...]) -> Candidate:
    # Not new_candidate: the published ids are kept.
    return Candidate(turns=turns, **{name: row[name] or "" for name in _COLUMNS})


def _long_text(
    row: Mapping[str, Any], turns: tuple[str, ...], place: str, options: Mapping[str, Any]
) -> LongText:
    if len(turns) != 1:
        raise ValueError(f"{place}: {len(turns)} turns in a throughput split, which has one a row")
    return LongText(
        text_id=row["question_id"],
        tier=row["category"],
        title=row["src_id"],
        text=turns[0],
        source=row["source"],
        licence=options["licence"],
    )
