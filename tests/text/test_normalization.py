import re
import sys
import unicodedata

import pytest

from albert_tf.text.normalization import (
    COMBINING,
    VERSION_DEPENDENT,
    WHITE_SPACE,
    normalize,
    truncate_utf8,
)

SCALARS = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if not 0xD800 <= code <= 0xDFFF
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" \t\r\n\u3000\x85\u2028 ", ""),
        ("  Two\u00a0\n words\x1c", "two words"),
        ("``Quoted'' text", '"quoted" text'),
        ("'''", "\"'"),
        ("Café ½ ①", "cafe 1⁄2 1"),
        ("a\u00b4b", "a b"),
        ("ΟΔΟΣ οδός", "οδοσ οδος"),
        ("a\0b", "a\ufffcb"),
        ("\ud800x", "\ufffd\ufffd\ufffdx"),
        ("\U00010570", "\ufffc"),
    ],
)
def test_normalize_uncased(text, expected):
    assert normalize(text, do_lower_case=True, keep_accents=False) == expected


def test_character_classes_are_those_of_python():
    def members(pattern):
        return set(re.findall(pattern, "".join(SCALARS)))

    spaces = re.compile(WHITE_SPACE)
    assert all(bool(spaces.match(c)) == c.isspace() for c in SCALARS)
    version_dependent = members(VERSION_DEPENDENT.pattern)
    combining = {c for c in SCALARS if unicodedata.combining(c)}
    assert members(COMBINING.pattern) == combining - version_dependent
    assert len(version_dependent) == 181


def test_every_character_follows_the_definition():
    # Beyond U+20000 there is nothing but ideographs; test_in_graph has them.
    for c in SCALARS[:0x20000]:
        if c in VERSION_DEPENDENT or c == "Σ":
            continue
        decomposed = unicodedata.normalize("NFKD", c)
        kept = [d for d in decomposed if unicodedata.combining(d) == 0]
        expected = " ".join("".join(kept).lower().split())
        got = normalize(c, do_lower_case=True, keep_accents=False)
        assert got == expected, hex(ord(c))


@pytest.mark.parametrize("text", ["abcdef", "aé€😀b", "😀😀", "€€€", "éé"])
def test_truncation_keeps_the_longest_head_that_fits(text):
    for max_bytes in range(4, len(text.encode()) + 2):
        heads = [text[:i] for i in range(len(text) + 1)]
        fitting = [h for h in heads if len(h.encode()) <= max_bytes]
        assert truncate_utf8(text, max_bytes) == fitting[-1]
