"""Character classes that are the same in Python, TensorFlow and Rust."""

import functools
import re
from collections.abc import Iterable

_LAST_OF_BASIC_PLANE = 0xFFFF
_BEYOND_BASIC_PLANE = re.compile("[^\0-\uffff]")


class CharacterClass:
    """A set of characters, by their code points."""

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)

    # Made on first use: every program imports classes that few programs need.
    @functools.cached_property
    def pattern(self) -> str:
        """A regular expression for one of them, for `re`, RE2, Oniguruma."""
        return _pattern(self.codes)

    # Python looks up characters to U+FFFF in a table, but compares those
    # beyond with range after range, for every character of a text.
    @functools.cached_property
    def _planes(self) -> list[re.Pattern[str] | None]:
        basic = {c for c in self.codes if c <= _LAST_OF_BASIC_PLANE}
        return [
            re.compile(_pattern(codes)) if codes else None
            for codes in (basic, self.codes - basic)
        ]

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
        basic, beyond = self._planes
        if basic:
            text = basic.sub(replacement, text)
        if beyond and _BEYOND_BASIC_PLANE.search(text):
            text = beyond.sub(replacement, text)
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
