import hashlib
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.text import wordpiece
from albert_tf.text.normalization import VERSION_DEPENDENT
from albert_tf.text.wordpiece import split_words

UNCASED = {
    "do_lower_case": True,
    "keep_accents": False,
    "tokenize_chinese_chars": True,
}
CASED = {**UNCASED, "do_lower_case": False, "keep_accents": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ud800b", ["ab"]),
        ("ΟΔΟΣ οδός", ["οδοσ", "οδος"]),
        ("\U00010570", ["\ufffc"]),
    ],
)
def test_words_that_differ_from_the_original_rule(text, expected):
    assert split_words(text, **UNCASED) == expected


def google_words(text, *, do_lower_case):
    """BasicTokenizer of google-research/bert, character by character."""
    cleaned = ""
    for c in text:
        if c in " \t\r\n" or unicodedata.category(c) == "Zs":
            cleaned += " "
        elif c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf"):
            continue
        elif any(
            low <= ord(c) <= high
            for low, high in (
                (0x4E00, 0x9FFF),
                (0x3400, 0x4DBF),
                (0x20000, 0x2A6DF),
                (0x2A700, 0x2B73F),
                (0x2B740, 0x2B81F),
                (0x2B820, 0x2CEAF),
                (0xF900, 0xFAFF),
                (0x2F800, 0x2FA1F),
            )
        ):
            cleaned += f" {c} "
        else:
            cleaned += c
    words = []
    for token in cleaned.split():
        if do_lower_case:
            token = unicodedata.normalize("NFD", token.lower())
            token = "".join(c for c in token if unicodedata.category(c) != "Mn")
        word = ""
        for c in token:
            ascii_sign = 33 <= ord(c) <= 126 and not c.isalnum()
            if ascii_sign or unicodedata.category(c).startswith("P"):
                words += [word, c]
                word = ""
            else:
                word += c
        words.append(word)
    return [word for word in words if word]


def comparable(text):
    """Removes what we treat differently, and what Python's version decides."""
    return "".join(
        c
        for c in text
        if c != "Σ"
        and c not in VERSION_DEPENDENT
        and c not in wordpiece._AFTER_UNICODE_14
    )


@given(text=st.text())
@example(text="a\x1cb\x85c\u2028d\u3000e\xa0f\u180eg")
def test_words_are_the_original_rule(text):
    text = comparable(text)
    for settings, lower in ((UNCASED, True), (CASED, False)):
        expected = google_words(text, do_lower_case=lower)
        assert split_words(text, **settings) == expected


@pytest.mark.slow
def test_every_character_is_the_original_rule():
    # All that has a category of note, and samples of the rest.
    rare = range(0x20000, sys.maxunicode + 1, 499)
    for code in (*range(0x20000), *range(0xE0000, 0xE0200), *rare):
        text = comparable(chr(code))
        if 0xD800 <= code <= 0xDFFF or not text:
            continue
        text = f"a{text}b"
        assert split_words(text, **UNCASED) == google_words(
            text, do_lower_case=True
        ), hex(code)


def test_tables_are_those_of_every_supported_python():
    # Taken with Python 3.11, 3.12 and 3.13 (Unicode 14, 15 and 15.1).
    def digest(some):
        return hashlib.sha256(some.pattern.encode()).hexdigest()[:16]

    assert [
        digest(some)
        for some in (
            wordpiece.CONTROL,
            wordpiece.MARKS,
            wordpiece.SINGLE_CHARACTER_WORDS[False],
            wordpiece.SINGLE_CHARACTER_WORDS[True],
        )
    ] == [
        "4a96c23abe62ef50",
        "8e19b4e0d9911195",
        "a4da499542a7e077",
        "8fe5158d2f3b122d",
    ]
