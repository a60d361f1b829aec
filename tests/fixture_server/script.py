"""What a fixture reply contains, said once for all dialects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class Script:
    """One reply.

    ``blocks`` are the token ids that each verify step emits, the prefill's first; one block is
    one event where the dialect allows. ``usage`` is ``alone`` (an event of its own), ``last`` (in
    the last block's event), ``each`` (in every one) or ``none``.

    ``step_drafted`` are the drafted tokens of each step after the prefill, 0 for a step without a
    draft; None is an engine without a drafter. ``step_accepted`` is what each step accepted, by
    default what its block shows (a block that an EOS cut shows less). ``told`` is how the reply
    tells it where the dialect has a choice: ``steps``, ``totals`` or ``none``. ``speculative``
    replaces vLLM's object.

    ``incremental`` is SGLang's ``--incremental-streaming-output``. ``silent_ids`` are tokens that
    end inside a character, for which llama.cpp sends no event.

    The first block comes after ``first_s``, each further one ``gap_s`` later. ``fault`` is None or

    * ``status``: HTTP status ``status`` with the text ``body``,
    * ``error_event``: an error object in the stream after the blocks,
    * ``reset``: the connection is cut in the middle of the next event after the blocks,
    * ``stall``: nothing more comes after the blocks (with none: no token comes after the headers),
    * ``silent``: no byte of an answer ever comes,
    * ``cut``: the stream ends properly after the blocks, without finish reason or end mark.
    """

    blocks: Sequence[Sequence[int]] = ((11,), (12,))
    step_drafted: Sequence[int] | None = None
    step_accepted: Sequence[int] | None = None
    told: str = "steps"
    speculative: dict[str, Any] | None = None
    usage: str = "alone"
    cached_tokens: int | None = None
    prompt_tokens: int | None = None
    finish_reason: str | None = "length"
    done: bool = True
    incremental: bool = False
    silent_ids: frozenset[int] = frozenset()
    newline: bytes = b"\n"
    piece_bytes: int | None = None
    one_write: bool = False
    first_s: float = 0.0
    gap_s: float = 0.0
    fault: str | None = None
    status: int = 500
    body: str = "out of memory"

    @property
    def tokens(self) -> int:
        """Completion tokens."""
        return sum(map(len, self.blocks))

    @property
    def accepted(self) -> list[int]:
        """What each step after the prefill accepted."""
        if self.step_accepted is not None:
            return list(self.step_accepted)
        return [len(block) - 1 for block in self.blocks[1:]]

    @property
    def drafted_steps(self) -> list[tuple[int, int]]:
        """(drafted, accepted) of the steps that drafted."""
        pairs = zip(self.step_drafted or (), self.accepted, strict=False)
        return [(drafted, accepted) for drafted, accepted in pairs if drafted]
