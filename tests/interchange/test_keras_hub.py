"""KerasHub presets without KerasHub; parity_keras_hub.py opens them there."""

import os
import sys

import pytest
from tiny_models import built, save

from albert_tf.config import UserError
from albert_tf.interchange.convert import convert
from albert_tf.interchange.keras_hub import not_stored
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import AddedToken


def test_without_keras_hub_it_is_named(tmp_path, tiny_tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    source = save(tmp_path / "source", built("none"), tiny_tokenizer)
    # Before what may be a large model is read.
    lines = []
    with pytest.raises(UserError, match="pip install keras_hub"):
        convert(source, str(tmp_path / "preset"), "keras_hub", log=lines.append)
    assert lines == []
    assert os.listdir(tmp_path) == ["source"]


def test_warning_of_text_that_needs_cleaning(tiny_tokenizer):
    model = built("none")
    cased = SentencePieceTokenizer(
        tiny_tokenizer.model_bytes, do_lower_case=False, keep_accents=True
    )
    for tokenizer, warns in ((tiny_tokenizer, True), (cased, False)):
        lines = list(not_stored(LoadedModel(model, tokenizer, 16)))
        assert any("clean text" in line for line in lines) == warns


def test_added_tokens_need_spaces_around_them(tiny_tokenizer):
    added = tiny_tokenizer.with_added_tokens([AddedToken("covid", 200, True)])
    lines = [*not_stored(LoadedModel(built("none"), added, 16))]
    assert any("a space before and after ['covid']" in line for line in lines)
