"""The requests of a load as bytes on the wire, written before the clock starts.

All client processes map the same file into memory, so that a hundred megabytes of long prompts
are there once.
"""

import mmap
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from yarl import URL

from speedstudy.client.options import LoadOptions
from speedstudy.dialects import Dialect
from speedstudy.dialects.reply import Sampling
from speedstudy.workload import Prompt

# What the dialects call the fields of ``Sampling``; a body has one name of each field it sets.
SAMPLING_NAMES: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "max_new_tokens", "n_predict"),
    "temperature": ("temperature",),
    "seed": ("seed", "sampling_seed"),
    "ignore_eos": ("ignore_eos",),
}


def raw_request(url: URL, body: bytes, *, keep: bool) -> bytes:
    """Return a POST with a JSON body as HTTP/1.1 sends it.

    The reply is asked for uncompressed: a compressed stream holds chunks back. Without ``keep`` the
    server is asked to end the connection after its reply.
    """
    head = (
        f"POST {url.raw_path_qs} HTTP/1.1\r\n"
        f"Host: {url.host_port_subcomponent}\r\n"
        "User-Agent: speedstudy\r\n"
        "Accept: */*\r\n"
        "Accept-Encoding: identity\r\n"
        "Content-Type: application/json\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def completion_url(options: LoadOptions, dialect: Dialect) -> URL:
    """Return the address of the dialect's completion route."""
    return URL(options.url.rstrip("/") + dialect.route)


def first_body(options: LoadOptions, prompt: Prompt, dialect: Dialect) -> bytes:
    """Return the body of a conversation's first turn.

    Raises:
        ValueError: The dialect cannot say what is asked for, or does not say it as asked.
    """
    body = dialect.body(options.model, prompt.turn_token_ids[0], options.sampling)
    data = orjson.dumps(body)
    check_sampling(orjson.loads(data), options.sampling)
    return data


def check_sampling(body: Mapping[str, Any], sampling: Sampling) -> None:
    """Hold the fields of a body against what the study asks for.

    Raises:
        ValueError: A field is missing, is there twice or has another value.
    """
    fields = {**body, **(body.get("sampling_params") or {})}
    for field, names in SAMPLING_NAMES.items():
        wanted = getattr(sampling, field)
        sent = [fields[name] for name in names if name in fields]
        silent = wanted is None or wanted is False
        if sent != [wanted] and not (silent and not sent):
            raise ValueError(f"the body says {field} {sent or 'not at all'}, not {wanted!r}")


def write_outbox(
    path: Path, options: LoadOptions, prompts: Sequence[Prompt], dialect: Dialect
) -> "array[int]":
    """Write the raw first request of each prompt, in order.

    Returns:
        Where each begins in the file, and behind the last where it ends.

    Raises:
        ValueError: As ``first_body``.
    """
    url = completion_url(options, dialect)
    bounds = array("Q", [0])
    with path.open("wb") as file:
        for prompt in prompts:
            body = first_body(options, prompt, dialect)
            request = raw_request(url, body, keep=dialect.keeps_connections)
            bounds.append(bounds[-1] + file.write(request))
    return bounds


class Outbox:
    """Reads what ``write_outbox`` wrote."""

    def __init__(self, path: Path, bounds: "array[int]") -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, prompt: int) -> bytes:
        return self._map[self._bounds[prompt] : self._bounds[prompt + 1]]

    def touch(self) -> None:
        """Bring the file into memory, so that no request waits for a disk."""
        for start in range(0, len(self._map), mmap.PAGESIZE):
            self._map[start]

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()
