"""ALBERT's text normalization, in Python and as constants for a graph.

`normalize` is the definition. A serving graph does the same with TensorFlow's
string operations (in_graph.py) and the constants below: character classes that
are the same in Python's `re`, in RE2 and in Oniguruma.
"""

import functools
import unicodedata

from albert_tf.text.character_class import CharacterClass
from albert_tf.text.offsets import character_offsets, cluster_marks

# The straight and the curly quotes of LaTeX and the Penn Treebank, as in
# Hugging Face's ALBERT.
# Differs from google-research/albert: there they stay as they are.
QUOTES = (("``", '"'), ("''", '"'))

# Replaces the characters that the libraries disagree on. It is no letter, space
# or mark, so that every tokenizer takes it for an unknown sign.
REPLACEMENT = "\ufffc"

# Capital sigma is the one letter whose lower case depends on its neighbours,
# by rules that change with the version of Unicode.
# Differs from google-research/albert: it is always σ, never the final ς, as
# in Hugging Face's tokenizers.
SIGMA = ("Σ", "σ")

# Code points that decompose, combine or change case in the Unicode tables of
# some, but not all, of Python 3.11 to 3.13 (Unicode 14.0 to 15.1), TensorFlow
# (13) and TensorFlow Text (16): letters and marks younger than Unicode 13.
# tests/text/test_in_graph.py finds any that are missing. NUL is here because
# tf.strings.lower cuts the text at it.
VERSION_DEPENDENT = CharacterClass.parse(
    """
    0000 0897 2C2F A7C0 A7D0 A7D6 A7D8 10570-1057A 1057C-1058A 1058C-10592
    10594-10595 105C9 105E4 10D69-10D6D 10EFD-10EFF 11383 11385 1138E 11391
    113C5 113C7-113C8 113CE-113D0 11F41-11F42 16121-16128 1612F 16D68-16D6A
    1CCD6-1CCF9 1E030-1E06D 1E08F 1E4EC-1E4EF 1E5EE-1E5EF
    """
)

# Marks with a canonical combining class: what NFKD splits off as accents. All
# of them lie below U+20000.
COMBINING = CharacterClass(
    code
    for code in range(0x20000)
    if unicodedata.combining(chr(code)) and chr(code) not in VERSION_DEPENDENT
)

# White space to str.isspace and str.split.
WHITE_SPACE = (
    "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
)

# Parts of texts whose lengths are kept for the next text.
_CACHE_SIZE = 1 << 16


def normalize(text: str, *, do_lower_case: bool, keep_accents: bool) -> str:
    """Returns `text` as the vocabulary expects it.

    Quotes of two ticks become one character, compatibility characters are
    decomposed (NFKD) and accents dropped, letters are lower-cased, and white
    space is one space between words and none at the ends.

    Differs from google-research/albert: white space is collapsed last, so
    that characters which decompose to a space (U+00B4) leave no second one.
    keep_accents is Hugging Face's: without NFKD. A lone surrogate counts as
    the invalid bytes that it would be in UTF-8.
    """
    for ticks, quote in QUOTES:
        text = text.replace(ticks, quote)
    # Most English is ASCII, where nothing else than NUL would change.
    if not text.isascii() or "\0" in text:
        text = replace_version_dependent(replace_surrogates(text))
        if not keep_accents:
            text = COMBINING.sub("", unicodedata.normalize("NFKD", text))
    if do_lower_case:
        text = text.replace(*SIGMA).lower()
    return " ".join(text.split())


def parts_pattern(*, keep_accents: bool) -> str:
    """Returns the pattern of the parts of a text, for `re` and RE2.

    `normalize` of a text is that of its parts, one after another, but for the
    spaces between them.
    """
    marks = ""
    if not keep_accents:
        marks = f"{cluster_marks('NFKD', COMBINING).pattern}*"
    return f"(?:``|''|[^\n]){marks}|\n"


@functools.lru_cache(_CACHE_SIZE)
def _num_characters(do_lower_case: bool, keep_accents: bool, part: str) -> int:
    clean = normalize(
        part, do_lower_case=do_lower_case, keep_accents=keep_accents
    )
    return len(clean) - clean.count(" ")


def normalized_offsets(
    text: str, *, do_lower_case: bool, keep_accents: bool
) -> tuple[list[int], list[int]]:
    """Returns starts and ends of each character of `normalize` but spaces."""
    return character_offsets(
        replace_version_dependent(text),
        parts_pattern(keep_accents=keep_accents),
        functools.partial(_num_characters, do_lower_case, keep_accents),
    )


def replace_surrogates(text: str) -> str:
    """Returns `text` with U+FFFD for each byte of a lone surrogate."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def replace_version_dependent(text: str) -> str:
    """Returns `text` with REPLACEMENT for what depends on the version."""
    return VERSION_DEPENDENT.sub(REPLACEMENT, text)


def truncate_utf8(text: str, max_bytes: int) -> str:
    """Returns the longest head of `text` of at most `max_bytes` in UTF-8.

    No character is cut through. The graph caps its input in the same way.
    """
    return text.encode()[:max_bytes].decode(errors="ignore")
