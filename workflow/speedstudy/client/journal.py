"""The journal of a load: every exchange, raw, appended when it has ended.

A client process keeps no reply beyond its end, so its memory does not grow with the run, and
what was received outlives it: bytes handed to the kernel survive the end of a process, whatever
ended it. Each process has a file of its own (``<name>.exchanges``). An entry is its sizes, a JSON
header, the arrival of each read (float64), the size of each (uint32), and their bytes. An entry
that was cut is the last of its file and is left out.
"""

import os
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from speedstudy.client.exchange import Exchange, Failure

SIZES = struct.Struct("<IQ")  # bytes of the header, bytes of all that follows it
PATTERN = "*.exchanges"


class Entry(NamedTuple):
    """Where an exchange is; sorts by its place in the load."""

    job: int
    turn: int
    file: int
    offset: int


class Journal:
    """Appends to one file.

    Attributes:
        newest: Offset of the last entry; -1 before there is one.
    """

    def __init__(self, path: Path) -> None:
        self.newest = -1
        self._end = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)

    def append(self, exchange: Exchange) -> None:
        """Write one exchange.

        Raises:
            OSError: The file system refuses.
        """
        failure = exchange.failure
        header = orjson.dumps(
            (
                exchange.job,
                exchange.turn,
                exchange.scheduled_s,
                exchange.ready_s,
                exchange.sent_s,
                exchange.ended_s,
                None if failure is None else (failure.outcome, failure.text),
                len(exchange.reads),
            )
        )
        stamps = array("d", exchange.read_s).tobytes()
        sizes = array("I", map(len, exchange.reads))
        contents_bytes = len(stamps) + sizes.itemsize * len(sizes) + sum(sizes)
        prefix = SIZES.pack(len(header), contents_bytes)
        entry = b"".join((prefix, header, stamps, sizes.tobytes(), *exchange.reads))
        self.newest = self._end
        while entry:
            written = os.write(self._file, entry)
            self._end += written
            entry = entry[written:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def entries(paths: list[Path]) -> Iterator[Entry]:
    """Yield where the whole entries of some files are, file by file."""
    for number, path in enumerate(paths):
        size = path.stat().st_size
        with path.open("rb") as file:
            offset = 0
            while offset + SIZES.size <= size:
                file.seek(offset)
                header_bytes, contents_bytes = SIZES.unpack(file.read(SIZES.size))
                end = offset + SIZES.size + header_bytes + contents_bytes
                if end > size:
                    break
                job, turn, *_ = orjson.loads(file.read(header_bytes))
                yield Entry(job, turn, number, offset)
                offset = end


def read_exchange(file: BinaryIO, offset: int) -> Exchange:
    """Return the exchange of the entry at ``offset``."""
    file.seek(offset)
    header_bytes, contents_bytes = SIZES.unpack(file.read(SIZES.size))
    job, turn, scheduled_s, ready_s, sent_s, ended_s, failure, count = orjson.loads(
        file.read(header_bytes)
    )
    contents = file.read(contents_bytes)
    stamps, sizes = array("d"), array("I")
    stamps.frombytes(contents[: 8 * count])
    sizes.frombytes(contents[8 * count : 12 * count])
    reads, at = [], 12 * count
    for size in sizes:
        reads.append(contents[at : at + size])
        at += size
    return Exchange(
        job=job,
        turn=turn,
        scheduled_s=scheduled_s,
        ready_s=ready_s,
        sent_s=sent_s,
        reads=reads,
        read_s=stamps.tolist(),
        ended_s=ended_s,
        failure=None if failure is None else Failure(*failure),
    )


def last_end_s(paths: list[Path]) -> float | None:
    """Return when the last of all exchanges ended (``time.perf_counter``); None without any."""
    last_s = None
    for path in paths:
        with path.open("rb") as file:
            for entry in entries([path]):
                ended_s = read_exchange(file, entry.offset).ended_s
                last_s = ended_s if last_s is None else max(last_s, ended_s)
    return last_s
