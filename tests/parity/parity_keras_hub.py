"""Our encoders in KerasHub, over random architectures; our presets there."""

import json
import os
import pathlib
import tempfile

import hypothesis
import keras_hub
import numpy as np
import pytest
from parity_transformers import (
    COUNTERPARTS,
    OUTPUT_BOUND,
    architectures,
    examples,
    our_model,
    random_features,
    relative,
    seeds,
)
from training_fixtures import random_model

from albert_tf.config import UserError, override
from albert_tf.interchange.convert import convert
from albert_tf.interchange.keras_hub import FILES, save_preset
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)

# An encoder alone.
ENCODER = COUNTERPARTS[0]


@hypothesis.settings(examples, max_examples=15)
@hypothesis.given(architectures(), seeds)
def test_a_preset_of_ours_gives_the_same_outputs(
    tiny_tokenizer, record_difference, config, seed
):
    # What KerasHub has: tanh GELU, an epsilon of 1e-12.
    changes = {"hidden_act": "gelu", "layer_norm_eps": 1e-12}
    changes["vocab_size"] = tiny_tokenizer.vocab_size
    config = override(config, changes)
    ours = our_model(ENCODER, config, seed)
    with tempfile.TemporaryDirectory() as directory:
        place = str(pathlib.Path(directory, "preset"))
        length = config.max_position_embeddings
        save_preset(place, LoadedModel(ours, tiny_tokenizer, length))
        theirs = keras_hub.models.AlbertBackbone.from_preset(place)
    features = random_features(ENCODER, config, seed)
    expected = theirs(
        {
            "token_ids": features["input_ids"],
            "padding_mask": features["input_mask"],
            "segment_ids": features["segment_ids"],
        }
    )
    outputs = ours(features)
    assert set(expected) == set(outputs)
    for name, value in expected.items():
        difference = relative(np.asarray(outputs[name]), np.asarray(value))
        record_difference(
            "KerasHub AlbertBackbone", name, difference, OUTPUT_BOUND
        )


def test_a_preset_has_the_same_pieces(tmp_path, tiny_tokenizer):
    place = str(tmp_path / "preset")
    save_preset(place, LoadedModel(random_model("none"), tiny_tokenizer, 14))
    assert set(os.listdir(place)) == FILES
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
    source, place = str(tmp_path / "source"), str(tmp_path / "preset")
    model = random_model("pretraining", attention_probs_dropout_prob=0.2)
    save_model_directory(source, model, tiny_tokenizer, max_seq_length=16)
    with pytest.raises(UserError, match="no head masked_lm.*--head=none"):
        convert(source, place, "keras_hub")
    lines = []
    for _ in range(2):
        convert(source, place, "keras_hub", head="none", log=lines.append)
    assert any("attention_probs_dropout_prob=0.2" in line for line in lines)
    assert any("does not clean text" in line for line in lines)
    values = json.loads(pathlib.Path(place, "config.json").read_text())
    assert values["config"]["num_layers"] == 2


def test_unsupported_settings(tmp_path, tiny_tokenizer, wordpiece_tokenizer):
    for tokenizer, changes, message in (
        (tiny_tokenizer, {"hidden_act": "relu"}, "='relu' is not one of gelu"),
        (tiny_tokenizer, {"layer_norm_eps": 1e-5}, "=1e-05 is not one of 1e-1"),
        (wordpiece_tokenizer, {}, "SentencePiece vocabularies only"),
    ):
        model = random_model("none", **changes)
        with pytest.raises(UserError, match=message):
            save_preset(str(tmp_path), LoadedModel(model, tokenizer, 16))
    assert not os.listdir(tmp_path)
