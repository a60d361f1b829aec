"""Prompts of one exact length out of files of long texts, read a group of rows at a time.

What comes first depends on the seed and on each text's own id: the texts of a file are sorted by
their id, which is a hash, and are taken in that order from a place that the seed names. Files take
turns, so that a large source does not crowd out a small one.
"""

import bisect
import hashlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speedstudy.lengths import Encoder, cut, cut_middle, fit

COLUMNS = [
    *("text_id", "tier", "title", "opening", "text", "closing", "source", "licence"),
    *("min_share", "max_share", "windows"),
]

_MAX_KEPT_CHARS = 16_000_000  # of the texts of one file
_CHARS_PER_TOKEN = 16  # more than in nearly all text
_SHIFT_BITS = 6  # overlapping windows begin at multiples of 1/64 of a window


@dataclass(frozen=True, kw_only=True)
class Window:
    """One prompt: where it begins in which text, and what it became."""

    row: Mapping[str, Any]
    start: int
    prompt: str

    @property
    def question_id(self) -> str:
        """The text's own id for its beginning, else a hash of the id and the place."""
        if self.start == 0:
            return str(self.row["text_id"])
        return hashlib.sha256(f"{self.row['text_id']}:{self.start}".encode()).hexdigest()[:32]


def tier_windows(
    files: Sequence[Path], tier: str, encoder: Encoder, length: int, seed: int, *, overlap: bool
) -> Iterator[Window]:
    """Yield all prompts of ``length`` tokens that the texts of a tier give, best first.

    First the beginning of every text that is long enough, then, of texts with ``windows``, what
    follows: windows that begin at the first line after the one before, the next of every text in
    turn. With ``overlap`` windows go on from other lines: shifted by a half, a quarter, three
    quarters of a window and so on, never twice from the same line.

    Args:
        files: Parquet files of ``write_long_texts``.
        tier: Texts of other tiers are left out.
        encoder: What counts the tokens.
        length: Tokens of every prompt.
        seed: Names the place in the order of ids to begin from.
        overlap: Whether prompts may share text.
    """
    sources = [_File(path, tier, encoder, length, seed) for path in _by_name(files)]
    yield from _in_turn([source.windows([0.0]) for source in sources])
    if overlap:
        yield from _in_turn([source.windows(_shifts()) for source in sources])


def check_columns(files: Iterable[Path]) -> None:
    """Refuse a file that lacks a column.

    Raises:
        ValueError: The message names the file and the columns found.
    """
    for path in files:
        found = pq.read_schema(path).names
        missing = [name for name in COLUMNS if name not in found]
        if missing:
            raise ValueError(
                f"{path}: no column {', '.join(missing)}; found {', '.join(found)}; collect its "
                "source again"
            )


class _File:
    """The texts of one file and tier, and where windows have begun in each."""

    def __init__(self, path: Path, tier: str, encoder: Encoder, length: int, seed: int) -> None:
        self._rows = _Rows(path)
        self._encoder, self._length = encoder, length
        self._begun: set[tuple[str, int]] = set()
        self._window_chars: dict[str, int] = {}  # of those texts that gave a window
        pivot = hashlib.sha256(f"{seed}".encode()).hexdigest()[:32]
        keys = enumerate(zip(self._rows.ids, self._rows.tiers, strict=True))
        order = [(text_id < pivot, index) for index, (text_id, one) in keys if one == tier]
        self._order = [index for _, index in sorted(order)]

    def windows(self, shifts: Iterable[float]) -> Iterator[Window]:
        """Yield for each shift, a share of a window, all windows that follow one another."""
        for shift in shifts:
            places: dict[str, int] | None = None
            while places is None or places:
                places = yield from self._turn(shift, places)

    def _turn(
        self, shift: float, places: Mapping[str, int] | None
    ) -> Generator[Window, None, dict[str, int]]:
        """Yield the next window of each text, at ``shift`` where places is None (the first turn).

        Returns:
            The end of each new window, by text: where the next turn goes on.
        """
        following = {}
        for index in self._order:
            text_id = self._rows.ids[index]
            if places is not None:
                place = places.get(text_id)
            elif shift:
                chars = self._window_chars.get(text_id)
                place = None if chars is None else int(shift * chars)
            else:
                place = 0
            if place is None:
                continue
            row = self._rows[index]
            start = self._unused_line(row, place)
            window = None if start is None else self._window(row, start)
            if window is None:
                continue
            self._begun.add((text_id, window.start))
            if row["windows"]:
                chars = len(window.prompt) - len(row["opening"])
                self._window_chars.setdefault(text_id, chars)
                following[text_id] = window.start + chars
            yield window
        return following

    def _unused_line(self, row: Mapping[str, Any], place: int) -> int | None:
        start = _line_start(row["text"], place)
        while start is not None and (row["text_id"], start) in self._begun:
            start = _line_start(row["text"], start + 1)
        return start

    def _window(self, row: Mapping[str, Any], start: int) -> Window | None:
        make = _window_of if row["windows"] else _whole
        prompt = make(row, start, self._encoder, self._length)
        return None if prompt is None else Window(row=row, start=start, prompt=prompt)


class _Rows:
    """Rows of a parquet file by their place in it; of those read, the latest are kept."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._firsts = list(itertools.accumulate(sizes, initial=0))
        keys = self._file.read(["text_id", "tier"])
        self.ids: list[str] = keys.column("text_id").to_pylist()
        self.tiers: list[str] = keys.column("tier").to_pylist()
        self._group: tuple[int, pa.Table] | None = None
        self._kept: dict[int, dict[str, Any]] = {}
        self._kept_chars = 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self._kept.pop(index, None)
        if row is None:
            row = self._read(index)
            self._kept_chars += len(row["text"])
        self._kept[index] = row  # last: the latest used
        while self._kept_chars > _MAX_KEPT_CHARS and len(self._kept) > 1:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_chars -= len(oldest["text"])
        return row

    def _read(self, index: int) -> dict[str, Any]:
        number = bisect.bisect_right(self._firsts, index) - 1
        if self._group is None or self._group[0] != number:
            self._group = number, self._file.read_row_group(number, COLUMNS)
        row: dict[str, Any] = self._group[1].slice(index - self._firsts[number], 1).to_pylist()[0]
        return row


def _window_of(row: Mapping[str, Any], start: int, encoder: Encoder, length: int) -> str | None:
    opening, text = row["opening"], row["text"]
    stop = start + _CHARS_PER_TOKEN * length
    prompt = cut(opening + text[start:stop], encoder, length)
    if prompt is None and stop < len(text):
        prompt = cut(opening + text[start:], encoder, length)
    return prompt


def _whole(row: Mapping[str, Any], start: int, encoder: Encoder, length: int) -> str | None:
    """Return the one prompt of a text that gives no more, or None if its length does not fit."""
    opening, text, closing = row["opening"], row["text"], row["closing"]
    joined = opening + text + closing
    least, most = row["min_share"] * length, row["max_share"]
    if len(joined.encode()) < least or (most is not None and encoder.count(joined) > most * length):
        return None  # a token has at least one byte
    if closing:
        prompt = cut_middle(opening, text, closing, encoder, length)
    else:
        prompt = cut(joined, encoder, length)
    if prompt is None and least <= encoder.count(joined) < length:
        prompt = fit(joined, encoder, length)
    return prompt


def _line_start(text: str, at: int) -> int | None:
    """Return the first start of a line of the text at or after a place, if any."""
    if at == 0 or (at < len(text) and text[at - 1] == "\n"):
        return at
    newline = text.find("\n", at)
    return None if newline < 0 or newline + 1 >= len(text) else newline + 1


def _shifts() -> Iterator[float]:
    """Yield 1/2, 1/4, 3/4, 1/8, 3/8, ... down to the smallest share."""
    for bits in range(1, _SHIFT_BITS + 1):
        yield from (odd / 2**bits for odd in range(1, 2**bits, 2))


def _by_name(files: Iterable[Path]) -> list[Path]:
    return sorted(files, key=lambda path: (path.name, str(path)))


def _in_turn(sources: Iterable[Iterator[Window]]) -> Iterator[Window]:
    """Yield the next of every source in turn until all have ended."""
    active = list(sources)
    while active:
        for source in list(active):
            window = next(source, None)
            if window is None:
                active.remove(source)
            else:
                yield window
