"""Character offsets through the clean-up of a text.

A text falls into parts that can be cleaned up one by one, such as a character
with its marks. Every character of the clean text has the offsets of the part
that it was made of.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable
from typing import Literal

from albert_tf.text.character_class import CharacterClass

# The last of the code points that Unicode decomposes or puts in order, rounded
# up.
_END_OF_DECOMPOSED = 0x30000

# ASCII without control characters and ticks, and Chinese characters, up to the
# last one that a mark may follow: each character is a part that keeps its
# length. Only for speed.
_PLAIN = "([ -&(-_a-~\u4e00-\u9fa5]+)(?=[ -~\u4e00-\u9fa5]|$)"


@functools.cache
def cluster_marks(
    form: Literal["NFD", "NFKD"], dropped: CharacterClass
) -> CharacterClass:
    """Returns the marks that belong to the character before them.

    Unicode puts marks in order, but never past a character that is no mark.
    """
    return CharacterClass(
        dropped.codes.union(
            code
            for code in range(_END_OF_DECOMPOSED)
            if unicodedata.combining(unicodedata.normalize(form, chr(code))[0])
        )
    )


def character_offsets(
    text: str, pattern: str, count: Callable[[str], int]
) -> tuple[list[int], list[int]]:
    """Returns starts and ends of the clean text's characters but spaces.

    Args:
        pattern: matches its parts, which are all of it.
        count: the number of characters but spaces that a part becomes.
    """
    starts: list[int] = []
    ends: list[int] = []
    for match in re.finditer(f"{_PLAIN}|{pattern}", text):
        begin, end = match.span(1)
        if begin >= 0:
            is_letter = map(" ".__ne__, match[1])
            places = list(itertools.compress(range(begin, end), is_letter))
            starts += places
            ends += [place + 1 for place in places]
        elif number := count(match[0]):
            starts += [match.start()] * number
            ends += [match.end()] * number
    return starts, ends
