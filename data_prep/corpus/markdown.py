"""Strips the marks of Markdown: `clean_markdown_lines`.

Line by line, so that a file of any size can pass.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator

# A comment or fenced code of more characters stays as text: its opening was no
# mark, or its end was forgotten.
MAX_SPAN_CHARS = 200_000

_COMMENT_OPENS, _COMMENT_CLOSES = "<!--", "-->"
# By their characters, the lines that open and close fenced code.
_FENCES = {
    "```": (re.compile(r" {0,3}```[^`]*$"), re.compile(r" {0,3}```[ \t]*$")),
    "~~~": (re.compile(r" {0,3}~~~"), re.compile(r" {0,3}~~~+[ \t]*$")),
}

_BLANKS = " \t"
# Rules, underlines of headings and tables are of these alone, and of at
# least three of the second.
_RULE_CHARACTERS = "-*_=|: \t"
_RULE_MARKS = "-*_="
# The first characters of lines with line marks.
_LINE_MARKS = frozenset("#>*+-_=|:")

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
_QUOTATION = re.compile(r"^[ \t]*(?:>[ \t]?)+")
_LIST_ITEM = re.compile(r"^[ \t]*[*+-][ \t]+")

# Inline marks: a character that every match holds, the pattern, the
# replacement.
_INLINE: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (character, re.compile(pattern), replacement)
    for character, pattern, replacement in (
        # Images and links keep their text; definitions have none.
        ("[", r"^ {0,3}\[[^\]]+\]:[ \t]+\S.*$", ""),
        ("[", r"!?\[([^\[\]]*)\]\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)", r"\1"),
        ("[", r"!?\[([^\[\]]+)\]\[[^\[\]]*\]", r"\1"),
        # Emphasis: runs of marks that touch a word on one side only; within
        # a word _ is a letter. The first mark stands before the look at what
        # precedes it: `re` finds what begins with a character fast.
        (
            "_",
            r"_(?:(?<![\\\w_]_)_*(?=[^\s_])|(?<=[^\s\\_]_)_*(?![\w_]))",
            "",
        ),
        ("*", r"\*(?:(?<![\\*]\*)\**(?=[^\s*])|(?<=[^\s\\*]\*)\**)", ""),
        # Escaped marks are marks.
        ("\\", r"\\([\\`*_{}\[\]()#+.!>-])", r"\1"),
    )
)


# In CommonMark a star before "-" in a word closes emphasis alone, and one
# between spaces is no mark.
_UNPAIRED_STARS = re.compile(r"(?<=\w)\*+(?=-\w)|(?<!\S)\*+(?!\S)")
_ONE_IN_A_WORD = re.compile(r"[^*]*\w\*+\w[^*]*|[^*]*")


def clean_markdown_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yields Markdown `lines` without their marks; the words stay.

    Comments and fenced code go whole, they are no prose; those that are not
    closed within MAX_SPAN_CHARS stay. So do the marks of tables, inline code
    and HTML tags, but not what is emphasis elsewhere. A heading stands between
    two lines that are empty.
    """
    lines = _without_comments(lines)
    for characters in _FENCES:
        lines = _without_fenced_code(lines, characters)
    for line in lines:
        if line.lstrip(_BLANKS)[:1] not in _LINE_MARKS:
            yield _without_inline_marks(line)
        elif heading := _HEADING.match(line):
            title = line[heading.end() :].rstrip(_BLANKS)
            title = title.rstrip("#").rstrip(_BLANKS)
            yield ""
            yield _without_inline_marks(_without_item_marks(title))
            yield ""
        elif (
            not line.strip(_RULE_CHARACTERS)
            and sum(map(line.count, _RULE_MARKS)) >= 3
        ):
            yield ""
        else:
            yield _without_inline_marks(_without_item_marks(line))


def _without_item_marks(line: str) -> str:
    """Returns `line` without the marks of quotations and list items."""
    return _LIST_ITEM.sub("", _QUOTATION.sub("", line))


def _without_inline_marks(line: str) -> str:
    for character, pattern, replacement in _INLINE:
        if character in line and not (
            character == "*" and _has_literal_stars(line)
        ):
            line = pattern.sub(replacement, line)
    return line


def _has_literal_stars(line: str) -> bool:
    """Returns whether stars in words have no counterpart in the line.

    As in C*-algebra or 2*3. At a word's edge emphasis may begin in another
    line, or end.
    """
    return bool(_ONE_IN_A_WORD.fullmatch(_UNPAIRED_STARS.sub("", line)))


class _LookAhead:
    """Lines, with a search for one that is still to come.

    A line is searched once, however many openings there are before it.
    """

    def __init__(
        self, lines: Iterable[str], closes: Callable[[str], object]
    ) -> None:
        self._lines = iter(lines)
        self._closes = closes
        # Lines to come that do not close, and their size.
        self._waiting: deque[str] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            if self._waiting:
                line = self._waiting.popleft()
                self._size -= len(line) + 1
            elif (line := next(self._lines, None)) is None:
                return
            yield line

    def skip_to_close(self) -> str | None:
        """Returns the next line that closes; those before it are dropped.

        Without one within MAX_SPAN_CHARS nothing is dropped: None.
        """
        while self._size <= MAX_SPAN_CHARS:
            line = next(self._lines, None)
            if line is None:
                return None
            if self._closes(line):
                self._waiting.clear()
                self._size = 0
                return line
            self._waiting.append(line)
            self._size += len(line) + 1
        return None


def _without_comments(lines: Iterable[str]) -> Iterator[str]:
    ahead = _LookAhead(lines, lambda line: _COMMENT_CLOSES in line)
    for line in ahead:
        begin = line.find(_COMMENT_OPENS)
        while begin >= 0:
            rest = line[begin + len(_COMMENT_OPENS) :]
            if _COMMENT_CLOSES not in rest:
                rest = ahead.skip_to_close()
                if rest is None:
                    break
            line = line[:begin] + rest.partition(_COMMENT_CLOSES)[2]
            begin = line.find(_COMMENT_OPENS, begin)
        yield line


def _without_fenced_code(
    lines: Iterable[str], characters: str
) -> Iterator[str]:
    opening, closing = _FENCES[characters]
    ahead = _LookAhead(lines, closing.match)
    for line in ahead:
        opens = characters in line and opening.match(line)
        yield "" if opens and ahead.skip_to_close() is not None else line
