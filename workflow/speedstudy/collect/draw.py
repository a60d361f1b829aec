"""Draws that depend on a row's own key alone.

The paper's code draws languages and templates from a random generator, so that what a row becomes
hangs on the rows before it. A hash of the key gives the same spread in any order, on any machine.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Choice = TypeVar("Choice")


def draw(choices: Sequence[Choice], what: str, key: str) -> Choice:
    """Return one of ``choices``, each as likely, by the sha256 of ``what`` and ``key``.

    Args:
        choices: At least one; their order is part of the result.
        what: Name of the draw, so that two draws for one row are independent.
        key: The row's own key.
    """
    digest = hashlib.sha256(f"{what}\n{key}".encode(errors="surrogatepass")).digest()
    return choices[int.from_bytes(digest[:8], "big") % len(choices)]
