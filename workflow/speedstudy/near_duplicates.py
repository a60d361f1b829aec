"""Which rows of different sources are nearly the same text.

Two texts are near duplicates when the sets of their shingles, runs of five words, have a Jaccard
similarity of at least 0.8. All pairs that reach it are found: no sketch, no chance, and no more
work than needed. A prefix filter (Chaudhuri et al. 2006; Bayardo et al. 2007) makes that fast: with
the shingles of every text in one global order, rarest first, two texts whose similarity reaches
the threshold share one of their first few. This module imports nothing of ours.
"""

import hashlib
import itertools
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

SHINGLE_WORDS = 5
SIMILARITY = (4, 5)
"""Least Jaccard similarity of near duplicates, as a fraction, so that it is counted exactly."""

Shingles = npt.NDArray[np.uint64]

# Chinese characters and kana are written without spaces: each is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
# Odd, otherwise arbitrary: the weights of a shingle's words in its 64-bit hash.
_WEIGHTS = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
    ],
    dtype=np.uint64,
)


def near_duplicates(
    ids: Sequence[str], texts: Sequence[str], sources: Sequence[str]
) -> dict[str, str]:
    """Return the rows to leave out, each with the row that stays for it.

    Going through the rows by id, a row is left out when it is a near duplicate of a row of another
    source that stays; the first such is named. So the result does not depend on the rows' order.
    Rows of one source are not compared: there likeness is meant (one story in several styles, one
    problem in several languages), and selection weighs it.

    Words are runs of letters and digits, in any case; a text of fewer than five words is one
    shingle, and one without a word is like none.

    Args:
        ids: Distinct.
        texts: In the order of the ids, and so are the sources.
        sources: Names.
    """
    order = sorted(range(len(ids)), key=ids.__getitem__)
    shingles = _shingles([texts[row] for row in order])
    names = [sources[row] for row in order]
    near: dict[int, list[int]] = {}
    for earlier, later in _candidate_pairs(shingles, names):
        if _are_near(shingles[earlier], shingles[later]):
            near.setdefault(later, []).append(earlier)
    left_out: dict[int, int] = {}
    for later in sorted(near):
        stays = next((one for one in sorted(near[later]) if one not in left_out), None)
        if stays is not None:
            left_out[later] = stays
    return {ids[order[row]]: ids[order[stays]] for row, stays in left_out.items()}


def _shingles(texts: Sequence[str]) -> list[Shingles]:
    """Return for each text the hashes of its shingles, sorted, each once."""
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    filler = [numbers[""]] * SHINGLE_WORDS
    places, ends = array("l"), [0]
    for text in texts:
        words = [numbers[word] for word in _WORD.findall(text.casefold())]
        places.extend(words + filler[len(words) :] if words else [])
        ends.append(len(places))
    hashes = np.array([_hash(word) for word in numbers], dtype=np.uint64)[np.asarray(places)]
    windows = np.zeros(max(len(hashes) - SHINGLE_WORDS + 1, 0), dtype=np.uint64)
    for place, weight in enumerate(_WEIGHTS):
        windows += hashes[place : place + len(windows)] * weight
    return [
        np.unique(windows[start : max(end - SHINGLE_WORDS + 1, start)])
        for start, end in itertools.pairwise(ends)
    ]


def _hash(word: str) -> int:
    digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


def _candidate_pairs(
    shingles: Sequence[Shingles], sources: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Yield pairs of rows (earlier, later) of different sources that may reach the threshold.

    Two sets that reach it share at least that part of the larger one; so they share one of the
    first shingles of either, in whatever order, as many as may be lacking and one more.
    """
    if len(set(sources)) < 2:
        return
    sizes = np.array([len(one) for one in shingles])
    rows = np.repeat(np.arange(len(shingles)), sizes)
    _, names, counts = np.unique(np.concatenate(shingles), return_inverse=True, return_counts=True)
    frequency = counts[names]
    # Those that one text alone has come first in it, and lead to no other.
    shared = np.flatnonzero(frequency > 1)
    alone = sizes - np.bincount(rows[shared], minlength=len(sizes))
    shared = shared[np.lexsort((names[shared], frequency[shared], rows[shared]))]
    begins = np.searchsorted(rows[shared], np.arange(len(sizes)))
    rank = np.arange(len(shared)) - begins[rows[shared]] + alone[rows[shared]]
    prefix = sizes - _least_common(sizes) + 1
    first = shared[rank < prefix[rows[shared]]]
    first = first[np.argsort(names[first], kind="stable")]
    _, begins = np.unique(names[first], return_index=True)
    seen: set[tuple[int, int]] = set()
    for group in np.split(rows[first], begins[1:]):
        members = group.tolist()
        if len({sources[row] for row in members}) < 2:
            continue
        for place, later in enumerate(members):
            for earlier in members[:place]:
                pair = (earlier, later)
                if sources[earlier] != sources[later] and pair not in seen:
                    seen.add(pair)
                    yield pair


def _least_common(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    numerator, denominator = SIMILARITY
    return -(-numerator * sizes // denominator)


def _are_near(one: Shingles, other: Shingles) -> bool:
    numerator, denominator = SIMILARITY
    smaller, larger = sorted((len(one), len(other)))
    if denominator * smaller < numerator * larger:
        return False
    common = len(np.intersect1d(one, other, assume_unique=True))
    return denominator * common >= numerator * (smaller + larger - common)
