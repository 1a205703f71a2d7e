"""heads_only, num_applications: less work, same outputs."""

import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import (
    DROPOUT,
    SMALL,
    NumpyAlbert,
    numpy_dropout,
    numpy_keys,
    random_features,
    randomise,
)

from albert_tf.config import REMAT, SHARING, UserError, override
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import (
    AlbertForPretraining,
    AlbertModel,
    models,
)

KEYS = example_keys(3, 4, np.arange(3))
PLANS = {
    **{sharing: {"sharing": sharing} for sharing in SHARING},
    "groups": {
        "num_hidden_layers": 2,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
}


def pretraining_batch(config):
    features = random_features(config)
    # Padding has such positions; another one is masked twice.
    features["masked_lm_positions"][:, 2:] = 0
    features["masked_lm_positions"][0] = [5, 5, 1, 0]
    return features


def results(model, features, keys=KEYS, **options):
    """Returns the heads' outputs and every gradient of a loss on them."""
    with tf.GradientTape() as tape:
        outputs = model(features, keys, training=True, **options)
        names = [n for h in model.heads.values() for n in h.outputs]
        outputs = {n: outputs[n] for n in names if n in outputs}
        loss = sum(
            tf.reduce_sum(tf.sin(value + 1.0) * weight)
            for weight, value in enumerate(outputs.values(), start=1)
        )
    variables = [v.value for v in model.trainable_variables]
    found = tape.gradient(loss, variables)
    paths = [v.path for v in model.trainable_variables]
    found = [
        tf.zeros_like(v) if g is None else tf.convert_to_tensor(g)
        for v, g in zip(variables, found, strict=True)
    ]
    return outputs, dict(zip(paths, found, strict=True))


def assert_equal_results(found, expected, tolerance=1e-5):
    (ours, ours_gradients), (outputs, gradients) = found, expected
    assert set(ours) == set(outputs)
    for name, value in outputs.items():
        np.testing.assert_allclose(
            ours[name], value, atol=tolerance, err_msg=name
        )
    for path, value in gradients.items():
        scale = max(np.abs(value).max(), 1.0)
        error = np.abs(np.asarray(ours_gradients[path]) - np.asarray(value))
        assert error.max() <= tolerance * scale, path


def assert_same(model, features, tolerance=1e-5, **options):
    expected = results(model, features, **options)
    found = results(model, features, heads_only=True, **options)
    assert_equal_results(found, expected, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "remat"),
    [
        *((changes, "none") for changes in PLANS.values()),
        *((PLANS["groups"], remat) for remat in REMAT[1:]),
    ],
    ids=[*PLANS, *REMAT[1:]],
)
def test_outputs_and_gradients_are_those_of_the_whole(changes, remat):
    config = override(SMALL, DROPOUT | changes)
    model = randomise(AlbertForPretraining(config, remat=remat))
    features = pretraining_batch(config)
    assert_same(model, features)
    if remat == "none":
        assert_same(model, features, num_applications=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, kind in models().items() if kind.head_names]
)
def test_heads_only_of_every_model(name):
    kind = models()[name]
    config = override(SMALL, DROPOUT | {"num_hidden_layers": 2})
    labels = {"num_labels": 3} if kind.takes_labels() else {}
    model = randomise(kind(config, **labels))
    features = pretraining_batch(config)
    features["p_mask"] = 1 - features["input_mask"]
    if name == "AlbertForMultipleChoice":
        for key in ("input_ids", "input_mask", "segment_ids"):
            parts = [features[key], features[key][::-1]]
            features[key] = np.stack(parts, axis=1)
    assert_same(model, features)
    given = model(features, heads_only=True)
    declared = {n for h in model.heads.values() for n in h.outputs}
    assert set(given) == declared
    whole = model(features)
    for output, value in given.items():
        np.testing.assert_allclose(value, whole[output], atol=1e-5)


@pytest.mark.slow
def test_heads_only_in_a_graph_of_any_shape():
    config = override(SMALL, DROPOUT)
    model = randomise(AlbertForPretraining(config))
    features = pretraining_batch(config)
    options = {"training": True, "heads_only": True}
    expected = model(features, KEYS, **options)
    graph = tf.function(
        lambda features, keys: model(features, keys, **options),
        input_signature=[
            {n: tf.TensorSpec((None, None), tf.int64) for n in features},
            tf.TensorSpec((None,), tf.uint32),
        ],
    )
    found = graph({n: tf.constant(v) for n, v in features.items()}, KEYS)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(AlbertForPretraining, {"output_attentions": True}), (AlbertModel, {})],
)
def test_heads_only_needs_heads_and_gives_nothing_else(kind, options):
    with pytest.raises(UserError, match="outputs of heads only, which Albert"):
        kind(SMALL)(random_features(SMALL), heads_only=True, **options)


def test_the_positions_that_heads_read_cannot_be_replaced():
    """Their logits would be those of other positions."""
    features = random_features(SMALL)
    others = features["masked_lm_positions"][:, ::-1]
    with pytest.raises(TypeError, match="keyword argument 'read_positions'"):
        AlbertForPretraining(SMALL)(features, read_positions=others)


# --- The first blocks of the plan -----------------------------------------


@pytest.mark.parametrize("changes", PLANS.values(), ids=PLANS)
def test_fewer_applications_are_the_first_of_the_plan(changes):
    config = override(SMALL, DROPOUT | changes)
    model = randomise(AlbertForPretraining(config))
    features = random_features(config)
    most = len(model.encoder.applications)
    for training in (False, True):
        drop = numpy_dropout(numpy_keys(3, 4, np.arange(3)))
        oracle = NumpyAlbert(model, *([drop] if training else []))
        oracle(features)
        for count in range(1, most + 1):
            outputs = model(
                features, KEYS, training=training, num_applications=count
            )
            expected = oracle.hidden_states[count]
            np.testing.assert_allclose(
                outputs["sequence_output"], expected, atol=3e-5
            )
            pooled = np.tanh(oracle.dense(expected[:, 0], "pooler"))
            np.testing.assert_allclose(
                outputs["pooled_output"], pooled, atol=3e-5
            )


@pytest.mark.parametrize("count", [0, 4, 2.0])
def test_a_wrong_number_of_applications_is_refused(count):
    model = AlbertForPretraining(SMALL)
    message = f"num_applications={count!r} must be a whole number from 1 to 3"
    with pytest.raises(UserError, match=message):
        model(random_features(SMALL), num_applications=count)
