"""BAMBOO (GitHub RUCAIBox/BAMBOO): MeetingPred and ShowsPred, dialogues to complete and continue.

JSON lines with ``content``, a dialogue whose last line lacks its speaker, and ``answer``, the
speaker, which is not used. A prompt ends in that last line. Before its own dialogue stand others of
the same file, so that long prompts can be made; they are the first to be cut. Which ones follows
from the hashes of the dialogues. Rows have no id: the file's name and a hash of the dialogue.

Options:
    licence: Licence of the texts.
    max_chars: Further dialogues are added until it is reached.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect.candidates import Dropped, LongText, identifier, text_hash
from speedstudy.collect.json_lines import read_json_lines

_OPENING = """\
Here are one or more dialogues. The last line of the last one breaks off before the name of its \
speaker. Name the speaker, then continue the dialogue with people who have spoken in it.

"""


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every file; a dialogue of fewer than two lines is dropped.

    Raises:
        ValueError: A line is no JSON object or lacks a column.
    """
    for path in files.values():
        task = path.name.split(".")[0]
        dialogues: dict[str, str] = {}
        for _, row in read_json_lines(source, path, {"content", "answer"}):
            content = row["content"]
            if not isinstance(content, str) or "\n" not in content.strip():
                yield Dropped(src_id=task, reason="no_dialogue")
            else:
                dialogues[text_hash(content)] = content.rstrip("\n")
        keys = sorted(dialogues)
        for number, key in enumerate(keys):
            earlier, _, last_line = dialogues[key].rpartition("\n")
            others = [dialogues[other] for other in keys[number + 1 :] + keys[:number]]
            yield LongText(
                text_id=identifier(source, f"{task}_{key}"),
                tier="high_entropy",
                title=f"{task} {key}",
                opening=_OPENING,
                text=_joined(earlier, others, int(options["max_chars"])),
                closing=last_line,
                source=source,
                licence=options["licence"],
            )


def _joined(dialogue: str, others: list[str], max_chars: int) -> str:
    parts, chars = [f"Dialogue:\n{dialogue}\n"], len(dialogue)
    for other in others:
        if chars >= max_chars:
            break
        parts.append(f"Dialogue:\n{other}\n\n")
        chars += len(other)
    return "".join(reversed(parts))
