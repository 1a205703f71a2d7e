import re

import pytest

from albert_tf.config import UserError
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from data_prep.new_words import count_words, pieces_per_word, select_words

TEXTS = ["Aab, aab ab b", "abab ab. abab ab once: abbbb"]


@pytest.fixture(scope="module")
def tokenizer(make_model):
    return SentencePieceTokenizer(
        make_model({"▁": -9.0, "a": -1.0, "b": -1.0, "▁a": -1.0, "▁b": -1.0})
    )


def test_the_words_that_save_most(tokenizer):
    counts = count_words(TEXTS, tokenizer)
    assert counts == {
        "aab": 2,
        "ab": 3,
        "b": 1,
        "abab": 2,
        "once": 1,
        "abbbb": 1,
    }
    # Saved: abab 2 x 3, aab 2 x 2, ab 3 x 1. The others occur once.
    assert select_words(counts, tokenizer, 3) == ["abab", "aab", "ab"]
    assert select_words(counts, tokenizer, 1) == ["abab"]
    message = (
        "num_new_tokens=4: the corpus has 3 words that occur at least 2 times "
        "and that the tokenizer splits; choose at most as many."
    )
    with pytest.raises(UserError, match=re.escape(message)):
        select_words(counts, tokenizer, 4)


def test_a_word_with_a_piece_that_is_not_preferred(make_model):
    pieces = {"▁": -9.0, "a": -1.0, "b": -1.0, "▁a": -1.0, "▁ab": -5.0}
    tokenizer = SentencePieceTokenizer(make_model(pieces))
    assert tokenizer.pieces(tokenizer.encode("ab")) == ["▁a", "b"]
    counts = count_words(["ab ab ab ab ab ba ba"], tokenizer)
    assert select_words(counts, tokenizer, 1) == ["ba"]


def test_pieces_per_word(tokenizer):
    counts = count_words(["ab ab b aab"], tokenizer)
    assert pieces_per_word(counts, tokenizer) == (2 + 2 + 1 + 3) / 4
    larger = tokenizer.with_words(["aab"])
    assert pieces_per_word(counts, larger) == (2 + 2 + 1 + 1) / 4


def test_a_piece_within_words_is_no_word(make_model):
    pieces = {"▁": -9.0, "в": -8.0, "о": -8.0, "во": -1.0}
    tokenizer = SentencePieceTokenizer(make_model(pieces))
    counts = count_words(["во во"], tokenizer)
    assert select_words(counts, tokenizer, 1) == ["во"]
