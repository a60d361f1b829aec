"""What collection gives: candidate prompts and long texts, their guards, and their files.

A candidate is a row of a source, turned into user turns. Everything here is a function of the
rows alone: never of their order, of the machine, or of other rows (but for exact duplicates).
"""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from speedstudy.coverage import Note, with_note
from speedstudy.tables import write_rows

LOG = logging.getLogger(__name__)

CATEGORIES = (
    "coding",
    "humanities",
    "math",
    "qa",
    "rag",
    "reasoning",
    "stem",
    "writing",
    "multilingual",
    "summarization",
    "roleplay",
)
"""The paper's categories, in the order of its published file."""

TIERS = ("low_entropy", "mixed", "high_entropy")
"""The paper's entropy tiers of long texts."""

MAX_TURN_CHARS = 200_000
MAX_TEXT_CHARS = 5_000_000

TEXTS_PER_GROUP = 16
"""Long texts of one row group of their file: what a reader holds at a time."""

# Every masked row of NVIDIA's begins with it.
SENTINEL = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"

# A field of the templates behind it that nobody filled in ends its line in all of them. Within a
# line the same words belong to real prompts, about templates for example, as other braces do.
_UNFILLED = re.compile(
    r"\{(?:question(?:\[[\w-]+\])?|article|starter_code|role_name"
    r"|role_description_and_catchphrases)\}[ \t\r]*$",
    re.MULTILINE,
)

_BROKEN = re.compile("[\ud800-\udfff\ufffd\x00]")

CANDIDATES_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("category", pa.string()),
        ("sub_category", pa.string()),
        ("turns", pa.list_(pa.string())),
        ("source", pa.string()),
        ("src_id", pa.string()),
        ("difficulty", pa.string()),
        ("multiturn", pa.bool_()),
    ]
)

LONG_TEXTS_SCHEMA = pa.schema(
    [
        ("text_id", pa.string()),
        ("tier", pa.string()),
        ("title", pa.string()),
        ("opening", pa.string()),
        ("text", pa.string()),
        ("closing", pa.string()),
        ("source", pa.string()),
        ("licence", pa.string()),
        ("min_share", pa.float64()),
        ("max_share", pa.float64()),
        ("windows", pa.bool_()),
    ]
)


def identifier(source: str, key: str) -> str:
    """Return the id of a row: the first 32 hex digits of sha256 over source and key."""
    return hashlib.sha256(f"{source}\n{key}".encode(errors="surrogatepass")).hexdigest()[:32]


def text_hash(*parts: str) -> str:
    """Return 16 hex digits of sha256 over the parts: the key of a row that has no id."""
    whole = "\x1e".join(parts)  # the record separator: no part holds one
    return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One prompt that may be selected; the columns are those of the published data set.

    Attributes:
        question_id: 32 hex digits, see ``identifier``; ``new_candidate`` fills it in.
        category: One of ``CATEGORIES``.
        sub_category: Finer label of the source, or empty.
        turns: What the user says, turn by turn; never a known answer.
        source: Name of the source.
        src_id: The row's own key within the source.
        difficulty: ``easy``, ``medium``, ``hard`` or empty where the source does not tell.
    """

    question_id: str
    category: str
    sub_category: str
    turns: tuple[str, ...]
    source: str
    src_id: str
    difficulty: str

    @property
    def multiturn(self) -> bool:
        """Whether there is more than one turn."""
        return len(self.turns) > 1


@dataclass(frozen=True, kw_only=True)
class LongText:
    """One long text, from which prompts of a fixed length are cut.

    A prompt is opening, text and closing. Only the text is cut: at its end if there is no closing,
    else at its beginning, so that what lies nearest to the closing stays.

    Attributes:
        text_id: 32 hex digits, see ``identifier``.
        tier: One of ``TIERS``.
        title: What it is, for people: a file's path, a book and its chapter.
        text: What may be cut, at its full length.
        source: Name of the source.
        licence: Licence of this text.
        opening: What every prompt of it begins with: an instruction, a question.
        closing: What every prompt of it ends with: a question, the code to complete.
        min_share: Least length, as a share of the prompt's, at which it is padded and used.
        max_share: Greatest length, likewise, at which it is used; None for any.
        windows: Whether prompts may also begin at later lines of it (without a closing only).
    """

    text_id: str
    tier: str
    title: str
    text: str
    source: str
    licence: str
    opening: str = ""
    closing: str = ""
    min_share: float = 1.0
    max_share: float | None = None
    windows: bool = False


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A row of a source that gave nothing, and why; ``reason`` is one of a few fixed words."""

    src_id: str
    reason: str


Item = TypeVar("Item", Candidate, LongText)


def new_candidate(
    *,
    source: str,
    src_id: str,
    category: str,
    turns: Iterable[str],
    sub_category: str = "",
    difficulty: str = "",
) -> Candidate:
    """Return the candidate with its ``question_id`` derived from source and src_id."""
    return Candidate(
        question_id=identifier(source, src_id),
        category=category,
        sub_category=sub_category,
        turns=tuple(turns),
        source=source,
        src_id=src_id,
        difficulty=difficulty,
    )


def fault(item: Candidate | LongText) -> str | None:
    """Say in one word why an item must not be used, or None if it may.

    Reasons: ``no_turns``, ``not_text`` (a turn is no string), ``empty``, ``too_long``,
    ``broken_text`` (unpaired surrogates, U+FFFD or NUL: text that lost bytes on its way),
    ``placeholder`` (the sentinel of NVIDIA's masked rows, or a field of its templates at the end
    of a line).

    Raises:
        ValueError: The category or tier is none of ours: the source's configuration is wrong.
    """
    if isinstance(item, LongText):
        _check_name(item.tier, TIERS, "tier", item.source)
        if not isinstance(item.text, str):
            return "not_text"
        return _text_fault(item.opening + item.text + item.closing, MAX_TEXT_CHARS)
    _check_name(item.category, CATEGORIES, "category", item.source)
    if not item.turns:
        return "no_turns"
    faults = (_text_fault(turn, MAX_TURN_CHARS) for turn in item.turns)
    return next((found for found in faults if found), None)


def _check_name(name: str, names: Sequence[str], what: str, source: str) -> None:
    if name not in names:
        raise ValueError(f"source {source}: {what} {name!r} is none of {', '.join(names)}")


def _text_fault(text: Any, max_chars: int) -> str | None:
    if not isinstance(text, str):
        return "not_text"
    if not text.strip():
        return "empty"
    if len(text) > max_chars:
        return "too_long"
    if _BROKEN.search(text):
        return "broken_text"
    if SENTINEL in text or _UNFILLED.search(text):
        return "placeholder"
    return None


def keep_good(items: Iterable[Item | Dropped]) -> tuple[list[Item], Counter[str]]:
    """Keep what passes the guards, once each, and count the rest by reason.

    A row that a guard refuses is named in the log.

    Of items with the same content the one with the lowest id stays, so that the result does not
    depend on the order.

    Returns:
        The items sorted by id, and the number of dropped rows by reason.

    Raises:
        ValueError: Two different items have the same id.
    """
    dropped: Counter[str] = Counter()
    by_content: dict[object, Item] = {}
    contents: dict[str, object] = {}
    for item in items:
        if isinstance(item, Dropped):
            dropped[item.reason] += 1
            continue
        reason = fault(item)
        if reason:
            key = item.src_id if isinstance(item, Candidate) else item.title
            LOG.warning("source %s: row %s (%s) refused: %s", item.source, key, _id(item), reason)
            dropped[reason] += 1
            continue
        content = _content(item)
        known = contents.setdefault(_id(item), content)
        if known != content:
            raise ValueError(
                f"source {item.source}: two different rows have the id {_id(item)}; "
                "its adapter must give every row a key of its own"
            )
        twin = by_content.get(content)
        if twin is not None:
            dropped["duplicate"] += 1
        if twin is None or _id(item) < _id(twin):
            by_content[content] = item
    return sorted(by_content.values(), key=_id), dropped


def _content(item: Candidate | LongText) -> object:
    if isinstance(item, Candidate):
        return item.turns
    return item.opening, item.text, item.closing


def _id(item: Candidate | LongText) -> str:
    return item.question_id if isinstance(item, Candidate) else item.text_id


def write_candidates(
    path: Path, candidates: Iterable[Candidate], missing: Note | None = None
) -> None:
    """Write the candidates as parquet, sorted by question_id; whole or not at all.

    ``missing`` is the note of a source that could not be had.
    """
    rows = [asdict(item) | {"multiturn": item.multiturn} for item in candidates]
    rows.sort(key=lambda row: row["question_id"])
    table = pa.Table.from_pylist(rows, schema=CANDIDATES_SCHEMA)
    write_rows(path, with_note(table, missing))


def write_long_texts(path: Path, texts: Iterable[LongText], missing: Note | None = None) -> None:
    """Write the texts as parquet, sorted by text_id; whole or not at all.

    ``missing`` is the note of a source that could not be had.
    """
    ordered = sorted(texts, key=lambda text: text.text_id)
    schema = with_note(LONG_TEXTS_SCHEMA.empty_table(), missing).schema
    temporary = path.with_name(path.name + ".tmp")
    with pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, len(ordered), TEXTS_PER_GROUP):
            group = [asdict(text) for text in ordered[start : start + TEXTS_PER_GROUP]]
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
    temporary.replace(path)
