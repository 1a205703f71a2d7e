"""Models of every architecture against a forward pass in NumPy."""

import keras
import numpy as np
import pytest
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

from albert_tf.config import UserError, override
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import AlbertForPretraining

CONFIGS = {
    "all": {},
    "attention": {"sharing": "attention"},
    "ffn": {"sharing": "ffn"},
    "none": {"sharing": "none"},
    "2 groups": {"num_hidden_groups": 2},
    "2 inner groups": {"inner_group_num": 2},
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


def test_every_dropout_is_in_its_place_in_groups():
    config = override(SMALL, CONFIGS["2 groups of 2, attention"] | DROPOUT)
    numbers = np.array([5, 6, 1000])
    keys = example_keys(17, np.int64(41), numbers)
    features = random_features(config)
    model = randomise(AlbertForPretraining(config))
    outputs = model(features, dropout_keys=keys, training=True)
    drop = numpy_dropout(numpy_keys(17, 41, numbers))
    assert_equal(outputs, NumpyAlbert(model, drop).pretraining(features))


def test_without_keys_dropout_is_drawn_and_inference_has_none():
    model = randomise(AlbertForPretraining(override(SMALL, DROPOUT)))
    features = random_features(SMALL)
    first, second = (
        np.asarray(model(features, training=True)["pooled_output"])
        for _ in range(2)
    )
    assert np.abs(first - second).max() > 0.01
    oracle = NumpyAlbert(model).pretraining(features)
    assert_equal(model(features, training=False), oracle)
    keys = example_keys(0, 0, np.arange(3))
    assert_equal(model(features, dropout_keys=keys), oracle)


def test_every_weight_gets_a_gradient():
    config = override(SMALL, CONFIGS["2 groups of 2, attention"])
    model = randomise(AlbertForPretraining(config))
    features = random_features(config)
    for path, gradient in results(model, features)[1].items():
        # Softmax does not see a bias of the keys.
        assert np.abs(gradient).max() > 1e-4 or "key/bias" in path, path


def test_weights_exist_at_once_and_follow_the_seed():
    values = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        model = AlbertForPretraining(SMALL)
        assert model.built
        values.append([np.asarray(v) for v in model.trainable_variables])
    for first, same in zip(values[0], values[1], strict=True):
        np.testing.assert_array_equal(first, same)
    assert any((a != b).any() for a, b in zip(*values[1:], strict=True))


def test_paths_of_weights_are_unique():
    for name in ("2 groups of 2, ffn", "none"):
        changes = CONFIGS[name]
        model = AlbertForPretraining(override(SMALL, changes | DROPOUT))
        paths = [variable.path for variable in model.variables]
        assert len(paths) == len(set(paths))


def test_a_sequence_longer_than_the_positions_is_refused():
    model = AlbertForPretraining(SMALL)
    model(random_features(SMALL, length=16))
    with pytest.raises(
        UserError, match="17 tokens exceeds max_position_embeddings=16"
    ):
        model(random_features(SMALL, length=17))
