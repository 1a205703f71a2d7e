"""Character classes that are the same in Python, TensorFlow and Rust."""

import functools
import re
from collections.abc import Iterable

_LAST_OF_BASIC_PLANE = 0xFFFF
_BEYOND_BASIC_PLANE = re.compile("[^\0-\uffff]")


class CharacterClass:
    """A set of characters.

    Args:
        codes: their code points.

    Attributes:
        codes: frozenset of the code points.
        pattern: a regular expression for one of them, for Python's `re`, RE2
            and Oniguruma.
    """

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)
        basic = {c for c in self.codes if c <= _LAST_OF_BASIC_PLANE}
        self.pattern = _pattern(self.codes)
        # Python looks up characters to U+FFFF in a table, but compares those
        # beyond with range after range, for every character of a text.
        self._basic = re.compile(_pattern(basic)) if basic else None
        self._beyond = None
        if len(basic) < len(self.codes):
            self._beyond = re.compile(_pattern(self.codes - basic))

    @functools.cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.pattern)

    @classmethod
    def parse(cls, ranges: str) -> "CharacterClass":
        """Returns the class of hexadecimal ranges, such as "41-5A 5F"."""
        codes: set[int] = set()
        for part in ranges.split():
            first, _, last = part.partition("-")
            codes.update(range(int(first, 16), int(last or first, 16) + 1))
        return cls(codes)

    def __contains__(self, character: str) -> bool:
        return ord(character) in self.codes

    def sub(self, replacement: str, text: str) -> str:
        """Returns `re.sub(self.pattern, replacement, text)`, but faster."""
        if self._basic:
            text = self._basic.sub(replacement, text)
        if self._beyond and _BEYOND_BASIC_PLANE.search(text):
            text = self._beyond.sub(replacement, text)
        return text


def _pattern(codes: Iterable[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return f"[{''.join(f'{_escape(a)}-{_escape(b)}' for a, b in ranges)}]"


def _escape(code: int) -> str:
    # Unescaped, NUL ends a pattern in some engines, and a bracket a class.
    return chr(code) if code > 0x7F else f"\\x{code:02x}"
