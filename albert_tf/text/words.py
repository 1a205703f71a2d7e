"""Words of a text with their offsets, for tags of words."""

import re

from albert_tf.text.character_class import CharacterClass
from albert_tf.text.wordpiece import MARKS, SINGLE_CHARACTER_WORDS

# First character, and the one after the last.
Span = tuple[int, int]

# Currencies, arrows, mathematics, emoji and the like: blocks, so that every
# version of Unicode has the same ones.
_SYMBOLS = CharacterClass.parse(
    """
    A2-A9 AC AE-B1 B4 D7 F7 20A0-20CF 2100-214F 2190-27FF 2900-2BFF 1F000-1FAFF
    """
)
_ALONE = CharacterClass(SINGLE_CHARACTER_WORDS[True].codes | _SYMBOLS.codes)
# Accents, variation selectors and the joiner of emoji belong to what is before.
_ATTACHED = CharacterClass(MARKS.codes | {0x200D})
# A character that is a word by itself, for `re` and RE2.
WORD_ALONE = f"{_ALONE.pattern}{_ATTACHED.pattern}*"

_BY_BLANKS = re.compile(r"\S+")
_FINER = re.compile(f"{WORD_ALONE}|(?:(?!{_ALONE.pattern})\\S)+")


def blank_separated(text: str) -> list[Span]:
    """Returns the words between white space, as `str.split` does."""
    return [found.span() for found in _BY_BLANKS.finditer(text)]


def finer_words(text: str) -> list[Span]:
    """Returns the words between white space, punctuation and symbols.

    These, and Chinese characters, are words by themselves.
    """
    return [found.span() for found in _FINER.finditer(text)]
