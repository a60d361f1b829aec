"""WritingBench (GitHub X-PLUG/WritingBench) as long prompts: queries of about the wanted length.

Rows and the option ``lang_column`` are those of ``writing_bench``. Options:

    min_share, max_share: The paper's 0.7 and 2: lengths that are used, as shares of the prompt's.
    licence: Licence of the texts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speedstudy.collect import writing_bench
from speedstudy.collect.candidates import Dropped, LongText


def read(
    source: str, files: Mapping[str, Path], options: Mapping[str, Any]
) -> Iterator[LongText | Dropped]:
    """Read every file; a shorter query is padded, a longer one loses its end.

    Raises:
        ValueError: As ``writing_bench.read``.
    """
    for item in writing_bench.read(source, files, options):
        if isinstance(item, Dropped):
            yield item
            continue
        yield LongText(
            text_id=item.question_id,
            tier="high_entropy",
            title=f"{item.sub_category}, {item.src_id}",
            text=item.turns[0],
            source=source,
            licence=options["licence"],
            min_share=options["min_share"],
            max_share=options["max_share"],
        )
