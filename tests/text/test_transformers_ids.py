"""Ids that transformers gave, for both kinds of vocabulary.

tests/data/transformers_ids.json was recorded once: each vocabulary in it was
saved with `save()`, opened with transformers' AutoTokenizer (its versions are
in the file), and asked for the ids of every text without special tokens.
"""

import json
from pathlib import Path

import pytest

from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

RECORDED = json.loads(
    (Path(__file__).parents[1] / "data/transformers_ids.json").read_text()
)


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
@pytest.mark.parametrize("case", range(4))
def test_ids_are_those_of_transformers(make_model, kind, case):
    recorded = RECORDED[kind]
    expected = dict(recorded["cases"][case])
    ids = expected.pop("ids")
    tokenizer = (
        SentencePieceTokenizer(make_model(recorded["scores"]), **expected)
        if kind == "sentencepiece"
        else WordPieceTokenizer(recorded["pieces"], **expected)
    )
    assert {text: tokenizer.encode(text) for text in ids} == ids
    assert len({i for row in ids.values() for i in row}) > 25
