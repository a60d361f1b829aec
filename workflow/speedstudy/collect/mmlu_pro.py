"""MMLU-Pro's test questions (hub TIGER-Lab/MMLU-Pro, MIT), joined into multi-turn prompts.

Columns used: ``question_id``, ``question``, ``options``, ``category`` (the subject). The answer's
columns are not read. The paper joins consecutive questions of one subject; its published rows all
have two. Here a conversation is made of the ids ``n * turns`` to ``n * turns + turns - 1``, so a
question's place in one follows from its own id. Where an id of them is missing (the data set has
gaps) or belongs to the next subject, the others are dropped as ``no_partner``.

Options: ``turns``, the number of questions in a conversation.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, new_candidate
from speedstudy.collect.table_files import read_table

_COLUMNS = {"question_id": int, "question": str, "options": list, "category": str}

# The chain-of-thought instruction of the MMLU-Pro paper (arXiv 2406.01574).
_INSTRUCTION = (
    "The following are multiple choice questions (with answers) about {}. Think step by step and "
    'then finish your answer with "the answer is (X)" where X is the correct letter choice.\n\n'
)


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every question and join those that belong together.

    Raises:
        ValueError: A row has other columns, or an id comes twice.
    """
    turns = options["turns"]
    if not isinstance(turns, int) or turns < 1:
        raise ValueError(f"source {source}: options.turns is {turns!r}; give a whole number from 1")
    groups: defaultdict[tuple[str, int], dict[int, str | None]] = defaultdict(dict)
    for path in files.values():
        for place, row in read_table(source, path, _COLUMNS):
            number = row["question_id"]
            group = groups[row["category"], number // turns]
            if number in group:
                raise ValueError(f"{place}: question_id {number} comes twice; fetch it again")
            group[number] = _question(row["question"], row["options"])
    for (subject, _), group in sorted(groups.items()):
        numbers = sorted(group)
        questions = [group[number] for number in numbers]
        texts = [question for question in questions if question is not None]
        if len(questions) < turns or len(texts) < turns:
            reason = "no_partner" if len(questions) < turns else "not_text"
            for number in numbers:
                yield Dropped(src_id=f"mmlu_pro_{number}", reason=reason)
            continue
        yield new_candidate(
            source=source,
            src_id="mmlu_pro_" + "_".join(str(number) for number in numbers),
            category="reasoning",
            sub_category=subject,
            turns=[_INSTRUCTION.format(subject) + texts[0], *texts[1:]],
        )


def _question(question: str, options: list[Any]) -> str | None:
    """Return question and lettered options, or None if an option is no text."""
    if not options or not all(isinstance(option, str) for option in options):
        return None
    lines = [f"({chr(ord('A') + place)}) {option}" for place, option in enumerate(options)]
    # Blank line and all, as the reference implementation writes it.
    return f"Question: {question}\n\nOptions: " + "\n".join(lines) + "\n\n"
