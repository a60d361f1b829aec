"""RoleBench (hub ZenMoore/RoleBench): conversations with a known character.

Files: ``rolebench-eng/<split>/role_specific/test.jsonl`` (``role``, ``question``) and
``profiles-eng/desc.json`` (role to description; the sentence about a role without one is left
out). The questions to one role of a split become a conversation of one to five turns; the first
turn opens with one of eight templates (our own words: the paper's stand only in its data set, which
has a licence of its own).

Which questions, how many and which template depend on hashes of split, role and question. So a
conversation depends on the set of the role's questions, never on their order. Options:

    conversations_per_role: At most so many, of different questions. The published ids speak for 1.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from speedstudy.collect.candidates import Candidate, Dropped, identifier, new_candidate
from speedstudy.collect.draw import draw
from speedstudy.collect.json_file import read_json
from speedstudy.collect.json_lines import read_json_lines

DESCRIPTIONS = "desc.json"
LENGTHS = (1, 2, 3, 4, 5)

# Before and after the role's description.
TEMPLATES = (
    ("You are {role}.", "Answer as {role} would, and never say that you are an AI."),
    ("From now on you speak as {role}.", "Stay in character in every reply."),
    ("Play the part of {role}.", "Use the tone, the habits of speech and the views of {role}."),
    ("Let us have a conversation in which you are {role}.", "Keep to what {role} would know."),
    ("Imagine that you are {role} and I have come to talk to you.", "Reply in the first person."),
    ("In this role-play you take the role of {role}.", "Make your replies true to the character."),
    ("Your name is {role}.", "Everything you say should sound like {role}."),
    ("I would like to interview {role}, and you answer for them.", "Draw on {role}'s own past."),
)


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[Candidate | Dropped]:
    """Read every file of questions; ``src_id`` is ``rolebench_<split>_<role>_<number>``.

    Raises:
        ValueError: A line is no JSON object or lacks a column, or a file's place is not as above.
    """
    descriptions: dict[str, Any] = {}
    for name, path in files.items():
        if PurePosixPath(name).name == DESCRIPTIONS:
            descriptions |= read_json(source, path, dict)
    for name, path in files.items():
        if PurePosixPath(name).name == DESCRIPTIONS:
            continue
        split = _split(source, name)
        questions: defaultdict[str, set[str]] = defaultdict(set)
        for place, row in read_json_lines(source, path, {"role", "question"}):
            role, question = row["role"], row["question"]
            if not _is_text(role) or not _is_text(question):
                yield Dropped(src_id=place, reason="damaged_row")
            elif question.strip() in questions[role]:
                yield Dropped(src_id=place, reason="duplicate")
            else:
                questions[role].add(question.strip())
        for role, asked in questions.items():
            conversations = _conversations(
                source, f"rolebench_{split}_{role}", asked, options["conversations_per_role"]
            )
            for src_id, turns in conversations.items():
                yield new_candidate(
                    source=source,
                    src_id=src_id,
                    category="roleplay",
                    turns=_prompts(src_id, role, descriptions.get(role), turns),
                )
            for _ in range(len(asked) - sum(map(len, conversations.values()))):
                yield Dropped(src_id=role, reason="over_quota")


def _conversations(source: str, key: str, asked: set[str], at_most: int) -> dict[str, list[str]]:
    """Deal the questions, in the order of their hash, into conversations by src_id."""
    left = sorted(asked, key=lambda question: identifier(source, f"{key}\n{question}"))
    conversations: dict[str, list[str]] = {}
    while left and len(conversations) < at_most:
        src_id = f"{key}_{len(conversations)}"
        length = draw(LENGTHS, "turns", src_id)
        conversations[src_id], left = left[:length], left[length:]
    return conversations


def _prompts(src_id: str, role: str, description: Any, turns: list[str]) -> list[str]:
    opening, closing = (text.format(role=role) for text in draw(TEMPLATES, "template", src_id))
    known = [description.strip()] if _is_text(description) else []
    first = "\n".join([opening, *known, closing, turns[0]])
    # Whom one talks to is said once.
    return [first, *(turn.removeprefix(f"{role}, ") for turn in turns[1:])]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _split(source: str, name: str) -> str:
    parts = PurePosixPath(name).parts
    if len(parts) < 3:
        raise ValueError(
            f"source {source}: file {name!r} is not at <split>/role_specific/test.jsonl"
        )
    return parts[-3]
