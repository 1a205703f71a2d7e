"""Texts with entities by character offsets: JSON lines."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from albert_tf.config import listed, require, shown
from albert_tf.tasks.bad_rows import RowError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.columns import check_columns
from albert_tf.tasks.formats.json_values import shown_json
from albert_tf.tasks.formats.record import Record, Roles, check_characters
from albert_tf.tasks.formats.rows import Rows
from albert_tf.text.words import Span, finer_words

TEXT_COLUMN = "text"
# Names of the list of entities, here, in spaCy and in doccano.
ENTITY_COLUMNS = ("entities", "spans", "labels", "label")
TAGS_ADVICE = (
    "Tagged words are read with --task=custom: --columns=word=0,tag=-1 for a "
    "word in each line (CoNLL), --columns=words=tokens,tags=ner_tags for "
    "columns with lists of them."
)
# The keys of an entity, and those of doccano and Label Studio.
_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels"))
# Other programs count to the last character.
_OF_LAST = " (an end is the offset after the last character)"


class _Entity(NamedTuple):
    """An entity: characters of the text, and its type."""

    start: int
    end: int
    label: str


def infer_entity_columns(rows: Rows) -> Roles:
    """Returns the columns of a file: `text`, and one of ENTITY_COLUMNS."""
    names = [name for name in ENTITY_COLUMNS if name in rows.columns]
    require(
        TEXT_COLUMN in rows.columns and bool(names),
        f"{rows.head}: expected {TEXT_COLUMN!r} and one of "
        f"{', '.join(ENTITY_COLUMNS)}, got {listed(rows.columns, 12)}; name "
        "the columns with --task=custom --columns=text=...,entities=.... "
        f"{TAGS_ADVICE}",
    )
    return {"text": [TEXT_COLUMN], "entities": names[:1]}


def entity_examples(
    rows: Rows, roles: Roles, labelled: bool
) -> list[WordsExample]:
    """Returns the words of each text, tagged B-, I- and O.

    `roles` are the columns `text` and `entities`, which `labelled` requires.
    Offsets count Python's characters. Raises UserError for columns that are
    missing, and for bad rows (`Rows.settled`): entities that overlap, are not
    in the text, or begin or end within a word.
    """
    (text,), (entities,) = roles["text"], roles["entities"]
    tagged = check_columns(rows, roles, [entities], labelled)

    def example(record: Record) -> WordsExample:
        content = record.text(text)
        spans = finer_words(content)
        if not spans:
            raise RowError(record.location, "the text has no words")
        tags = None
        if tagged:
            tags = _tags(record, content, spans, record.values[entities])
        words = tuple(content[start:end] for start, end in spans)
        return WordsExample(words, tags, record.location, content, tuple(spans))

    return rows.settled(rows.apply(example))


def _tags(
    record: Record, text: str, spans: Sequence[Span], values: Any
) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise RowError(
            record.location,
            "expected a list of entities",
            f", got {shown_json(values)}",
        )
    starts = {start: number for number, (start, _) in enumerate(spans)}
    ends = {end: number for number, (_, end) in enumerate(spans)}
    tags = ["O"] * len(spans)
    seen = set()
    for value in values:
        entity = _entity(record, text, value)
        # Some programs list one twice.
        if entity in seen:
            continue
        seen.add(entity)
        start, end, label = entity
        shown_text = shown(text[start:end])
        if start not in starts or end not in ends:
            is_last = start in starts and end + 1 in ends
            whole = [text[a:b] for a, b in spans if a < end and start < b]
            hint = (
                _OF_LAST if is_last else _invisible(whole) or _hint(text[:end])
            )
            raise RowError(
                record.location,
                "expected entities that begin and end with words or "
                "punctuation",
                f", got {_shown(value)}, {shown_text}{hint}",
            )
        words = range(starts[start], ends[end] + 1)
        if any(tags[word] != "O" for word in words):
            raise RowError(
                record.location,
                "expected entities that do not overlap",
                f", got {_shown(value)}, {shown_text}",
            )
        for word in words:
            tags[word] = f"{'B' if word == words[0] else 'I'}-{label}"
    return tuple(tags)


def _entity(record: Record, text: str, value: Any) -> _Entity:
    """Returns an entity without the white space at its ends."""
    parts = value
    if isinstance(value, dict):
        parts = [
            next((value[key] for key in keys if key in value), None)
            for keys in _KEYS
        ]
        if isinstance(parts[2], list) and len(parts[2]) == 1:
            parts[2] = parts[2][0]
    # The numbers of JSON are read as texts.
    if (
        not isinstance(parts, list)
        or len(parts) != len(_KEYS)
        or not all(isinstance(part, str) for part in parts)
        or not all(part.isdecimal() for part in parts[:2])
        or not parts[2].strip()
    ):
        raise RowError(
            record.location,
            "expected entities with start, end and label",
            f", got {_shown(value)}",
        )
    check_characters(parts[2:], record.location)
    start, end = map(int, parts[:2])
    inner = text[start:end]
    if not inner.strip() or end > len(text):
        raise RowError(
            record.location,
            "expected entities within the text",
            f", got {_shown(value)} in {len(text)} characters"
            f"{_OF_LAST if start == end else _hint(text)}",
        )
    given = value.get("text", inner) if isinstance(value, dict) else inner
    if given != inner:
        raise RowError(
            record.location,
            "expected the text of an entity at its offsets, which count "
            "characters",
            f", got {shown(inner)} in place of {shown(given)}"
            f"{_hint(text[:end])}",
        )
    start += len(inner) - len(inner.lstrip())
    return _Entity(start, start + len(inner.strip()), parts[2].strip())


def _invisible(words: Sequence[str]) -> str:
    """Returns a hint on the first word with an invisible character, or ""."""
    for word in words:
        if not word.isprintable():
            return f" (the word is {shown(word)}, with an invisible character)"
    return ""


def _hint(text: str) -> str:
    """Returns why offsets behind a text may be those of JavaScript, or ""."""
    if all(ord(character) < 0x10000 for character in text):
        return ""
    return " (an emoji is one character here, two in JavaScript)"


def _shown(value: Any) -> str:
    """Returns an entity for a message, its numbers as they are in the file."""
    if isinstance(value, dict):
        return shown_json({k: _number(v) for k, v in value.items()})
    return shown_json(
        [*map(_number, value)] if isinstance(value, list) else value
    )


def _number(value: Any) -> Any:
    is_whole = isinstance(value, str) and value.removeprefix("-").isdecimal()
    return int(value) if is_whole else value
