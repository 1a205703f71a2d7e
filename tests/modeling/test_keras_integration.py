"""Layers and models as Keras users take them: saved, compiled, fitted."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import (
    DROPOUT,
    SMALL,
    assert_equal,
    random_features,
    randomise,
)
from test_heads import ENCODER_INPUTS, batch_of, model_of

from albert_tf.config import UserError, override
from albert_tf.modeling.blocks import (
    FeedForward,
    SelfAttention,
)
from albert_tf.modeling.dropout import ExampleDropout
from albert_tf.modeling.embeddings import Embeddings
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForSentenceEmbedding,
    AlbertModel,
    models,
)

CONFIG = override(SMALL, DROPOUT)
# The block of a group shares its attention with others.
SHARED = override(CONFIG, {"sharing": "attention", "num_hidden_groups": 2})


LAYERS = {
    "dropout": lambda **kw: ExampleDropout(0.25, **kw),
    "embeddings": functools.partial(Embeddings, CONFIG),
    "attention": functools.partial(SelfAttention, CONFIG),
    "feed_forward": functools.partial(FeedForward, CONFIG),
    "encoder": functools.partial(AlbertEncoder, SHARED, remat="selective"),
    **{
        name: functools.partial(
            kind,
            CONFIG,
            **({"num_labels": 3} if "num_labels" in kind.options else {}),
        )
        for name, kind in HEADS.items()
    },
    "beams": functools.partial(
        HEADS["answerable_span"], CONFIG, start_n_top=2, end_n_top=7
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_configuration_makes_it_again(name):
    layer = LAYERS[name](dtype="mixed_bfloat16", name="given")
    written = json.dumps(keras.saving.serialize_keras_object(layer))
    assert '"package": "albert_tf"' in written or "albert_tf>" in written
    again = keras.saving.deserialize_keras_object(json.loads(written))
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()
    assert again.name == "given"
    assert again.dtype_policy.name == "mixed_bfloat16"
    for argument in ("config", "remat", "rate", "num_labels", "end_n_top"):
        assert getattr(again, argument, 0) == getattr(layer, argument, 0)
    parts = [layer, again]
    for part in parts:
        part.build((None, None, 8))
    shapes = [[(w.path, w.shape) for w in part.weights] for part in parts]
    assert shapes[0] == shapes[1]
    for part in again._flatten_layers():
        assert part.compute_dtype == "bfloat16", part


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, "float32") for name in models()),
        ("AlbertForPretraining", "mixed_bfloat16"),
    ],
)
def test_a_model_is_saved_whole(name, policy, tmp_path):
    model, features = model_of(name, policy), batch_of(name)
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    assert type(again) is type(model)
    assert again.get_config() == model.get_config()
    assert again.dtype_policy.name == policy
    assert len(again.variables) == len(model.variables)
    expected, outputs = model(features), again(features)
    assert set(outputs) == set(expected)
    for key, value in expected.items():
        assert outputs[key].dtype == value.dtype
        np.testing.assert_array_equal(
            *(keras.ops.cast(v, "float32") for v in (outputs[key], value))
        )


def test_shared_parts_stay_shared_and_weights_load_alone(tmp_path):
    arguments = {"labels": ["no", "yes"], "remat": "full", "name": "mine"}
    model = randomise(AlbertForClassification(SHARED, **arguments))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for name, value in arguments.items():
        assert getattr(again, name) == value
    first, second, third = (b.attention for b in again.encoder.blocks)
    assert first is second is not third
    model.save_weights(tmp_path / "some.weights.h5")
    other = AlbertForClassification(SHARED, 2)
    other.load_weights(tmp_path / "some.weights.h5")
    for loaded in (again, other):
        assert len(loaded.weights) == len(model.weights)
        for one, two in zip(model.weights, loaded.weights, strict=True):
            np.testing.assert_array_equal(one, two)


# The inputs and outputs of the other classes have the axes of theirs.
@pytest.mark.parametrize(
    "name",
    [
        "AlbertForMultipleChoice",
        *(
            pytest.param(f"AlbertFor{name}", marks=pytest.mark.slow)
            for name in (
                *("Pretraining", "TokenClassification", "SentenceEmbedding"),
                "AnswerableQuestions",
            )
        ),
    ],
)
def test_keras_own_export_takes_batches_of_any_length(tmp_path, name):
    model = model_of(name)
    model.export(tmp_path / "export", verbose=False)
    saved = tf.saved_model.load(tmp_path / "export")
    inputs = saved.signatures["serving_default"].structured_input_signature[1]
    for length in (5, 16):
        batch = batch_of(name, batch=2, length=length)
        features = {n: tf.constant(batch[n], tf.int32) for n in inputs}
        expected = {n: np.asarray(v) for n, v in model(features).items()}
        assert_equal(saved.serve(features), expected)


@pytest.mark.slow
def test_long_padding_and_scaled_losses_stay_finite():
    model = model_of("AlbertForPretraining", "mixed_float16")
    features = batch_of("AlbertForPretraining", length=16)
    features["input_mask"][:, 1:] = 0
    features["masked_lm_positions"][:] = 0
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        loss = model.compute_loss(features, y_pred=outputs)
        loss = loss * 2.0**10
    variables = [v.value for v in model.trainable_variables]
    for value in outputs.values():
        assert np.isfinite(keras.ops.cast(value, "float32")).all()
    for variable, gradient in zip(
        variables, tape.gradient(loss, variables), strict=True
    ):
        gradient = tf.convert_to_tensor(gradient)
        assert gradient.dtype == tf.float32
        assert np.isfinite(gradient).all(), variable.name


@pytest.mark.slow
def test_compiled_by_xla_it_gives_the_same():
    model = model_of("AlbertForAnswerableQuestions")
    features = {
        name: tf.constant(value, tf.int32)
        for name, value in batch_of("AlbertForAnswerableQuestions").items()
    }
    compiled = tf.function(model, jit_compile=True)(features)
    plain = {n: np.asarray(v) for n, v in model(features).items()}
    assert_equal(compiled, plain)


def keras_inputs(names, shape):
    return {
        name: keras.Input(shape, dtype="int32", name=name) for name in names
    }


@pytest.mark.slow
def test_a_functional_model_of_the_users_own(tmp_path):
    """Any batch and length, hidden states on request, saved and loaded."""
    inner = randomise(AlbertModel(CONFIG))
    inputs = keras_inputs(ENCODER_INPUTS, (None,))
    outputs = inner(inputs, output_hidden_states=True, output_attentions=True)
    assert outputs["sequence_output"].shape == (None, None, 8)
    assert len(outputs["hidden_states"]) == 4
    assert outputs["attentions"][0].shape == (None, 2, None, None)
    mixed = outputs["hidden_states"][1] + outputs["hidden_states"][-1]
    number = keras.layers.Dense(1)(mixed[:, 0])
    model = keras.Model(inputs, [number, outputs["attentions"][2]])
    model.save(tmp_path / "mine.keras")
    again = keras.saving.load_model(tmp_path / "mine.keras")
    for batch, length in ((2, 5), (3, 16)):
        features = random_features(CONFIG, batch, length)
        features = {name: features[name] for name in ENCODER_INPUTS}
        expected = inner(features, output_attentions=True)
        for each in (model, again):
            number, attention = each(features)
            np.testing.assert_allclose(
                attention, expected["attentions"][2], atol=1e-6
            )
            np.testing.assert_allclose(number, model(features)[0], atol=1e-6)


def test_a_functional_model_of_choices():
    inner = model_of("AlbertForMultipleChoice")
    inputs = keras_inputs(ENCODER_INPUTS, (4, None))
    model = keras.Model(inputs, inner(inputs)["logits"])
    features = batch_of("AlbertForMultipleChoice", length=6)
    features = {name: features[name] for name in ENCODER_INPUTS}
    np.testing.assert_allclose(
        model(features), inner(features)["logits"], atol=1e-6
    )


def test_a_model_without_loss_or_labels_is_refused():
    model = AlbertForClassification(SMALL, 3)
    batch = batch_of("AlbertForClassification")
    outputs = model(batch)
    inputs = {name: batch[name] for name in ENCODER_INPUTS}
    one = model.compute_loss(batch, y_pred=outputs)
    assert one.shape == ()
    with pytest.raises(UserError, match="has no label_ids, .* classification"):
        model.compute_loss(inputs, y_pred=outputs)
    for kind in (AlbertModel, AlbertForSentenceEmbedding):
        model = kind(SMALL)
        for y in (None, batch["label_ids"]):
            with pytest.raises(UserError, match="no head with a loss: give"):
                model.compute_loss(batch, y, y_pred=model(batch))


def test_fit_on_several_devices_is_refused():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = models()["AlbertForClassification"](SMALL, 2)
        model.compile(optimizer="sgd")
    features = {"input_ids": np.ones((4, 4), "int32")}
    with pytest.raises(UserError, match="trains on one device"):
        model.fit(features, np.array([0, 1, 0, 1]), batch_size=4, verbose=0)
