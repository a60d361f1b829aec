"""Texts of an exact length in tokens, and the tokenizers that count them.

The paper cuts the token list at N and decodes; the decoded text often has another count, and a
character that was cut in two becomes U+FFFD. Here the *text* is cut, the cut text is encoded
again, and a cut whose count is not N is moved until it is. This module imports nothing of ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PADDING = "Answer now please.\n"
"""What the reference appends to a text that is too short (NVIDIA's prepare script)."""

_O200K_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
_NEARBY_CHARS = 24
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Encoder:
    """A tokenizer as this stage needs it: plain text, no special tokens added.

    Attributes:
        name: For messages.
        encode: Text to ids.
        decode: Ids to text; an incomplete character becomes U+FFFD.
    """

    name: str
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


def load_encoder(name: str) -> Encoder:
    """Load ``o200k_base``, a folder with a ``tokenizer.json``, or such a file; offline.

    Raises:
        ValueError: It is none of these, or the data of ``o200k_base`` are not on this machine.
    """
    if name == "o200k_base":
        return _load_o200k()
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"tokenizer {name}: no such file {file}; give o200k_base, a folder with a "
            "tokenizer.json, or that file"
        )
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises bare Exception for a file it cannot read
        raise ValueError(f"tokenizer {file}: cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Encoder(
        name=name,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
    )


def _load_o200k() -> Encoder:
    import tiktoken

    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except (OSError, ValueError) as error:
        raise ValueError(
            "tokenizer o200k_base: its data are not on this machine and cannot be downloaded; set "
            f"TIKTOKEN_CACHE_DIR to a folder that holds o200k_base.tiktoken as {_O200K_FILE}"
        ) from error
    # What looks like a special token is text: prompts are quoted, not obeyed.
    return Encoder(name="o200k_base", encode=encoding.encode_ordinary, decode=encoding.decode)


def fit(text: str, encoder: Encoder, length: int) -> str:
    """Return a text that encodes to exactly ``length`` tokens and begins like ``text``.

    A longer text is cut between two characters; a shorter one is padded with ``PADDING``, repeated
    and cut. Where no cut gives the exact count (a character of several tokens lies there), the
    text is cut a little earlier and padded.

    Raises:
        ValueError: Not even padding reaches the count with this tokenizer.
    """
    ids, window = _window(text, encoder, length)
    return _fit(window, ids, encoder, length)


def cut(text: str, encoder: Encoder, length: int) -> str | None:
    """Return what ``fit`` does, or None for a text of fewer tokens."""
    ids, window = _window(text, encoder, length)
    return _fit(window, ids, encoder, length) if len(ids) >= length else None


def _fit(window: str, ids: list[int], encoder: Encoder, length: int) -> str:
    if len(ids) == length:
        return window
    if len(ids) > length:
        fitted = _cut(window, ids, encoder, length)
    else:
        fitted = _pad(window, len(ids), encoder, length)
    for kept in (length - 1, length - 4, length - 16, length // 2, 0):
        if fitted is None and 0 <= kept < len(ids):
            start = window[: _end_of(window, ids, encoder, kept)]
            fitted = _pad(start, kept, encoder, length)
    if fitted is None:
        raise ValueError(f"no text of exactly {length} tokens was found with {encoder.name}")
    return fitted


def _window(text: str, encoder: Encoder, length: int) -> tuple[list[int], str]:
    """Encode no more of a long text than the cut needs."""
    size = 5 * length + 64
    while True:
        window = text[:size]
        ids = encoder.encode(window)
        # The end of a window may be encoded differently from the same place in the text; a few
        # tokens of margin keep the cut away from it.
        if len(window) == len(text) or len(ids) >= length + 16:
            return ids, window
        size *= 2


def _pad(text: str, count: int, encoder: Encoder, length: int) -> str | None:
    """Pad a text of about ``count`` tokens and cut it within the padding."""
    padded, each = text, len(encoder.encode(PADDING))
    while True:
        padded += PADDING * (max(length - count, 0) // each + 2)
        ids = encoder.encode(padded)
        if len(ids) > length:
            return _cut(padded, ids, encoder, length, at_least=len(text))
        count = len(ids)


def _cut(
    text: str, ids: list[int], encoder: Encoder, length: int, *, at_least: int = 0
) -> str | None:
    """Return a prefix of exactly ``length`` tokens and at least so many characters, if any."""
    end = _end_of(text, ids, encoder, length)
    if end >= at_least and len(encoder.encode(text[:end])) == length:
        return text[:end]
    end = _bisect(text, encoder, length)
    for distance in range(_NEARBY_CHARS):
        for near in (end - distance, end + distance):
            inside = at_least <= near <= len(text)
            if inside and len(encoder.encode(text[:near])) == length:
                return text[:near]
    return None


def _end_of(text: str, ids: list[int], encoder: Encoder, count: int) -> int:
    """Return where in the text its first ``count`` tokens end, before a character cut in two."""
    decoded = encoder.decode(ids[:count]).rstrip(_REPLACEMENT)
    # A tokenizer that normalises its input does not give the text back.
    return len(decoded) if text.startswith(decoded) else _bisect(text, encoder, count)


def _bisect(text: str, encoder: Encoder, count: int) -> int:
    """Return the end of a prefix of ``count`` tokens, or near it (counts can jump or dip)."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if len(encoder.encode(text[:middle])) <= count:
            low = middle
        else:
            high = middle - 1
    return low
