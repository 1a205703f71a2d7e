"""Whole models against a forward pass written in NumPy, and their manners."""

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

from albert_tf.config import UserError, override
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)

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


@pytest.mark.parametrize("num_labels", [1, 3])
def test_classification_outputs_equal_numpys(num_labels):
    model = randomise(AlbertForClassification(SMALL, num_labels))
    features = random_features(SMALL)
    outputs = model(features)
    assert outputs["logits"].shape == (3, num_labels)
    assert_equal(outputs, NumpyAlbert(model).classification(features))


@pytest.mark.parametrize(
    "changes", [CONFIGS["all"], CONFIGS["2 groups of 2, attention"]]
)
def test_every_dropout_is_in_its_place(changes):
    config = override(SMALL, changes | DROPOUT)
    numbers = np.array([5, 6, 1000])
    keys = example_keys(17, np.int64(41), numbers)
    drop = numpy_dropout(numpy_keys(17, 41, numbers))
    features = random_features(config)

    pretraining = randomise(AlbertForPretraining(config))
    outputs = pretraining(features, dropout_keys=keys, training=True)
    oracle = NumpyAlbert(pretraining, drop)
    assert_equal(outputs, oracle.pretraining(features))

    classifier = randomise(AlbertForClassification(config, 2))
    outputs = classifier(features, dropout_keys=keys, training=True)
    oracle = NumpyAlbert(classifier, drop)
    assert_equal(outputs, oracle.classification(features))


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_padding_never_changes_an_output(sharing):
    model = randomise(
        AlbertForPretraining(override(SMALL, {"sharing": sharing}))
    )
    short = random_features(SMALL, batch=2, length=5)
    short["input_mask"][:] = 1
    rng = np.random.default_rng(3)

    def padded():
        features = dict(short)
        for name, high in (("input_ids", 23), ("segment_ids", 2)):
            junk = rng.integers(0, high, (2, 6))
            features[name] = np.concatenate([short[name], junk], 1)
        features["input_mask"] = np.pad(short["input_mask"], ((0, 0), (0, 6)))
        outputs = model(features)
        outputs["sequence_output"] = outputs["sequence_output"][:, :5]
        return {name: np.asarray(value) for name, value in outputs.items()}

    first = padded()
    assert_equal(model(short), first, tolerance=1e-6)
    # Other padding: not a bit differs.
    for name, value in padded().items():
        np.testing.assert_array_equal(value, first[name])


def test_an_example_does_not_see_its_neighbours():
    model = randomise(AlbertForPretraining(SMALL))
    features = random_features(SMALL)
    alone = {name: value[1:2] for name, value in features.items()}
    whole = {n: np.asarray(v)[1:2] for n, v in model(features).items()}
    assert_equal(model(alone), whole, tolerance=1e-6)


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
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        loss = sum(
            tf.reduce_sum(tf.nn.log_softmax(outputs[name])[..., 0])
            for name in ("masked_lm_logits", "sentence_order_logits")
        )
    variables = [v.value for v in model.trainable_variables]
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(
        model.trainable_variables, gradients, strict=True
    ):
        assert gradient is not None, variable.path
        size = float(tf.reduce_max(tf.abs(tf.convert_to_tensor(gradient))))
        # Softmax does not see a bias of the keys.
        assert size > 1e-4 or "key/bias" in variable.path, variable.path


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
    for changes in CONFIGS.values():
        model = AlbertForPretraining(override(SMALL, changes | DROPOUT))
        paths = [variable.path for variable in model.variables]
        assert len(paths) == len(set(paths))


def test_bfloat16_layers_keep_float32_weights_and_logits():
    policy = keras.DTypePolicy("mixed_bfloat16")
    model = randomise(AlbertForPretraining(SMALL, dtype=policy))
    features = random_features(SMALL)
    outputs = model(features)
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert outputs["sequence_output"].dtype == tf.bfloat16
    assert outputs["masked_lm_logits"].dtype == tf.float32
    assert outputs["sentence_order_logits"].dtype == tf.float32
    # bfloat16 has 8 bits: 1/256 per operation.
    outputs = {name: tf.cast(v, "float32") for name, v in outputs.items()}
    oracle = NumpyAlbert(model).pretraining(features)
    assert_equal(outputs, oracle, tolerance=0.05)
    classifier = AlbertForClassification(SMALL, 2, dtype=policy)
    assert classifier(features)["logits"].dtype == tf.float32


def test_a_sequence_longer_than_the_positions_is_refused():
    model = AlbertForPretraining(SMALL)
    model(random_features(SMALL, length=16))
    with pytest.raises(
        UserError, match="17 tokens exceeds max_position_embeddings=16"
    ):
        model(random_features(SMALL, length=17))


def test_a_graph_of_any_shape_gives_the_same():
    model = randomise(AlbertForPretraining(override(SMALL, DROPOUT)))
    spec = tf.TensorSpec([None, None], tf.int64)

    @tf.function
    def run(features, keys):
        return model(features, dropout_keys=keys, training=True)

    features = random_features(SMALL)
    graph = run.get_concrete_function(
        dict.fromkeys(features, spec), tf.TensorSpec([None], tf.uint32)
    )
    keys = example_keys(3, 4, np.arange(3))
    tensors = {name: tf.constant(value) for name, value in features.items()}
    eager = model(features, dropout_keys=keys, training=True)
    eager = {name: np.asarray(value) for name, value in eager.items()}
    assert_equal(graph(tensors, keys), eager)


def test_keras_fits_a_classifier():
    keras.utils.set_random_seed(0)
    config = override(SMALL, {"num_hidden_layers": 1, **DROPOUT})
    model = AlbertForClassification(config, 2)
    features = random_features(SMALL, batch=32)
    del features["masked_lm_positions"]
    features["segment_ids"][:] = 0
    labels = np.arange(32) % 2
    features["input_ids"][:, 0] = labels
    inputs = {
        name: keras.Input((7,), dtype="int32", name=name) for name in features
    }
    classifier = keras.Model(inputs, model(inputs)["logits"])
    classifier.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = classifier.fit(
        features, labels, batch_size=32, epochs=25, verbose=0
    )
    assert history.history["loss"][-1] < 0.3
    predicted = np.argmax(classifier(features), -1)
    assert (predicted == labels).mean() > 0.9
