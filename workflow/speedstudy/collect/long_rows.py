"""How many texts an adapter of long texts keeps."""

import bisect
import heapq
from collections.abc import Iterable, Iterator, Sequence

from speedstudy.collect.candidates import Dropped, LongText


def lowest_by_length(
    texts: Iterable[LongText | Dropped], most: int, lengths: Sequence[int]
) -> Iterator[LongText | Dropped]:
    """Keep the texts with the lowest ids among those of about one length, so that all fit.

    A text belongs to the greatest of ``lengths`` (characters, ascending) that it reaches; of each
    class ``most`` texts are kept, whatever the order of the rows. No more than these are in memory.

    Yields:
        What was dropped before, then ``over_quota`` for texts that are not kept and ``too_short``
        for those under the least length, then the texts.
    """
    classes: list[list[tuple[int, int, LongText]]] = [[] for _ in lengths]
    for number, text in enumerate(texts):
        if isinstance(text, Dropped):
            yield text
            continue
        chars = len(text.opening) + len(text.text) + len(text.closing)
        place = bisect.bisect_right(lengths, chars) - 1
        if place < 0:
            yield Dropped(src_id=text.text_id, reason="too_short")
            continue
        heapq.heappush(classes[place], (-int(text.text_id, 16), number, text))
        if len(classes[place]) > most:
            _, _, dropped = heapq.heappop(classes[place])
            yield Dropped(src_id=dropped.text_id, reason="over_quota")
    for kept in classes:
        yield from (text for _, _, text in kept)
