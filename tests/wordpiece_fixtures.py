"""A small WordPiece vocabulary, Chinese and English."""

import pytest

from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

# The special pieces stand where they happen to, as in released vocabularies.
WORDPIECES = [
    "[PAD] [unused1] [unused99] [UNK] [CLS] [SEP] [MASK] a ##a b ##b un ##aff",
    "##able able ##able's ##ing ing e é ##é ##\u0301 \u0301 ς σ ##σ 8 ##8 1",
    "##000 , . ! # [ ] ' \" $ 中 国 ##国 国人 人 、 。 ｜ （ ） mask ##mask",
    "cls sep ##pad xx ##xx A ##A B Ａ か ##か き ##き \u1112 ##\u1161",
    "각 😀 ½ － i ##i ss ß ##ß",
]


@pytest.fixture(scope="session")
def wordpiece_pieces():
    return " ".join(WORDPIECES).split()


@pytest.fixture(scope="session")
def wordpiece_tokenizer(wordpiece_pieces):
    return WordPieceTokenizer(wordpiece_pieces)
