"""Character offsets through the clean-up of a text.

Each step of a clean-up is carried out on a `TracedText`, which keeps the
offsets of every character in the original. Nothing is aligned afterwards.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Sequence, Set
from typing import Literal

from albert_tf.text.character_class import CharacterClass

# The last of the code points that Unicode decomposes or puts in order, rounded
# up.
_END_OF_DECOMPOSED = 0x30000


@dataclasses.dataclass(frozen=True)
class TracedText:
    """A text with the offsets of its characters in the original.

    Attributes:
        text: the text.
        starts, ends: `[len(text)]`, the slice of the original that each
            character was made of; neither ever decreases.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def original(cls, text: str) -> "TracedText":
        """Returns a text that is its own original."""
        return cls(text, range(len(text)), range(1, len(text) + 1))

    def __getitem__(self, part: slice) -> "TracedText":
        """Returns a part of the text."""
        return TracedText(self.text[part], self.starts[part], self.ends[part])

    def source(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the slice of the original that a part was made of.

        Of an empty part it is empty, where the next character begins.
        """
        if begin < end:
            return self.starts[begin], self.ends[end - 1]
        at = self.starts[begin] if begin < len(self.text) else self.ends[-1]
        return at, at

    def with_text(self, text: str) -> "TracedText":
        """Returns `text` of equal length, with the offsets of this one."""
        return TracedText(text, self.starts, self.ends)

    def sub(
        self, pattern: re.Pattern[str], replace: Callable[[str], str]
    ) -> "TracedText":
        """Returns the text with `replace(match)` for each match.

        Every character of a replacement has the offsets of its match.
        """
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        done = 0
        for match in pattern.finditer(self.text):
            begin, end = match.span()
            new = replace(match[0])
            texts += self.text[done:begin], new
            starts += self.starts[done:begin]
            starts += [self.starts[begin]] * len(new)
            ends += self.ends[done:begin]
            ends += [self.ends[end - 1]] * len(new)
            done = end
        if not done:
            return self
        starts += self.starts[done:]
        ends += self.ends[done:]
        return TracedText("".join((*texts, self.text[done:])), starts, ends)

    def aligned(self, text: str, sources: Sequence[int]) -> "TracedText":
        """Returns `text`, whose characters begin at `sources` in this one.

        Args:
            text: what another program made of this text.
            sources: `[len(text) + 1]`, never decreasing; a character was made
                of all from its own source up to the next larger one, the last
                of which is where the text ends.
        """
        stops = list(sources[1:])
        for i in range(len(text) - 2, -1, -1):
            if stops[i] == sources[i]:
                stops[i] = stops[i + 1]
        # A mark can be put where this text ends.
        starts = [*self.starts, *self.ends[-1:]]
        return TracedText(
            text,
            [starts[source] for source in sources[:-1]],
            [self.ends[stop - 1] for stop in stops],
        )


def decomposed(
    traced: TracedText, form: Literal["NFD", "NFKD"], dropped: CharacterClass
) -> TracedText:
    """Returns the text decomposed, without the `dropped` marks.

    A character and the marks after it are one: a mark that is dropped belongs
    to the character before it.
    """
    if traced.text.isascii():
        return traced
    return traced.sub(
        _changed(form, dropped),
        lambda cluster: dropped.sub("", unicodedata.normalize(form, cluster)),
    )


@functools.cache
def cluster_marks(
    form: Literal["NFD", "NFKD"], dropped: CharacterClass
) -> frozenset[int]:
    """Returns the marks that belong to the character before them."""
    return dropped.codes | {
        code
        for code in range(_END_OF_DECOMPOSED)
        if unicodedata.combining(unicodedata.normalize(form, chr(code))[0])
    }


@functools.cache
def _changed(
    form: Literal["NFD", "NFKD"], dropped: CharacterClass
) -> re.Pattern[str]:
    """Returns the pattern of a character and its marks, where they change.

    Marks are put in order, but never past a character that is no mark. So
    clusters can be decomposed one by one.
    """
    marks = cluster_marks(form, dropped)
    composed = {
        code
        for code in set(range(_END_OF_DECOMPOSED)) - marks
        if unicodedata.normalize(form, chr(code)) != chr(code)
    }
    return re.compile(f".?{_quick_pattern(marks)}+|{_quick_pattern(composed)}")


def _quick_pattern(codes: Set[int]) -> str:
    # As in CharacterClass, ranges are compared only beyond U+FFFF.
    basic = CharacterClass(code for code in codes if code <= 0xFFFF)
    beyond = CharacterClass(codes - basic.codes)
    return f"(?:{basic.pattern}|(?=[^\0-\uffff]){beyond.pattern})"
