"""Words with tags: files of one word a line, and scores of entities."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from albert_tf.config import UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.tables import read_lines

Tags = Sequence[Sequence[str]]
# Number, text and columns.
_Line = tuple[int, str, list[str]]

_ADVICE = (
    "a file of tagged words has a word in each line, its columns between "
    "blanks or tabs, and an empty line after each sentence."
)
_DOCUMENT = "-DOCSTART-"
_OUTSIDE = "O"
_ENTITY = re.compile("([BIES])-(.+)")


def read_conll(
    path: str,
    word_column: int = 0,
    tag_column: int = -1,
    *,
    tagged: bool = True,
) -> list[WordsExample]:
    """Returns the sentences of a file, without its `-DOCSTART-` lines.

    Args:
        path: of the file.
        word_column: from 0; from -1 backwards: from the last.
        tag_column: likewise.
        tagged: whether the file must have tags; else they are read where its
            first line has both columns.

    Raises:
        UserError: naming file and line, for a file that is missing, empty, not
            UTF-8 or without a word, and a line with too few columns.
    """
    lines = list(_lines(path))
    columns = [word_column, tag_column]
    # From the front and from the back: they must not meet.
    needed = max(max(columns) + 1, 0) + max(-min(columns), 0)
    if not tagged and _width(lines) < needed:
        columns = [word_column]
        needed = max(word_column + 1, -word_column)
    examples = []
    sentence: list[tuple[str, ...]] = []
    first = 0

    def end() -> None:
        if sentence:
            words, *tags = zip(*sentence, strict=True)
            place = f"{path}, line {first}"
            examples.append(
                WordsExample(words, tags[0] if tags else None, place)
            )
            sentence.clear()

    for number, line, fields in lines:
        if not _has_word(fields):
            end()
            continue
        if len(fields) < needed:
            raise UserError(
                f"{path}, line {number}: {len(fields)} columns, where at least "
                f"{needed} are needed: {line[:60]!r}; {_ADVICE}"
            )
        if not sentence:
            first = number
        sentence.append(tuple(fields[column] for column in columns))
    end()
    if not examples:
        raise UserError(f"{path} has no words; {_ADVICE}")
    return examples


def count_columns(path: str) -> int:
    """Returns how many columns the first line with a word has; 0 without one.

    Raises:
        UserError: for a file that is missing, empty or not UTF-8.
    """
    return _width(_lines(path))


def _lines(path: str) -> Iterator[_Line]:
    """Yields the lines of a file."""
    for number, line in read_lines(path, _ADVICE):
        # Blanks and tabs alone: words may hold a no-break space.
        yield number, line, re.findall(r"[^ \t]+", line)


def _width(lines: Iterable[_Line]) -> int:
    widths = (len(fields) for _, _, fields in lines if _has_word(fields))
    return next(widths, 0)


def _has_word(fields: Sequence[str]) -> bool:
    return bool(fields) and not fields[0].startswith(_DOCUMENT)


def entity_scores(gold: Tags, predicted: Tags) -> dict[str, float]:
    """Returns how well entities are found, as CoNLL-2003's script counts.

    An entity is right when its type and both its ends are. Tags are IOB1,
    IOB2 or BIOES, also mixed: `I-X` after `O` or another type begins an
    entity, and so does `B-X` everywhere.

    Args:
        gold: the tags of each sentence.
        predicted: as many.

    Returns:
        `precision`, `recall` and `f1` of all entities, from 0 to 1, 0 where
        there is nothing to divide by; and `accuracy`, the share of right tags.
        The latter alone where tags are not of entities, such as parts of
        speech: then none has a prefix.

    Raises:
        UserError: for a tag without a prefix among others with one.
    """
    pairs = [
        pair
        for sentences in zip(gold, predicted, strict=True)
        for pair in zip(*sentences, strict=True)
    ]
    accuracy = {"accuracy": sum(a == b for a, b in pairs) / len(pairs)}
    if not are_of_entities({tag for pair in pairs for tag in pair}):
        return accuracy
    true, found = _entities(gold), _entities(predicted)
    scores = _scores(len(true & found), len(true), len(found))
    return scores | accuracy


def entity_table(gold: Tags, predicted: Tags) -> dict[str, dict[str, float]]:
    """Returns `precision`, `recall`, `f1` and `support` of each type.

    Args:
        gold: the tags of each sentence.
        predicted: as many.

    Returns:
        By type, sorted; `support` is how many entities are there.
    """
    true, found = _entities(gold), _entities(predicted)
    right = _by_type(true & found)
    trues, founds = _by_type(true), _by_type(found)
    return {
        kind: _scores(right[kind], trues[kind], founds[kind])
        | {"support": trues[kind]}
        for kind in sorted(trues | founds)
    }


def are_of_entities(tags: set[str]) -> bool:
    """Returns whether tags are of entities: B-, I- and the like, and O.

    Raises:
        UserError: when some are and some are not.
    """
    others = {tag for tag in tags - {_OUTSIDE} if not _ENTITY.fullmatch(tag)}
    if not others:
        return True
    if others == tags - {_OUTSIDE}:
        return False
    raise UserError(
        f"the tag {min(others)[:60]!r} is neither O nor begins with B-, I-, E- "
        "or S-, as other tags do; write all entities as IOB1, IOB2 or BIOES."
    )


def _entities(sentences: Tags) -> set[tuple[int, int, int, str]]:
    """Returns sentence, first word, word after the last, and type of each."""
    return {
        (number, start, end, kind)
        for number, tags in enumerate(sentences)
        for start, end, kind in _spans(tags)
    }


def _spans(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    start, open_kind, may_go_on = 0, "", False
    for position, tag in enumerate((*tags, _OUTSIDE)):
        match = _ENTITY.fullmatch(tag)
        prefix, kind = match.groups() if match else ("", "")
        if may_go_on and prefix in ("I", "E") and kind == open_kind:
            may_go_on = prefix == "I"
            continue
        if open_kind:
            yield start, position, open_kind
        start, open_kind = position, kind
        may_go_on = prefix in ("B", "I")


def _by_type(entities: set[tuple[int, int, int, str]]) -> Mapping[str, int]:
    return Counter(kind for *_, kind in entities)


def _scores(right: int, true: int, found: int) -> dict[str, float]:
    return {
        "precision": right / found if found else 0.0,
        "recall": right / true if true else 0.0,
        "f1": 2 * right / (true + found) if true + found else 0.0,
    }
