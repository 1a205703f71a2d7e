"""Our encoders in KerasHub, over random architectures; our presets there."""

import json
import os
import pathlib
import tempfile

import hypothesis
import keras_hub
import numpy as np
import pytest
from hypothesis import strategies as st
from training_fixtures import random_model

from albert_tf.config import ModelConfig, UserError, override
from albert_tf.interchange.convert import convert
from albert_tf.interchange.keras_hub import FILES, save_preset
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
    save_model_directory,
)
from albert_tf.modeling.models import AlbertModel

# Relative to the largest entry, as for transformers.
BOUND = 1e-5


@st.composite
def architectures(draw, vocab_size):
    """Draws what KerasHub has: tanh GELU, an epsilon of 1e-12."""
    heads = draw(st.sampled_from([1, 2, 3]))
    hidden_size = heads * draw(st.sampled_from([4, 6]))
    layers = draw(st.integers(1, 4))
    changes = {
        "vocab_size": vocab_size,
        "embedding_size": draw(st.sampled_from([4, 7, hidden_size])),
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_hidden_groups": draw(st.integers(1, layers)),
        "inner_group_num": draw(st.integers(1, 2)),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(3, 20)),
        "max_position_embeddings": draw(st.integers(4, 12)),
        "type_vocab_size": draw(st.integers(2, 3)),
        "sharing": draw(st.sampled_from(["all", "attention", "ffn", "none"])),
        "always_project_embeddings": draw(st.booleans()),
    }
    return override(ModelConfig(), changes)


def random_batch(config, rng):
    """Every text has a token; masks may have gaps."""
    shape = (3, config.max_position_embeddings)
    mask = rng.random(shape) < 0.7
    mask[:, rng.integers(0, shape[1])] = True
    ids = rng.integers(0, config.vocab_size, shape)
    segments = rng.integers(0, config.type_vocab_size, shape)
    return ids, mask.astype("int64"), segments


@hypothesis.settings(
    max_examples=15,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=[
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)
@hypothesis.given(data=st.data(), seed=st.integers(0, 2**31))
def test_a_preset_of_ours_gives_the_same_outputs(
    tiny_tokenizer, record_difference, data, seed
):
    config = data.draw(architectures(tiny_tokenizer.vocab_size))
    rng = np.random.default_rng(seed)
    ours = AlbertModel(config)
    for variable in ours.trainable_variables:
        size = 0.1 if len(variable.shape) == 1 else variable.shape[1] ** -0.5
        value = rng.normal(size=variable.shape) * size
        variable.assign(value + ("gamma" in variable.path))
    with tempfile.TemporaryDirectory() as directory:
        place = str(pathlib.Path(directory, "preset"))
        length = config.max_position_embeddings
        save_preset(place, LoadedModel(ours, tiny_tokenizer, length))
        theirs = keras_hub.models.AlbertBackbone.from_preset(place)
    ids, mask, segments = random_batch(config, rng)
    expected = theirs(
        {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
    )
    outputs = ours(
        {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    )
    assert set(expected) == set(outputs)
    for name, value in expected.items():
        value, mine = np.asarray(value), np.asarray(outputs[name])
        assert value.shape == mine.shape
        difference = np.abs(value - mine).max() / np.abs(value).max()
        record_difference("KerasHub AlbertBackbone", name, difference, BOUND)


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


# --- Theirs here ----------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
def test_their_presets_open_here(
    tmp_path, tiny_tokenizer, record_difference, groups
):
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=200,
        num_layers=4,
        num_heads=2,
        embedding_dim=6,
        hidden_dim=8,
        intermediate_dim=12,
        num_groups=groups,
        num_inner_repetitions=2,
        max_sequence_length=16,
    )
    tokenizer = keras_hub.models.AlbertTokenizer(
        proto=tiny_tokenizer.model_bytes
    )
    theirs = keras_hub.models.AlbertTextClassifier(
        backbone,
        num_classes=3,
        activation=None,
        preprocessor=keras_hub.models.AlbertTextClassifierPreprocessor(
            tokenizer, sequence_length=12
        ),
    )
    rng = np.random.default_rng(groups)
    for variable in theirs.weights:
        variable.assign(rng.normal(size=variable.shape))
    theirs.save_to_preset(str(tmp_path))
    ours = load_model_directory(str(tmp_path))
    assert ours.max_seq_length == 12
    ids, mask, segments = random_batch(ours.model.config, rng)
    expected = np.array(
        theirs(
            {"token_ids": ids, "padding_mask": mask, "segment_ids": segments}
        )
    )
    found = ours.model(
        {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    )["logits"]
    record_difference(
        "KerasHub's preset here",
        "logits of AlbertTextClassifier",
        np.abs(found - expected).max() / np.abs(expected).max(),
        BOUND,
    )
