"""Ada-LEval (GitHub open-compass/Ada-LEval): TextSort and StackSelect, as the paper changes them.

JSON lists. TextSort's columns: ``book_id``, ``para_offset``, ``prompt``; the model is to write the
sorted text, not the order, so the instruction in ``prompt`` is replaced. StackSelect's:
``question_id``, ``question``, ``all_answers``, ``answer`` ("A3": the best); the model is to choose
and to give a reason for every answer. As many answers as fit are shown, the best always: it is one
of the last three, which one by hash of the row, and what does not fit is cut from the first answer
on.

Options:
    task: ``textsort`` or ``stackselect``.
    licence: Licence of the texts.
    min_share, max_share: Lengths that are used, see ``LongText``. There is a file for each length;
        a text of another one would lose what it asks about.
    max_texts, lengths: See ``lowest_by_length``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier, text_hash
from speedstudy.collect.draw import draw
from speedstudy.collect.json_file import check_columns, read_json
from speedstudy.collect.long_rows import lowest_by_length

_SAMPLE_END = "Answer: [4, 1, 3, 2]"  # the last line of TextSort's own instruction

_SORT = """\
Here are four consecutive parts of a book in the wrong order, with the text before and after them. \
Find the right order and write the four parts in it, word for word, without the text before and \
after.

"""
_SORT_NOW = "\n\nNow write the four parts in their right order, word for word.\n"

_SELECT = """\
Here is a question with several answers, named A1, A2 and so on. Decide which answer helps most.

The question:
"""
_SELECT_NOW = """\
Name the most helpful answer and say why you choose it. Then say for every other answer why you do \
not choose it.
"""


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every file of one task.

    Raises:
        ValueError: A file is no JSON list, a row lacks a column, or the task has another name.
    """
    make = {"textsort": _text_sort, "stackselect": _stack_select}.get(options["task"])
    if make is None:
        raise ValueError(f"source {source}: task {options['task']!r}; textsort or stackselect")
    texts = (
        make(source, f"source {source}: {path.name} row {number}", row, options)
        for path in files.values()
        for number, row in enumerate(read_json(source, path, list))
    )
    return lowest_by_length(texts, int(options["max_texts"]), options["lengths"])


def _text_sort(
    source: str, place: str, row: Mapping[str, Any], options: Mapping[str, Any]
) -> LongText | Dropped:
    check_columns(place, row, {"book_id", "para_offset", "prompt"})
    src_id = f"{row['book_id']}_{'_'.join(map(str, row['para_offset']))}"
    _, found, parts = row["prompt"].partition(_SAMPLE_END)
    if not found:
        return Dropped(src_id=src_id, reason="unknown_instruction")
    return LongText(
        text_id=identifier(source, src_id),
        tier="low_entropy",
        title=f"book {src_id}",
        opening=_SORT,
        text=parts.strip(),
        closing=_SORT_NOW,
        source=source,
        licence=options["licence"],
        min_share=options["min_share"],
        max_share=options["max_share"],
    )


def _stack_select(
    source: str, place: str, row: Mapping[str, Any], options: Mapping[str, Any]
) -> LongText | Dropped:
    check_columns(place, row, {"question_id", "question", "all_answers", "answer"})
    answers, best = row["all_answers"], str(row["answer"]).removeprefix("A")
    if not all(isinstance(one, str) for one in (row["question"], *answers)):
        return Dropped(src_id=str(row["question_id"]), reason="not_text")
    # The same question stands in the files of several lengths with other answers.
    src_id = f"{row['question_id']}_{text_hash(*answers)}"
    if not best.isdecimal() or not 1 <= int(best) <= len(answers):
        return Dropped(src_id=src_id, reason="no_best_answer")
    others = [one for number, one in enumerate(answers, start=1) if number != int(best)]
    before = len(others) - draw(range(min(3, len(answers))), "best answer", src_id)
    ordered = [*others[:before], answers[int(best) - 1], *others[before:]]
    shown = [f"A{number}:\n{one.strip()}\n\n" for number, one in enumerate(ordered, start=1)]
    return LongText(
        text_id=identifier(source, src_id),
        tier="mixed",
        title=f"question {row['question_id']}",
        opening=f"{_SELECT}{row['question'].strip()}\n\nThe answers:\n\n",
        text="".join(shown[:before]),
        closing="".join(shown[before:]) + _SELECT_NOW,
        source=source,
        licence=options["licence"],
        min_share=options["min_share"],
        max_share=options["max_share"],
    )
