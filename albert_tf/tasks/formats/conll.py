"""CoNLL's format: a word with its tag in each line."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import Log, require, shown
from albert_tf.tasks.bad_rows import BadRows, RowError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.conll_comments import (
    Line,
    have_tabs,
    usual_width,
    without_comments,
)
from albert_tf.tasks.formats.tables import read_lines

# Blanks and tabs alone: words may hold a no-break space, and those between tabs
# a blank.
_FIELD = re.compile(r"[^ \t]+")
_TABBED_FIELD = re.compile(r"[^ \t](?:[^\t]*[^ \t])?")
_ADVICE = (
    "a file of tagged words has a word in each line, its columns between "
    "blanks or tabs, and an empty line after each sentence."
)
# Names of such files end so.
CONLL, CONLLU = ".conll", ".conllu"
# A line of CoNLL-U: ten columns between tabs, the first the number of a word.
# One that stands for several words, or that the text leaves out, has another
# number, as 3-4 and 3.1, and is none of those that are tagged.
_CONLLU_LINE = re.compile(r"[0-9]+([-.][0-9]+)?(?:\t[^\t]+){9}")


def read_conll(
    path: str,
    word_column: int = 0,
    tag_column: int = -1,
    *,
    tagged: bool = True,
    skip_bad_rows: bool = False,
    log: Log = print,
) -> list[WordsExample]:
    """Returns the sentences of a file, without its `-DOCSTART-` lines.

    Nor are comments read (`without_comments`); `log` takes a line on those
    that may be words. Of CoNLL-U, recognised by its first line of a word, no
    multiword tokens and empty nodes are read, and the first column, which
    numbers the words, stands for the second.

    Columns are numbered from 0, or from -1 backwards. `tagged` requires tags;
    else they are read where the first line has both columns. Raises UserError
    for a file without words, and, unless sentences with such a line are
    skipped and counted, a line with too few columns, or, where these are
    numbered backwards, fewer than most lines of its sentence.
    """
    lines = list(_fields(path))
    columns = [word_column, tag_column]
    if not tagged and len(_first(lines)) < _fewest(columns):
        columns = [word_column]
    sentences = _sentences(path, lines, word_column, tag_column, log)
    bad = BadRows("sentences")
    examples = bad.apply(lambda lines: _example(lines, columns), sentences)
    bad.settle(len(examples), skip_bad_rows, log)
    return examples


def read_untagged(
    path: str, word_column: int, log: Log
) -> Iterator[tuple[str, WordsExample | RowError]]:
    """Yields the lines of each sentence of a file, as a text, and its words.

    As `read_conll`, but no tags are read, and a bad sentence has its error in
    place of words. Of a file of words alone these are read, whatever their
    column is elsewhere. Raises UserError for a file without words.
    """
    lines = list(_fields(path))
    sentences = _sentences(path, lines, word_column, -1, log)
    if all(len(ln.fields) == 1 for sentence in sentences for ln in sentence):
        word_column = 0
    for sentence in sentences:
        found: WordsExample | RowError
        try:
            found = _example(sentence, [word_column])
        except RowError as error:
            found = error
        yield "\n".join(line.text for line in sentence), found


def _sentences(
    path: str,
    lines: Sequence[Line],
    word_column: int,
    tag_column: int,
    log: Log,
) -> list[list[Line]]:
    """Returns the lines of each sentence; raises UserError without one."""
    lines = without_comments(lines, word_column, tag_column, log)
    groups = itertools.groupby(lines, key=lambda line: line.has_word)
    sentences = [list(group) for has_words, group in groups if has_words]
    require(bool(sentences), f"{path} has no words; {_ADVICE}")
    return sentences


def _fewest(columns: Sequence[int]) -> int:
    """Returns the fewest columns of a line that has those of these numbers."""
    # Columns from the front and from the back must not meet.
    return max(max(columns) + 1, 0) + max(-min(columns), 0)


def _example(sentence: Sequence[Line], columns: Sequence[int]) -> WordsExample:
    """Returns the words of a sentence, and its tags if a column has them."""
    needed = _fewest(columns)
    # A line may have more: a word of several parts.
    usual = usual_width(sentence) if min(columns) < 0 else 0
    for location, fields, _ in sentence:
        if len(fields) < needed:
            raise RowError(
                location,
                f"expected at least {needed} columns",
                f", got {len(fields)}: {shown(' '.join(fields))}",
            )
        # Counted from the end, another column would be read.
        if len(fields) < usual:
            raise RowError(
                location,
                f"expected {usual} columns, as most lines of the sentence",
                f", got {len(fields)}: {shown(' '.join(fields))}",
            )
    words, *tags = zip(
        *([line.fields[column] for column in columns] for line in sentence),
        strict=True,
    )
    location = sentence[0].location
    return WordsExample(words, tags[0] if tags else None, location)


def first_columns(path: str) -> list[str]:
    """Returns the columns of the first line with a word; none without one."""
    return _first(_fields(path))


def is_conllu(path: str) -> bool:
    """Returns whether the first line with a word is one of CoNLL-U."""
    return _is_conllu(line for _, line in read_lines(path, _ADVICE))


def _is_conllu(lines: Iterable[str]) -> bool:
    of_words = (line for line in lines if line and line[0] != "#")
    return bool(_CONLLU_LINE.fullmatch(next(of_words, "")))


def _fields(path: str) -> Iterator[Line]:
    lines = [
        Line(location, _FIELD.findall(line), line)
        for location, line in read_lines(path, _ADVICE)
    ]
    of_conllu = _is_conllu(line.text for line in lines)
    are_tabbed = have_tabs(lines)
    for location, fields, line in lines:
        if are_tabbed:
            fields = _TABBED_FIELD.findall(line)
        if of_conllu and fields:
            numbered = _CONLLU_LINE.fullmatch(line)
            if line.startswith("#") or (numbered and numbered[1]):
                continue
            # Here a word may hold a blank.
            fields = line.split("\t")
            # Who asks for the first column, by default, means the words.
            fields[0] = fields[min(1, len(fields) - 1)]
        yield Line(location, fields, line)


def _first(lines: Iterable[Line]) -> list[str]:
    words = (ln.fields for ln in lines if ln.has_word and not ln.has_sign)
    return list(next(words, ()))
