"""Turns of a conversation into token ids, with the model's own tokenizer and chat template.

The template is rendered to text and the text is encoded without further special tokens, as the
reference does; engines get ids only. All of it happens before anything is timed. A reply is never
re-tokenised: the ids of a later turn are what comes *between* a reply and the next one.
This module imports nothing of ours.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN_SEPARATOR = "\n\n"
_REPLY_MARK = "ModelReplyGoesHere"


def load_tokenizer(path: Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a Hugging Face model folder; nothing is downloaded.

    Raises:
        ValueError: The folder does not exist or holds no tokenizer that can be read.
    """
    if not path.is_dir():
        raise ValueError(
            f"tokenizer {path}: no such folder; give a Hugging Face model folder "
            "(tokenizer.json, tokenizer_config.json)"
        )
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"tokenizer {path}: cannot be loaded: {reason}") from error


def conversation_ids(
    tokenizer: "PreTrainedTokenizerBase",
    turns: Sequence[str],
    variables: Mapping[str, Any] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Return, turn by turn, the ids to append before the model answers.

    Turn 0 is the whole rendered prompt (default system message included) up to and including the
    generation prompt. Turn i > 0 is what the template puts after reply i - 1: the end-of-turn
    ids, user turn i and the generation prompt. It is found by rendering the conversation with a
    mark in place of every reply and keeping what follows the last mark.

    A tokenizer without a chat template belongs to a base model, and the turns are joined plainly:
    turn 0 is encoded with the tokenizer's own special tokens (a BOS where the model has one),
    a later turn is a blank line and its text.

    Args:
        tokenizer: From ``load_tokenizer``.
        turns: The user's turns, at least one.
        variables: Further variables of the chat template, such as ``enable_thinking``. A template
            ignores those that it does not know.

    Raises:
        ValueError: There is no turn, or the template refuses the conversation, or it changes
            replies so that what follows them cannot be told.
    """
    if not turns:
        raise ValueError("a conversation needs at least one turn")
    if not tokenizer.chat_template:
        later = (PLAIN_SEPARATOR + turn for turn in turns[1:])
        return (
            _encode(tokenizer, turns[0], special_tokens=True),
            *(_encode(tokenizer, text) for text in later),
        )
    mark = _absent_mark(turns)
    messages: list[dict[str, str]] = []
    ids: list[tuple[int, ...]] = []
    for index, turn in enumerate(turns):
        messages.append({"role": "user", "content": turn})
        text = _render(tokenizer, messages, variables or {})
        if index > 0:
            text = _after_last(text, mark, expected=index)
        ids.append(_encode(tokenizer, text))
        messages.append({"role": "assistant", "content": mark})
    return tuple(ids)


def _encode(
    tokenizer: "PreTrainedTokenizerBase", text: str, *, special_tokens: bool = False
) -> tuple[int, ...]:
    # verbose=False: a prompt longer than the model's context is the study's choice, not news.
    return tuple(tokenizer(text, add_special_tokens=special_tokens, verbose=False)["input_ids"])


def _render(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> str:
    from jinja2 import TemplateError

    try:
        text: str = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True, **variables
        )
    except TemplateError as error:
        raise ValueError(f"the chat template refuses the conversation: {error}") from error
    return text


def _absent_mark(turns: Sequence[str]) -> str:
    mark = _REPLY_MARK
    while any(mark in turn for turn in turns):
        mark += "0"
    return mark


def _after_last(text: str, mark: str, *, expected: int) -> str:
    pieces = text.split(mark)
    if len(pieces) != expected + 1:
        raise ValueError(
            f"the chat template shows {len(pieces) - 1} of {expected} earlier replies unchanged, "
            "so the ids of a later turn cannot be told from it; use single-turn prompts with it"
        )
    return pieces[-1]
