"""KerasHub presets: opened by KerasHub they give the same outputs."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest
from tiny_models import built, save

from albert_tf.config import UserError
from albert_tf.interchange.convert import convert
from albert_tf.interchange.keras_hub import FILES, not_stored, save_preset
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer

SHAPES = {
    "all": {},
    "2 groups, inner": {
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    "2 groups of 3": {"num_hidden_groups": 2},
    "attention": {"sharing": "attention"},
    "ffn, inner": {"sharing": "ffn", "inner_group_num": 2},
    "none": {"sharing": "none", "hidden_dropout_prob": 0.1},
    "E = H": {"embedding_size": 8, "type_vocab_size": 3},
    "projected E = H": {
        "embedding_size": 8,
        "always_project_embeddings": True,
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_outputs(tmp_path, tiny_tokenizer, shape):
    keras_hub = pytest.importorskip("keras_hub")
    model = built("none", **SHAPES[shape])
    place = str(tmp_path / "preset")
    save_preset(place, LoadedModel(model, tiny_tokenizer, 16))
    assert set(os.listdir(place)) == FILES
    theirs = keras_hub.models.AlbertBackbone.from_preset(place)
    rng = np.random.default_rng(5)
    ids = rng.integers(5, 200, (3, 9)).astype("int32")
    mask = (np.arange(9) < np.array([[9], [5], [1]])).astype("int32")
    segments = (np.arange(9) > 3).astype("int32") * np.ones((3, 1), "int32")
    found = theirs(
        {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    )
    wanted = model(
        {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    )
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(
            np.array(found[name]), np.array(wanted[name]), rtol=0, atol=1e-5
        )


def test_the_same_pieces(tmp_path, tiny_tokenizer):
    keras_hub = pytest.importorskip("keras_hub")
    place = str(tmp_path / "preset")
    save_preset(place, LoadedModel(built("none"), tiny_tokenizer, 14))
    theirs = keras_hub.models.AlbertTokenizer.from_preset(place)
    text = "the kato of bupe."
    assert np.array(theirs(text)).tolist() == tiny_tokenizer.encode(text)
    # What the note in the preset warns of.
    assert tiny_tokenizer.unk_id in np.array(theirs("THE KATO")).tolist()
    classifier = keras_hub.models.AlbertTextClassifierPreprocessor
    features = classifier.from_preset(place)([text * 9])
    assert features["token_ids"].shape == (1, 14)
    note = pathlib.Path(place, "README.md").read_text(encoding="utf-8")
    assert "does not clean text: lower-case it and strip its accents" in note


def test_the_way_through_convert(tmp_path, tiny_tokenizer):
    pytest.importorskip("keras_hub")
    place = str(tmp_path / "preset")
    model = built(attention_probs_dropout_prob=0.1)
    source = save(tmp_path / "source", model, tiny_tokenizer)
    with pytest.raises(UserError, match="no head masked_lm.*--head=none"):
        convert(source, place, "keras_hub")
    lines = []
    for _ in range(2):
        convert(source, place, "keras_hub", head="none", log=lines.append)
    assert any("attention_probs_dropout_prob=0.1" in line for line in lines)
    assert any("does not clean text" in line for line in lines)
    values = json.loads(pathlib.Path(place, "config.json").read_text())
    assert values["config"]["num_layers"] == 3


def test_without_keras_hub_it_is_named(tmp_path, tiny_tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    source = save(tmp_path / "source", built("none"), tiny_tokenizer)
    # Before what may be a large model is read.
    lines = []
    with pytest.raises(UserError, match="pip install keras_hub"):
        convert(source, str(tmp_path / "preset"), "keras_hub", log=lines.append)
    assert lines == []
    assert os.listdir(tmp_path) == ["source"]


def test_unsupported_settings(tmp_path, tiny_tokenizer, wordpiece_tokenizer):
    pytest.importorskip("keras_hub")
    for tokenizer, changes, message in (
        (tiny_tokenizer, {"hidden_act": "relu"}, "='relu' is not one of gelu"),
        (tiny_tokenizer, {"layer_norm_eps": 1e-5}, "=1e-05 is not one of 1e-1"),
        (wordpiece_tokenizer, {}, "SentencePiece vocabularies only"),
    ):
        model = built("none", **changes)
        with pytest.raises(UserError, match=message):
            save_preset(str(tmp_path), LoadedModel(model, tokenizer, 16))
    assert not os.listdir(tmp_path)


def test_warning_of_text_that_needs_cleaning(tiny_tokenizer):
    model = built("none")
    cased = SentencePieceTokenizer(
        tiny_tokenizer.model_bytes, do_lower_case=False, keep_accents=True
    )
    for tokenizer, warns in ((tiny_tokenizer, True), (cased, False)):
        lines = list(not_stored(LoadedModel(model, tokenizer, 16)))
        assert any("clean text" in line for line in lines) == warns
