"""Models of every architecture against a forward pass in NumPy."""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import (
    DROPOUT,
    SMALL,
    NumpyAlbert,
    assert_equal,
    numpy_dropout,
    numpy_keys,
    random_features,
    randomise,
)
from test_heads_only import results

from albert_tf.config import (
    REMAT,
    ModelConfig,
    UserError,
    override,
    sharing_plan,
)
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import (
    AlbertForAnswerableQuestions,
    AlbertForClassification,
    AlbertForPretraining,
    AlbertModel,
)

CONFIGS = {
    "all": {},
    "attention": {"sharing": "attention"},
    "ffn": {"sharing": "ffn"},
    "none": {"sharing": "none"},
    "2 groups": {"num_hidden_groups": 2},
    "2 groups of 2, attention": {
        "num_hidden_groups": 2,
        "inner_group_num": 2,
        "sharing": "attention",
    },
    "2 groups of 2, ffn": {
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
        "sharing": "ffn",
    },
    "E equals H": {"embedding_size": 8},
    "gelu_exact": {"hidden_act": "gelu_exact"},
    "relu": {"hidden_act": "relu"},
    "large epsilon": {"layer_norm_eps": 0.1},
    "3 segments": {"type_vocab_size": 3},
    "E equals H, projected": {
        "embedding_size": 8,
        "always_project_embeddings": True,
    },
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_pretraining_outputs_equal_numpys(changes):
    config = override(SMALL, changes)
    model = randomise(AlbertForPretraining(config))
    features = random_features(config)
    oracle = NumpyAlbert(model)
    assert_equal(model(features), oracle.pretraining(features))


def test_without_keys_dropout_is_drawn():
    model = randomise(AlbertForPretraining(override(SMALL, DROPOUT)))
    features = random_features(SMALL)
    first, second = (
        np.asarray(model(features, training=True)["pooled_output"])
        for _ in range(2)
    )
    assert np.abs(first - second).max() > 0.01


def test_every_weight_gets_a_gradient():
    config = override(SMALL, CONFIGS["2 groups of 2, attention"])
    model = randomise(AlbertForPretraining(config))
    features = random_features(config)
    for path, gradient in results(model, features)[1].items():
        # Softmax does not see a bias of the keys.
        assert np.abs(gradient).max() > 1e-4 or "key/bias" in path, path


@pytest.mark.parametrize("remat", REMAT)
def test_hidden_states_and_attentions_equal_numpys(remat):
    changes = DROPOUT | {"inner_group_num": 2, "sharing": "ffn"}
    config = override(SMALL, changes)
    model = randomise(AlbertModel(config, remat=remat))
    features = random_features(config)
    numbers = np.arange(3)
    plain = model(features)
    assert set(plain) == {"sequence_output", "pooled_output"}
    asked = {"output_hidden_states": True, "output_attentions": True}
    for training in (False, True):
        keys = example_keys(3, np.int64(4), numbers)
        outputs = model(features, keys, training=training, **asked)
        drop = numpy_dropout(numpy_keys(3, 4, numbers))
        oracle = NumpyAlbert(model, *([drop] if training else []))
        oracle(features)
        for name, count in (("hidden_states", 7), ("attentions", 6)):
            expected = getattr(oracle, name)
            assert len(outputs[name]) == len(expected) == count
            for ours, theirs in zip(outputs[name], expected, strict=True):
                assert ours.shape == theirs.shape
                np.testing.assert_allclose(ours, theirs, atol=3e-5)
        np.testing.assert_array_equal(
            outputs["hidden_states"][-1], outputs["sequence_output"]
        )
    one = model(features, output_attentions=True)
    assert set(one) == {*plain, "attentions"}
    one = model(features, output_hidden_states=True)
    assert set(one) == {*plain, "hidden_states"}
    np.testing.assert_array_equal(one["pooled_output"], plain["pooled_output"])


def test_inference_casts_a_shared_matrix_once():
    model = AlbertForPretraining(
        SMALL, dtype=keras.DTypePolicy("mixed_bfloat16")
    )
    features = random_features(SMALL)
    encode = tf.function(lambda: model.encode(features, training=False))
    graph = encode.get_concrete_function().graph
    shape = list(model.encoder.blocks[0].feed_forward.intermediate.kernel.shape)
    casts = [
        operation
        for operation in graph.get_operations()
        if operation.type == "Cast"
        and operation.outputs[0].dtype == "bfloat16"
        and operation.outputs[0].shape.as_list() == shape
    ]
    assert len(casts) == 1


def test_groups_are_not_divided_in_floating_point():
    # There a quotient falls just short: 15 / 22 * 22 < 15.
    changes = {"num_hidden_layers": 44, "num_hidden_groups": 22}
    plan = sharing_plan(override(ModelConfig(), changes))
    assert plan == [(layer // 2, layer // 2) for layer in range(44)]


def test_settings_of_a_model_can_be_pickled():
    # Keras wraps the lists and dictionaries that a layer has.
    options = {"start_n_top": 2, "end_n_top": 3}
    model = AlbertForAnswerableQuestions(SMALL, head_options=options)
    for value in (model.head_options, model.config, model.labels):
        assert pickle.loads(pickle.dumps(value)) == value
    labels = AlbertForClassification(SMALL, labels=["no", "yes"]).labels
    assert type(labels) is list
    assert pickle.loads(pickle.dumps(labels)) == ["no", "yes"]


def test_classes_are_renamed():
    model = AlbertForClassification(SMALL, labels=["no", "yes"])
    model.labels = ["false", "true"]
    assert model.labels == model.get_config()["labels"] == ["false", "true"]
    with pytest.raises(UserError, match="num_labels=2 and 1 labels do not"):
        model.labels = ["true"]
