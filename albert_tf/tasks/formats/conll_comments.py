"""Comments in files of tagged words, which lines of words may look like."""

import collections
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from albert_tf.config import Log, shown

_SIGN = "#"
_ENTITY_TAG = re.compile(r"O|[BIES]-.+")


class Line(NamedTuple):
    """A line: its file and number, its fields and its text."""

    location: str
    fields: Sequence[str]
    text: str

    @property
    def has_word(self) -> bool:
        """Whether the line is neither empty nor begins a document."""
        first = self.fields[0] if self.fields else ""
        return bool(first) and not first.startswith("-DOCSTART-")

    @property
    def has_sign(self) -> bool:
        """Whether the line begins like a comment."""
        return self.text.lstrip(" \t").startswith(_SIGN)


def have_tabs(lines: Iterable[Line]) -> bool:
    """Returns whether all lines with words, one at least, have tabs within."""
    plain = [ln for ln in lines if ln.has_word and not ln.has_sign]
    return bool(plain) and all("\t" in ln.text.strip() for ln in plain)


def without_comments(
    lines: Sequence[Line], word_column: int, tag_column: int, log: Log
) -> list[Line]:
    """Returns the lines but for comments, the empty ones too.

    Comments begin with # and stand before the words of a sentence, or by
    themselves. A word may be # too; what a line is, its columns decide, beside
    those of lines that begin otherwise or follow such a line (`_Words`). Where
    the tag alone decides, and is none of entities, a line is logged.
    """
    words = _Words(lines, word_column, tag_column)
    found: list[Line] = []
    for has_words, group in itertools.groupby(lines, lambda ln: ln.has_word):
        block = [ln for ln in group if not words.is_untabbed(ln)]
        found += words.kept(block) if has_words else block
    words.write(log)
    return found


class _Words:
    """What the words of a file have in common, of lines that are sure."""

    def __init__(
        self, lines: Sequence[Line], word_column: int, tag_column: int
    ) -> None:
        self._word, self._tag = word_column, tag_column
        self._has_tabs = have_tabs(lines)
        sure = [*_sure(ln for ln in lines if not self.is_untabbed(ln))]
        self._width = usual_width(sure) if sure else 0
        self._firsts = {ln.fields[0] for ln in sure}
        self._tags = {*map(self._tag_of, sure)} - {""}
        self._of_entities = bool(self._tags) and all(
            _ENTITY_TAG.fullmatch(tag) for tag in self._tags
        )
        self._have_equals = any("=" in self._others(ln) for ln in sure)
        # Lines that the tag alone decides, comments and words.
        self._unsure: dict[bool, list[Line]] = {True: [], False: []}

    def is_untabbed(self, line: Line) -> bool:
        """Returns whether a line has no tab, as all with words have."""
        return self._has_tabs and line.has_sign and "\t" not in line.text

    def kept(self, block: Sequence[Line]) -> Sequence[Line]:
        """Returns the lines of a block without the comments before it."""
        head = [*itertools.takewhile(lambda ln: ln.has_sign, block)]
        words = block[len(head) :]
        width = usual_width(words) if words else self._width
        # Lines up to the last comment are no words.
        for number in range(len(head), 0, -1):
            if self._is_comment(head[number - 1], width):
                return block[number:]
        return block

    def write(self, log: Log) -> None:
        """Logs what was decided by the tag alone."""
        for is_comment, lines in self._unsure.items():
            if not lines:
                continue
            line = lines[0]
            tag = self._tag_of(line)
            is_known = tag in self._tags
            reason = "since" if is_known != is_comment else "though"
            others = f"; such lines: {len(lines)}" if lines[1:] else ""
            log(
                f"{line.location}: {shown(' '.join(line.fields))} is read as a "
                f"{'comment' if is_comment else 'word'}, {reason} "
                f"{'another' if is_known else 'no other'} word has the tag "
                f"{shown(tag)}{others}. "
                + (
                    "A tab behind the # makes it a word."
                    if is_comment
                    else "If it is a comment, remove it."
                )
            )

    def _is_comment(self, line: Line, width: int) -> bool:
        fields = line.fields
        # A word may begin with #, as hashtags do.
        is_alone, is_wide = fields[0] == _SIGN, len(fields) == width
        if is_alone and not is_wide:
            return True
        if len(fields) == 1:
            return not is_wide
        if self._word % len(fields) and fields[0] not in self._firsts:
            return True
        if "=" in self._others(line) and not self._have_equals:
            return True
        tag = self._tag_of(line)
        if tag in self._tags or _ENTITY_TAG.fullmatch(tag):
            if is_alone and not _ENTITY_TAG.fullmatch(tag):
                self._unsure[False].append(line)
            return False
        if self._of_entities or not is_wide:
            return True
        if line.text.startswith("#\t"):
            return False
        self._unsure[is_alone].append(line)
        return is_alone

    def _others(self, line: Line) -> str:
        """Returns the columns of a line without that of the word."""
        fields = [*line.fields]
        if -len(fields) <= self._word < len(fields):
            del fields[self._word]
        return " ".join(fields)

    def _tag_of(self, line: Line) -> str:
        """Returns the tag, or the last column but the word's; "": neither."""
        width = len(line.fields)
        for column in (self._tag, -1, -2):
            is_there = -width <= column < width
            if is_there and column % width != self._word % width:
                return line.fields[column]
        return ""


def _sure(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields the lines of words that no comment can be."""
    for has_words, group in itertools.groupby(lines, lambda ln: ln.has_word):
        if has_words:
            yield from itertools.dropwhile(lambda ln: ln.has_sign, group)


def usual_width(lines: Iterable[Line]) -> int:
    """Returns the most frequent number of columns, the least of several."""
    counts = collections.Counter(len(line.fields) for line in lines)
    return min(counts, key=lambda width: (-counts[width], width))
