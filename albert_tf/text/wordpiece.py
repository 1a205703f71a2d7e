"""BERT's way from text to pieces: words, then the longest pieces of a word.

The released Chinese ALBERTs use it. `split_words` and `split_word` are the
definition; in_graph.py does the same with TensorFlow's string operations, from
the character classes below.
"""

import collections
import re
import unicodedata
from collections.abc import Mapping

from albert_tf.text.character_class import CharacterClass
from albert_tf.text.normalization import (
    SIGMA,
    replace_surrogates,
    replace_version_dependent,
)
from albert_tf.text.offsets import character_offsets, cluster_marks

# The prefix of a piece that continues a word.
CONTINUATION = "##"

# Longer words are one unknown piece, as in google-research/albert.
# Differs from Hugging Face's BertTokenizer, where it is 100.
MAX_WORD_LENGTH = 200

# Marks, signs and format characters added after Unicode 14, the version of
# Python 3.11. Treated as letters, so that every Python has the same tables.
_AFTER_UNICODE_14 = CharacterClass.parse(
    """
    0ECE 10EFD-10EFF 11241 11B00-11B09 11F00-11F01 11F36-11F3A 11F40
    11F42-11F4F 13439-13440 13447-13455 1E08F 1E4EC-1E4EF
    """
)


def _codes_by_category() -> Mapping[str, set[int]]:
    found: dict[str, set[int]] = collections.defaultdict(set)
    # There are only ideographs between U+20000 and U+E0000, and only private
    # characters above U+E01FF.
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        if code not in _AFTER_UNICODE_14.codes:
            found[unicodedata.category(chr(code))].add(code)
    return found


_BY_CATEGORY = _codes_by_category()
# Dropped. Among them are the zero-width joiner, the soft hyphen and NUL.
CONTROL = CharacterClass(
    (_BY_CATEGORY["Cc"] | _BY_CATEGORY["Cf"] | {0xFFFD}) - {*b"\t\n\r"}
)
# Characters that NFD splits off as accents.
MARKS = CharacterClass(_BY_CATEGORY["Mn"])
# These, and the vowel signs of Devanagari, Tamil and the like, which are no \w.
WORD_MARKS = CharacterClass(MARKS.codes | _BY_CATEGORY["Mc"])

# ASCII's $+<=>^`|~ too, which Unicode counts among the symbols.
_PUNCTUATION = CharacterClass(
    {c for c in range(0x21, 0x7F) if not chr(c).isalnum()}.union(
        *(codes for name, codes in _BY_CATEGORY.items() if name[0] == "P")
    )
)
IDEOGRAPHS = CharacterClass.parse(
    """
    3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F
    2B820-2CEAF 2F800-2FA1F
    """
)
# Characters that are words by themselves, by tokenize_chinese_chars.
SINGLE_CHARACTER_WORDS = {
    False: _PUNCTUATION,
    True: CharacterClass(_PUNCTUATION.codes | IDEOGRAPHS.codes),
}

# Dropped like control characters, but no control characters to the patterns.
_NUL_OR_SURROGATE = re.compile("[\0\ud800-\udfff]")

# The white space that is no control character, and separates words.
SPACES = "\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def chunk_pattern(
    *, tokenize_chinese_chars: bool, with_accents: bool
) -> re.Pattern[str]:
    """Returns the pattern of the chunks of a text, whose words can be cached.

    The words of a text are those of its chunks, one after another: white
    space and ideographs separate chunks, and neither case nor accents reach
    across. `with_accents` an ideograph's chunk includes the accents after it.
    """
    if not tokenize_chinese_chars:
        return re.compile(f"[^{SPACES}]+")
    ideograph = IDEOGRAPHS.pattern
    pattern = f"{ideograph}|[^{SPACES}{ideograph[1:-1]}]+"
    if with_accents:
        accents = f"(?:{CONTROL.pattern}*{MARKS.pattern})+"
        pattern = f"{ideograph}{accents}|{pattern}"
    return re.compile(pattern)


def split_words(
    text: str,
    *,
    do_lower_case: bool,
    keep_accents: bool,
    tokenize_chinese_chars: bool,
) -> list[str]:
    """Returns the words of `text`, punctuation and ideographs one by one.

    This is BERT's BasicTokenizer: control characters are dropped, letters
    lower-cased, accents stripped (NFD).

    Differs from google-research/albert: accents and case are two settings,
    and as in normalization.py capital sigma is σ even at the end of a word,
    and characters that depend on the version of Unicode are U+FFFC.
    A lone surrogate is dropped.
    """
    if not text.isascii():
        text = replace_surrogates(text)
    text = CONTROL.sub("", text)
    if not text.isascii():
        text = replace_version_dependent(text)
    if do_lower_case:
        text = text.replace(*SIGMA).lower()
    if not keep_accents and not text.isascii():
        text = MARKS.sub("", unicodedata.normalize("NFD", text))
    return (
        SINGLE_CHARACTER_WORDS[tokenize_chinese_chars]
        .sub(r" \g<0> ", text)
        .split()
    )


def parts_pattern(*, keep_accents: bool, tokenize_chinese_chars: bool) -> str:
    """Returns the pattern of the parts of a text, for `re` and RE2.

    The words of a text are those of its parts, but for where words end.
    """
    if keep_accents:
        return "(?s:.)"
    control, accents = CONTROL.pattern, MARKS.pattern
    marks = cluster_marks("NFD", MARKS).pattern
    # An ideograph is a chunk of `chunk_pattern` too.
    ideographs = f"{IDEOGRAPHS.pattern}(?:{control}*{accents})*|"
    return (
        f"{control}|{ideographs if tokenize_chinese_chars else ''}"
        f"[^{SPACES}](?:{control}*{marks})*|(?s:.)"
    )


def word_offsets(text: str, **settings: bool) -> tuple[list[int], list[int]]:
    """Returns starts and ends of each character of `split_words`."""
    pattern = parts_pattern(
        keep_accents=settings["keep_accents"],
        tokenize_chinese_chars=settings["tokenize_chinese_chars"],
    )
    return character_offsets(
        replace_version_dependent(_NUL_OR_SURROGATE.sub("\x01", text)),
        pattern,
        lambda part: sum(map(len, split_words(part, **settings))),
    )


def split_word(
    word: str, first: Mapping[str, int], later: Mapping[str, int]
) -> list[int] | None:
    """Returns the ids of a word's pieces, each the longest that fits.

    `first` are the pieces that begin a word, `later` those that continue one,
    by their text. None where no piece fits, or the word is too long.
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
