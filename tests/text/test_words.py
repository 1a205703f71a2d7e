"""Words of a text with offsets, in Python and in the graph."""

import pytest
import tensorflow as tf
from awkward_texts import AWKWARD_TEXTS

from albert_tf.text.in_graph import InGraphTokenizer
from albert_tf.text.words import blank_separated, finer_words

TEXTS = [
    ("Mia Bo, of Ulm.", ["Mia", "Bo", ",", "of", "Ulm", "."]),
    ("don't U.S.", ["don", "'", "t", "U", ".", "S", "."]),
    # Accents that are characters of their own, and a variation selector.
    ("Andre\u0301 in Zu\u0308rich", ["Andre\u0301", "in", "Zu\u0308rich"]),
    ("\u2764\ufe0fParis 5\u20ac", ["\u2764\ufe0f", "Paris", "5", "\u20ac"]),
    (
        "a\U0001f469\u200d\U0001f680b",
        ["a", "\U0001f469\u200d", "\U0001f680", "b"],
    ),
    ("我在Ulm", ["我", "在", "Ulm"]),
    ("\u00a0\ufeffx\u3000y ", ["\ufeffx", "y"]),
    ("", []),
    ("\u0301a .\u0301", ["\u0301a", ".\u0301"]),
]


@pytest.mark.parametrize(("text", "words"), TEXTS)
def test_words_between_punctuation(text, words):
    spans = finer_words(text)
    assert [text[start:end] for start, end in spans] == words
    # Nothing but white space is between them.
    assert "".join(words) == "".join(text.split())


def test_words_between_blanks():
    for text, _ in TEXTS:
        spans = blank_separated(text)
        assert [text[start:end] for start, end in spans] == text.split()


@pytest.mark.parametrize("finer", [False, True])
def test_words_in_the_graph(tiny_tokenizer, finer):
    texts = [*AWKWARD_TEXTS, *(text for text, _ in TEXTS)]
    tokenizer = InGraphTokenizer(tiny_tokenizer)
    found = tokenizer.words(tf.constant(texts), punctuation=finer).to_list()
    spans_of = finer_words if finer else blank_separated
    for text, words in zip(texts, found, strict=True):
        expected = [text[start:end] for start, end in spans_of(text)]
        assert [word.decode() for word in words] == expected
