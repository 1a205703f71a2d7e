"""CoNLL's format: a word with its tag in each line."""

import collections
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import Log, require, shown
from albert_tf.tasks.bad_rows import BadRows, RowError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.tables import read_lines

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

    Nor are lines read that begin with # and stand before the words of a
    sentence, with another number of columns or a = that these have not.
    Of CoNLL-U, recognised by its first line of a word, neither comments nor
    multiword tokens and empty nodes are read, and the first column, which
    numbers the words, stands for the second.

    Columns are numbered from 0, or from -1 backwards. `tagged` requires tags;
    else they are read where the first line has both columns. Raises UserError
    for a file without words, and, unless sentences with such a line are
    skipped and counted, a line with too few columns, or, where these are
    numbered backwards, fewer than most lines of its sentence.
    """
    lines = list(_lines(path))
    columns = [word_column, tag_column]
    # Columns from the front and from the back must not meet.
    needed = max(max(columns) + 1, 0) + max(-min(columns), 0)
    if not tagged and _width(lines) < needed:
        columns = [word_column]
        needed = max(word_column + 1, -word_column)
    groups = itertools.groupby(lines, key=lambda line: _has_word(line[1]))
    sentences = [list(group) for has_words, group in groups if has_words]
    require(bool(sentences), f"{path} has no words; {_ADVICE}")

    def example(sentence: list[tuple[str, list[str]]]) -> WordsExample:
        # A line may have more: a word of several parts.
        usual = _usual_width(sentence) if min(columns) < 0 else 0
        for location, fields in sentence:
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
            *([fields[column] for column in columns] for _, fields in sentence),
            strict=True,
        )
        first, _ = sentence[0]
        return WordsExample(words, tags[0] if tags else None, first)

    bad = BadRows("sentences")
    examples = bad.apply(example, sentences)
    bad.settle(len(examples), skip_bad_rows, log)
    return examples


def count_columns(path: str) -> int:
    """Returns the columns of the first line with a word; 0 without one."""
    return _width(_lines(path))


def _lines(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the location and the fields of each line but comments."""
    groups = itertools.groupby(_fields(path), key=lambda line: bool(line[1]))
    for has_fields, group in groups:
        lines = list(group)
        *_, (_, of_word) = lines
        is_comment = functools.partial(_is_comment, of_word=of_word)
        yield from (
            itertools.dropwhile(is_comment, lines) if has_fields else lines
        )


def _is_comment(line: tuple[str, list[str]], of_word: Sequence[str]) -> bool:
    """Returns whether a line is a comment, unlike that of a word."""
    _, fields = line
    return fields[0] == "#" and (
        len(fields) != len(of_word)
        or ("=" in "".join(fields) and "=" not in "".join(of_word))
    )


def _fields(path: str) -> Iterator[tuple[str, list[str]]]:
    lines = list(read_lines(path, _ADVICE))
    of_words = (line for _, line in lines if line and line[0] != "#")
    is_conllu = bool(_CONLLU_LINE.fullmatch(next(of_words, "")))
    for location, line in lines:
        # Blanks and tabs alone: words may hold a no-break space.
        fields = re.findall(r"[^ \t]+", line)
        if is_conllu and fields:
            numbered = _CONLLU_LINE.fullmatch(line)
            if line.startswith("#") or (numbered and numbered[1]):
                continue
            # Here a word may hold a blank.
            fields = line.split("\t")
            # Who asks for the first column, by default, means the words.
            fields[0] = fields[min(1, len(fields) - 1)]
        yield location, fields


def _width(lines: Iterable[tuple[str, list[str]]]) -> int:
    return next((len(f) for _, f in lines if _has_word(f)), 0)


def _usual_width(sentence: Iterable[tuple[str, list[str]]]) -> int:
    """Returns the most frequent number of columns, the least of several."""
    counts = collections.Counter(len(fields) for _, fields in sentence)
    return min(counts, key=lambda width: (-counts[width], width))


def _has_word(fields: Sequence[str]) -> bool:
    return bool(fields) and not fields[0].startswith("-DOCSTART-")
