"""Words with tags: files of one word a line, and scores of entities."""

import re
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.tables import read_lines

# Number, text and columns.
_Line = tuple[int, str, list[str]]

_ADVICE = (
    "a file of tagged words has a word in each line, its columns between "
    "blanks or tabs, and an empty line after each sentence."
)
_DOCUMENT = "-DOCSTART-"


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
