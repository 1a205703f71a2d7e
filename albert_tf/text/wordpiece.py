"""BERT's way from text to pieces: words, then the longest pieces of a word.

The released Chinese ALBERTs use it. `split_words` and `split_word` are the
definition; in_graph.py does the same with TensorFlow's string operations, from
the character classes below. Both give the same pieces for every input.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping

from albert_tf.text.character_class import CharacterClass, from_ranges
from albert_tf.text.normalization import (
    SIGMA,
    replace_surrogates,
    replace_unsettled,
    trace_lower,
    trace_surrogates,
)
from albert_tf.text.offsets import Decomposition, TracedText

# What a piece that continues a word begins with.
CONTINUATION = "##"

# Longer words are unknown as a whole, as in google-research/albert.
# Differs from Hugging Face's BertTokenizer, where it is 100.
MAX_WORD_LENGTH = 200

# Marks, signs and format characters that are younger than Unicode 14, the
# version of Python 3.11: here, letters like any other, so that every Python
# has the same tables.
_YOUNG = from_ranges(
    [
        (0x0ECE, 0x0ECE),
        (0x10EFD, 0x10EFF),
        (0x11241, 0x11241),
        (0x11B00, 0x11B09),
        (0x11F00, 0x11F01),
        (0x11F36, 0x11F3A),
        (0x11F40, 0x11F40),
        (0x11F42, 0x11F4F),
        (0x13439, 0x13440),
        (0x13447, 0x13455),
        (0x1E08F, 0x1E08F),
        (0x1E4EC, 0x1E4EF),
    ]
)


def _class_where(holds: Callable[[str], bool]) -> CharacterClass:
    """Returns the class of the characters that `holds` is true of.

    Only of those that have categories of note: between U+20000 and U+E0000
    there are but ideographs, and private ones above U+E01FF.
    """
    codes = (*range(0x20000), *range(0xE0000, 0xE0200))
    return CharacterClass(
        c for c in codes if holds(chr(c)) and chr(c) not in _YOUNG
    )


def _is_control(character: str) -> bool:
    return character == "\ufffd" or (
        character not in "\t\n\r"
        and unicodedata.category(character) in ("Cc", "Cf")
    )


def _is_punctuation(character: str) -> bool:
    # Of ASCII also $+<=>^`|~, which Unicode counts among the symbols.
    return unicodedata.category(character).startswith("P") or (
        "!" <= character <= "~" and not character.isalnum()
    )


# Dropped. Among them are the zero-width joiner, the soft hyphen and NUL.
CONTROL = _class_where(_is_control)
# What NFD splits off as accents.
MARKS = _class_where(lambda c: unicodedata.category(c) == "Mn")

_PUNCTUATION = _class_where(_is_punctuation)
_IDEOGRAPHS = from_ranges(
    [
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0x20000, 0x2A6DF),
        (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F),
        (0x2B820, 0x2CEAF),
        (0x2F800, 0x2FA1F),
    ]
)
# What is a word by itself, by tokenize_chinese_chars.
LONE = {
    False: _PUNCTUATION,
    True: CharacterClass(_PUNCTUATION.codes | _IDEOGRAPHS.codes),
}

_WORD = re.compile(r"\S+")
_DECOMPOSITION = Decomposition("NFD", MARKS)
_CONTROL_PATTERN = re.compile(CONTROL.pattern)
_LONE_PATTERNS = {
    chinese: re.compile(lone.pattern) for chinese, lone in LONE.items()
}

# The white space that is no control character, and parts words.
_SPACES = "\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def stretches(*, tokenize_chinese_chars: bool) -> re.Pattern[str]:
    """Returns what finds the stretches of a text.

    The words of a text are those of its stretches, one after another: white
    space and ideographs stand between two, and neither case nor accents reach
    across. As stretches recur, their words can be remembered.
    """
    if not tokenize_chinese_chars:
        return re.compile(f"[^{_SPACES}]+")
    ideograph = _IDEOGRAPHS.pattern
    return re.compile(f"{ideograph}|[^{_SPACES}{ideograph[1:-1]}]+")


def accented_stretches(*, tokenize_chinese_chars: bool) -> re.Pattern[str]:
    """Returns what finds the stretches of a text whose accents are stripped.

    As `stretches`, but an ideograph has its accents with it.
    """
    plain = stretches(tokenize_chinese_chars=tokenize_chinese_chars).pattern
    if not tokenize_chinese_chars:
        return re.compile(plain)
    accented = f"{_IDEOGRAPHS.pattern}(?:{CONTROL.pattern}*{MARKS.pattern})+"
    return re.compile(f"{accented}|{plain}")


def split_words(
    text: str,
    *,
    do_lower_case: bool,
    keep_accents: bool,
    tokenize_chinese_chars: bool,
) -> list[str]:
    """Returns the words of `text`, punctuation and ideographs one by one.

    As BERT's BasicTokenizer: control characters are dropped, letters
    lower-cased, accents stripped (NFD).

    Differs from google-research/albert: accents and case are two settings,
    and as in normalization.py capital sigma is σ even at the end of a word,
    and characters whose Unicode data are not settled are U+FFFC.

    Args:
        text: any string; a lone surrogate is dropped.
        do_lower_case: whether to lower-case.
        keep_accents: whether accents stay.
        tokenize_chinese_chars: whether an ideograph is a word.
    """
    if not text.isascii():
        text = replace_surrogates(text)
    text = CONTROL.sub("", text)
    if not text.isascii():
        text = replace_unsettled(text)
    if do_lower_case:
        text = text.replace(*SIGMA).lower()
    if not keep_accents and not text.isascii():
        text = MARKS.sub("", unicodedata.normalize("NFD", text))
    return LONE[tokenize_chinese_chars].sub(r" \g<0> ", text).split()


def trace_words(
    text: str,
    *,
    do_lower_case: bool,
    keep_accents: bool,
    tokenize_chinese_chars: bool,
) -> list[TracedText]:
    """Returns `split_words` of the same arguments, each traced to `text`."""
    traced = trace_surrogates(TracedText.original(text))
    traced = traced.sub(_CONTROL_PATTERN, lambda _: "")
    traced = traced.retold(replace_unsettled(traced.text))
    if do_lower_case:
        traced = trace_lower(traced)
    if not keep_accents:
        traced = _DECOMPOSITION(traced)
    lone = _LONE_PATTERNS[tokenize_chinese_chars]
    traced = traced.sub(lone, " {} ".format)
    return [traced[slice(*m.span())] for m in _WORD.finditer(traced.text)]


def split_word(
    word: str, first: Mapping[str, int], later: Mapping[str, int]
) -> list[int] | None:
    """Returns the ids of a word's pieces, each the longest that fits.

    Args:
        word: at least one character.
        first: the ids of pieces that begin a word.
        later: the ids of pieces that continue one, by their text.

    Returns:
        None where no piece fits, or the word is too long.
    """
    if len(word) > MAX_WORD_LENGTH:
        return None
    ids = []
    start, table = 0, first
    while start < len(word):
        for end in range(len(word), start, -1):
            found = table.get(word[start:end])
            if found is not None:
                break
        else:
            return None
        ids.append(found)
        start, table = end, later
    return ids
