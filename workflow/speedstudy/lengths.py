"""Texts of an exact length in tokens, and the tokenizers that count them.

The paper cuts the token list at N and decodes; the decoded text often has another count, and a
character that was cut in two becomes U+FFFD. Here the *text* is cut, the cut text is counted
again, and a cut whose count is not N is moved until it is.

To count again costs little, since a text need not be encoded from its start. Tokenizers split text
into words before they merge, so what lies before a *seam*, a place between two words of letters, is
encoded alike whatever follows some words later. A seam is used only after the text behind it gave
the same tokens alone as in the whole text; a tokenizer without seams is encoded from the start.
This module imports nothing of ours.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

PADDING = "Answer now please.\n"
"""What the reference appends to a text that is too short (NVIDIA's prepare script)."""

_O200K_FILE = "fb374d419588a4632f3f557e76b4b70aebbca790"
_SEAM = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])|(?<=\n)(?=[^\W\d_])")
_CHARS_PER_TOKEN = 4.0  # first estimate; corrected by what was encoded
_MARGIN = 16  # tokens at a window's end that may change when the text goes on
_NEAR, _FAR = 64, 192  # tokens between a seam and the place that it is used for
_NEARBY_CHARS = 24


@dataclass(frozen=True)
class Encoder:
    """A tokenizer as this stage needs it: plain text, no special tokens added.

    Attributes:
        name: For messages.
        count: Text to its number of tokens.
        ends: Text to where each token ends, in characters, ascending. Where a token ends inside a
            character, the character's start or end.
    """

    name: str
    count: Callable[[str], int]
    ends: Callable[[str], IntArray]


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

    def ends(text: str) -> IntArray:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        return np.fromiter((end for _, end in offsets), np.int64, len(offsets))

    return Encoder(
        name=name,
        count=lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
        ends=ends,
    )


def o200k_is_local() -> bool:
    """Return whether tiktoken can load ``o200k_base`` without a network."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    place = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (place / _O200K_FILE).is_file()


def _load_o200k() -> Encoder:
    import tiktoken

    try:
        encoding = tiktoken.get_encoding("o200k_base")
    except (OSError, ValueError) as error:
        raise ValueError(
            "tokenizer o200k_base: its data are not on this machine and cannot be downloaded; set "
            f"TIKTOKEN_CACHE_DIR to a folder that holds o200k_base.tiktoken as {_O200K_FILE}"
        ) from error
    ordinary = range(len(encoding.token_byte_values()))
    sizes = np.array([len(encoding.decode_single_token_bytes(i)) for i in ordinary], np.int64)

    def ends(text: str) -> IntArray:
        # What looks like a special token is text: prompts are quoted, not obeyed.
        ids = encoding.encode_to_numpy(text, disallowed_special=())
        ends_bytes: IntArray = np.cumsum(sizes[ids])
        if text.isascii():
            return ends_bytes
        starts = np.frombuffer(text.encode(), np.uint8) & 0xC0 != 0x80  # of a character
        characters = np.concatenate([[0], np.cumsum(starts)])
        inside = ~np.append(starts, True)[ends_bytes]
        ends_chars: IntArray = characters[ends_bytes] - inside
        return ends_chars

    return Encoder(
        name="o200k_base", count=lambda text: len(encoding.encode_ordinary(text)), ends=ends
    )


def fit(text: str, encoder: Encoder, length: int) -> str:
    """Return a text of exactly ``length`` tokens that begins like ``text``.

    A longer text is cut between two characters; a shorter one is padded with ``PADDING``, repeated
    and cut. Where no cut gives the exact count (a character of several tokens lies there), the
    text is cut a little earlier and padded.

    Raises:
        ValueError: Not even padding reaches the count with this tokenizer.
    """
    return _fit(text, _encode(text, encoder, length), encoder, length)


def cut(text: str, encoder: Encoder, length: int) -> str | None:
    """Return what ``fit`` does, or None for a text of fewer tokens."""
    ends = _encode(text, encoder, length)
    return _fit(text, ends, encoder, length) if len(ends) >= length else None


def cut_middle(opening: str, text: str, closing: str, encoder: Encoder, length: int) -> str | None:
    """Return opening, the end of the text, and closing: exactly ``length`` tokens together.

    Where no cut gives the exact count, the text begins a little later and padding follows.

    Returns:
        The joined text; None if all of it has fewer tokens, or opening and closing alone as many.

    Raises:
        ValueError: As ``fit``.
    """
    joined, ends = _encode_end(opening, text, closing, encoder, length)
    surplus = len(ends) - length
    if surplus <= 0:
        return joined if surplus == 0 else None
    first = int(np.searchsorted(ends, len(opening), side="right"))  # tokens of the opening
    last = len(joined) - len(closing)
    if first + surplus > len(ends) or ends[first + surplus - 1] >= last:
        return None
    guess = int(ends[first + surplus - 1])
    position, tokens = _seam_after(joined, ends, first + surplus)
    head = encoder.ends(opening + joined[guess:position])
    if not _ends_alike(head + guess - len(opening), ends):
        position, tokens = len(joined), len(ends)
        head = encoder.ends(opening + joined[guess:])
    excess = len(head) + len(ends) - tokens - length
    if excess == 0:
        return opening + joined[guess:]
    wanted = length - len(ends) + tokens  # tokens of opening and text up to the seam
    for start in _near(int(ends[max(first + surplus - 1 + excess, 0)])):
        inside = len(opening) <= start < min(last, position)
        if inside and encoder.count(opening + joined[start:position]) == wanted:
            return opening + joined[start:]
    for dropped in (1, 4, 16):
        start = min(int(ends[first + surplus - 1 + dropped]), last)
        shorter = opening + joined[start:]
        if encoder.count(shorter) <= length:
            return fit(shorter, encoder, length)
    return None


def _encode_end(
    opening: str, text: str, closing: str, encoder: Encoder, length: int
) -> tuple[str, IntArray]:
    """Join opening, enough of the text's end, and closing, and encode them."""
    tail, piece = text[-4 * length :], min(512, length // 8)
    sample = "".join(tail[i : i + piece] for i in range(0, len(tail), max(len(tail) // 4, 1)))
    per_token = len(sample) / max(encoder.count(sample), 1)
    size = int(1.1 * (length + _MARGIN) * per_token) + 64 - len(opening) - len(closing)
    while True:
        size = max(size, 1)
        joined = opening + text[-size:] + closing
        ends = encoder.ends(joined)
        lacking = length + _MARGIN - len(ends)
        if lacking <= 0 or size >= len(text):
            return joined, ends
        size += int(1.1 * lacking * len(joined) / max(len(ends), 1)) + 64


def _fit(text: str, ends: IntArray, encoder: Encoder, length: int) -> str:
    if len(ends) >= length:
        fitted = _cut(text, ends, encoder, length)
    else:
        fitted = _pad(text, ends, encoder, length)
    for kept in (length - 1, length - 4, length - 16, length // 2, 0):
        if fitted is None and 0 <= kept < len(ends):
            start = text[: ends[kept - 1]] if kept else ""
            fitted = _pad(start, ends[:kept], encoder, length)
    if fitted is None:
        raise ValueError(f"no text of exactly {length} tokens was found with {encoder.name}")
    return fitted


def _encode(text: str, encoder: Encoder, length: int, known: IntArray | None = None) -> IntArray:
    """Return the ends of at least ``length`` tokens and a margin, or of all the text's tokens.

    Args:
        text: Encoded piece by piece, from seam to seam, no further than needed.
        encoder: The tokenizer.
        length: Tokens that are wanted.
        known: Ends of the tokens of a text that this one begins with.
    """
    ends = np.empty(0, np.int64) if known is None else known
    stop = 0
    while True:
        position, tokens, per_token = 0, 0, _CHARS_PER_TOKEN
        if len(ends):
            position, tokens = _seam_before(text, ends, len(ends))
            stop = max(stop, int(ends[-1]))
            per_token = stop / len(ends)
        stop += int(1.02 * (length + _MARGIN - len(ends)) * per_token) + 64
        piece = encoder.ends(text[position:stop]) + position
        shared = max(len(ends) - tokens - _MARGIN, 0)
        if position and not np.array_equal(piece[:shared], ends[tokens : tokens + shared]):
            tokens = 0
            piece = encoder.ends(text[:stop])
        ends = np.concatenate([ends[:tokens], piece])
        if stop >= len(text) or len(ends) >= length + _MARGIN:
            return ends


def _pad(text: str, ends: IntArray, encoder: Encoder, length: int) -> str | None:
    """Pad a text whose tokens end at ``ends`` and cut it within the padding."""
    padded, each = text, encoder.count(PADDING)
    while True:
        padded += PADDING * (max(length - len(ends), 0) // each + 2)
        ends = _encode(padded, encoder, length, ends)
        if len(ends) >= length:
            return _cut(padded, ends, encoder, length, at_least=len(text))


def _cut(
    text: str, ends: IntArray, encoder: Encoder, length: int, *, at_least: int = 0
) -> str | None:
    """Return a prefix of exactly ``length`` tokens and at least so many characters, if any."""
    if len(ends) == length and ends[-1] == len(text):
        return text
    guess = int(ends[length - 1])
    position, tokens = _seam_before(text, ends, length)
    piece = encoder.ends(text[position:guess]) + position
    shared = length - tokens - _MARGIN
    if position and not np.array_equal(piece[:shared], ends[tokens : tokens + shared]):
        position = tokens = 0
    elif guess >= at_least and tokens + len(piece) == length:
        return text[:guess]
    for end in _near(guess):
        inside = max(at_least, position) <= end <= len(text)
        if inside and tokens + encoder.count(text[position:end]) == length:
            return text[:end]
    return None


def _near(place: int) -> Iterator[int]:
    """Yield a place and those around it, nearest first."""
    yield place
    for distance in range(1, _NEARBY_CHARS):
        yield place - distance
        yield place + distance


def _seam_before(text: str, ends: IntArray, token: int) -> tuple[int, int]:
    """Return the last seam well before a token, and the tokens before it; (0, 0) without one."""
    low, high = max(token - _FAR, 1), token - _NEAR
    if high > low:
        for match in reversed(list(_SEAM.finditer(text, ends[low - 1], ends[high - 1]))):
            tokens = _tokens_before(ends, match.start())
            if tokens is not None:
                return match.start(), tokens
    return 0, 0


def _seam_after(text: str, ends: IntArray, token: int) -> tuple[int, int]:
    """Return the first seam well after a token, and the tokens before it; the end without one."""
    low, high = token + _NEAR, min(token + _FAR, len(ends))
    if high > low:
        for match in _SEAM.finditer(text, ends[low - 1], ends[high - 1]):
            tokens = _tokens_before(ends, match.start())
            if tokens is not None:
                return match.start(), tokens
    return len(text), len(ends)


def _tokens_before(ends: IntArray, position: int) -> int | None:
    """Return how many tokens end by a position, or None if none ends at it."""
    tokens = int(np.searchsorted(ends, position, side="right"))
    return tokens if tokens and ends[tokens - 1] == position else None


def _ends_alike(piece: IntArray, ends: IntArray) -> bool:
    """Return whether the last tokens of a piece of the text end where the whole text's do."""
    tail = piece[-_MARGIN:]
    tokens = int(np.searchsorted(ends, tail[-1], side="right")) if len(tail) else 0
    return len(tail) > 0 and np.array_equal(tail, ends[max(tokens - len(tail), 0) : tokens])
