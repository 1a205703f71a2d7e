"""ALBERT's clean-up of text, once in Python and once as parts for a graph.

`normalize` is the definition. A serving graph does the same with TensorFlow's
string operations (in_graph.py), built from the constants below: character
classes that mean the same to Python's `re`, to RE2 and to Oniguruma. Both
forms give the same text for every input, which the tests check for every code
point.
"""

import re
import unicodedata

from albert_tf.text.character_class import CharacterClass, from_ranges
from albert_tf.text.offsets import Decomposition, TracedText

# The straight and the curly quotes of LaTeX and the Penn Treebank, as in
# Hugging Face's ALBERT.
# Differs from google-research/albert: there they stay as they are.
QUOTES = (("``", '"'), ("''", '"'))

# Stands in for the characters that the libraries disagree on. It is no
# letter, space or mark, so that every tokenizer takes it for an unknown sign.
REPLACEMENT = "\ufffc"

# Capital sigma is the one letter whose lower case hangs on its neighbours,
# by rules that change with the version of Unicode.
# Differs from google-research/albert: it is always σ, never the final ς, as
# in Hugging Face's tokenizers.
SIGMA = ("Σ", "σ")


# Code points that decompose, combine or change case in the Unicode tables of
# some, but not all, of Python 3.11 to 3.13 (Unicode 14.0 to 15.1), TensorFlow
# (13) and TensorFlow Text (16): letters and marks younger than Unicode 13.
# tests/text/test_in_graph.py finds any that are missing. NUL is here because
# tf.strings.lower cuts the text at it.
UNSETTLED = from_ranges(
    [
        (0x0000, 0x0000),
        (0x0897, 0x0897),
        (0x2C2F, 0x2C2F),
        (0xA7C0, 0xA7C0),
        (0xA7D0, 0xA7D0),
        (0xA7D6, 0xA7D6),
        (0xA7D8, 0xA7D8),
        (0x10570, 0x1057A),
        (0x1057C, 0x1058A),
        (0x1058C, 0x10592),
        (0x10594, 0x10595),
        (0x105C9, 0x105C9),
        (0x105E4, 0x105E4),
        (0x10D69, 0x10D6D),
        (0x10EFD, 0x10EFF),
        (0x11383, 0x11383),
        (0x11385, 0x11385),
        (0x1138E, 0x1138E),
        (0x11391, 0x11391),
        (0x113C5, 0x113C5),
        (0x113C7, 0x113C8),
        (0x113CE, 0x113D0),
        (0x11F41, 0x11F42),
        (0x16121, 0x16128),
        (0x1612F, 0x1612F),
        (0x16D68, 0x16D6A),
        (0x1CCD6, 0x1CCF9),
        (0x1E030, 0x1E06D),
        (0x1E08F, 0x1E08F),
        (0x1E4EC, 0x1E4EF),
        (0x1E5EE, 0x1E5EF),
    ]
)

# Marks with a canonical combining class: what NFKD splits off as accents. All
# of them lie below U+20000.
COMBINING = CharacterClass(
    code
    for code in range(0x20000)
    if unicodedata.combining(chr(code)) and chr(code) not in UNSETTLED
)

# What str.isspace and str.split take for white space.
WHITE_SPACE = (
    "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
)

_QUOTE_OF_TICKS = dict(QUOTES)
_TICKS = re.compile("|".join(_QUOTE_OF_TICKS))
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECOMPOSITION = Decomposition("NFKD", COMBINING)
# White space that is not one space already.
_UNEVEN_SPACE = re.compile(r"\s{2,}|[^\S ]")


def normalize(text: str, *, do_lower_case: bool, keep_accents: bool) -> str:
    """Returns `text` as the vocabulary expects it.

    Quotes made of two ticks become one character, compatibility characters
    are decomposed (NFKD) and accents dropped, letters are lower-cased, and
    white space is one space between words and none at the ends.

    Differs from google-research/albert: white space is collapsed last, so
    that characters which decompose to a space (U+00B4) leave no second one.
    keep_accents is Hugging Face's: it leaves characters composed.

    Args:
        text: any string; a lone surrogate counts as the invalid bytes that
            it would be in UTF-8.
        do_lower_case: whether to lower-case.
        keep_accents: whether to do without NFKD, and accents stay.
    """
    for ticks, quote in QUOTES:
        text = text.replace(ticks, quote)
    # Most English is ASCII, where nothing else than NUL would change.
    if not text.isascii() or "\0" in text:
        text = replace_unsettled(replace_surrogates(text))
        if not keep_accents:
            text = COMBINING.sub("", unicodedata.normalize("NFKD", text))
    if do_lower_case:
        text = text.replace(*SIGMA).lower()
    return " ".join(text.split())


def trace_normalized(
    text: str, *, do_lower_case: bool, keep_accents: bool
) -> TracedText:
    """Returns `normalize` of the same arguments, traced to `text`."""
    traced = TracedText.original(text).sub(_TICKS, _QUOTE_OF_TICKS.__getitem__)
    if not text.isascii() or "\0" in text:
        traced = trace_surrogates(traced)
        traced = traced.retold(replace_unsettled(traced.text))
        if not keep_accents:
            traced = _DECOMPOSITION(traced)
    if do_lower_case:
        traced = trace_lower(traced)
    return traced.strip().sub(_UNEVEN_SPACE, lambda _: " ")


def trace_surrogates(traced: TracedText) -> TracedText:
    """Returns `replace_surrogates` of a text, traced."""
    return traced.sub(_SURROGATE, replace_surrogates)


def trace_lower(traced: TracedText) -> TracedText:
    """Returns a text in the lower case of `normalize`, traced."""
    return traced.retold(traced.text.replace(*SIGMA)).lower()


def replace_surrogates(text: str) -> str:
    """Returns `text` with U+FFFD for each byte of a lone surrogate."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def replace_unsettled(text: str) -> str:
    """Returns `text` with REPLACEMENT for each character of UNSETTLED."""
    return UNSETTLED.sub(REPLACEMENT, text)


def truncate_utf8(text: str, max_bytes: int) -> str:
    """Returns the longest head of `text` of at most `max_bytes` in UTF-8.

    No character is cut through. The graph caps its input in the same way.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return text
    end = max_bytes
    # A character has at most three bytes that continue it (10xxxxxx).
    while end > max(0, max_bytes - 3) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")
