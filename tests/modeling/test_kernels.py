"""Fused kernels against their plain functions."""

import functools
import gc
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import DROPOUT, SMALL, random_features, randomise
from test_heads_only import assert_equal_results, results

from albert_tf.config import override
from albert_tf.modeling import blocks, dropout, layers
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.kernels import chain_gradients, fused, product
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.recomputation import recomputed_product

TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2, "float16": 1e-3}
KEYS = example_keys(1, 2, np.arange(3))


def tensors(kind, *shapes):
    rng = np.random.default_rng(5)
    return [tf.cast(rng.normal(size=shape), kind) for shape in shapes]


def activation_case(kind, name="gelu"):
    function = layers.ACTIVATIONS[name]
    given = tensors(kind, (6, 40), (40,))
    return blocks._biased_activation, (function,), given


def sum_case(kind, rate=0.0, rows=False):
    shapes = (3, 5, 40), (40,), (3, 5, 40)
    given = tensors(kind, *shapes) + tensors("float32", (40,), (40,))
    drawing = [KEYS] if rate else []
    if rows:
        drawing.append(tf.constant([[0, 3, 3, 9, 0]] * 3))
    return blocks._fused_add_and_norm, (1e-6, rate), given + drawing


def dropped_case(kind):
    return dropout.apply_dropout, (0.4,), [*tensors(kind, (3, 2, 4, 5)), KEYS]


CASES = {
    **{name: (activation_case, name) for name in layers.ACTIVATIONS},
    "sum": (sum_case,),
    "sum with dropout": (sum_case, 0.3),
    "sum with dropout of some rows": (sum_case, 0.3, True),
    "dropout": (dropped_case,),
}


def with_gradients(function, given):
    """Returns the result and the gradients of the floats among the given."""
    floats = [x for x in given if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        result = function(*given)
        weight = tf.reshape(
            tf.cos(tf.range(tf.size(result), dtype=tf.float32)), result.shape
        )
        total = tf.reduce_sum(tf.cast(result, "float32") * weight)
    return [result, *tape.gradient(total, floats)]


def assert_close(ours, theirs, tolerance):
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        assert one.dtype == two.dtype
        one, two = (np.asarray(x, "float64") for x in (one, two))
        assert one.shape == two.shape
        assert np.abs(two).max() > 1e-3
        assert np.abs(one - two).max() <= tolerance * np.abs(two).max()


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_fused_kernel_equals_its_plain_function(case, kind):
    make, *options = case
    function, constants, given = make(kind, *options)
    plain = with_gradients(functools.partial(function, *constants), given)
    found = with_gradients(fused(function, *constants), given)
    assert_close(found, plain, TOLERANCE[kind])


def test_half_precision_is_summed_in_float32():
    # 256 + 1 is no bfloat16; 256 + 1 + 1 is.
    ones = tf.ones((1, 1, 4), "bfloat16")
    rise = tf.constant([[[0, 2, 4, 6]]], "bfloat16")
    given = [ones * 256 + rise, ones[0, 0], ones, tf.ones(4), tf.zeros(4)]
    (found,) = np.asarray(
        fused(blocks._fused_add_and_norm, 1e-6, 0.0)(*given), "float64"
    )[0]
    np.testing.assert_allclose(
        found, np.array([-3, -1, 1, 3]) / math.sqrt(5), rtol=4e-3
    )


@pytest.mark.parametrize("kind", TOLERANCE)
def test_a_product_whose_factor_is_recomputed(kind):
    function, constants, given = activation_case(kind)
    given = tensors(kind, (40, 60)) + given
    plain = with_gradients(
        lambda weight, *rest: tf.matmul(function(*constants, *rest), weight),
        given,
    )
    run = tf.function(recomputed_product(function, *constants))
    assert_close(with_gradients(run, given), plain, TOLERANCE[kind])


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("shape", [(40, 60), (60, 40)])
def test_the_gradients_of_a_product(shape, kind):
    given = tensors(kind, (6, shape[0]), shape)
    plain = with_gradients(tf.matmul, given)
    assert_close(with_gradients(tf.function(product), given), plain, 2e-6)


@pytest.mark.parametrize("uses", [1, 4])
def test_a_shared_weight_gets_the_sum_of_its_gradients(uses):
    weight, *parts = tensors("float32", *[(3, 4)] * (uses + 1))

    @tf.function
    def gradient(weight):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            shared, total = weight, 0.0
            for number, part in enumerate(parts, start=1):
                used, shared = chain_gradients(shared, weight, number == uses)
                # The second power makes the values count too.
                total += tf.reduce_sum(used * used * part)
        return tape.gradient(total, weight)

    expected = 2 * weight * tf.add_n(parts)
    np.testing.assert_allclose(gradient(weight), expected, rtol=1e-5)


def test_parts_of_a_gradient_are_added_in_the_weights_type():
    # 256 + 1 is no bfloat16.
    parts = [tf.constant([[x]], "bfloat16") for x in (1.0, 256.0, 1.0, 1.0)]
    weight = tf.ones((1, 1))
    with tf.GradientTape() as tape:
        tape.watch(weight)
        shared, cast = weight, tf.cast(weight, "bfloat16")
        totals = []
        for number, part in enumerate(parts):
            used, shared = chain_gradients(shared, cast, number == 3)
            totals.append(tf.cast(used * part, "float32"))
        total = tf.add_n(totals)
    assert tape.gradient(total, weight) == 259.0


# --- In models ------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, DROPOUT], ids=["", "dropout"])
def test_a_model_trains_as_with_plain_functions(changes, monkeypatch):
    # In float32 the rounding of sums differs between processors.
    config = override(SMALL, changes)
    model = randomise(AlbertForPretraining(config, dtype="float64"))
    features = random_features(model.config)

    def plain_product(*function):
        return lambda weight, *given: tf.matmul(
            functools.partial(*function)(*given), weight
        )

    found = results(model, features)
    monkeypatch.setattr(blocks, "fused", functools.partial)
    monkeypatch.setattr(dropout, "fused", functools.partial)
    monkeypatch.setattr(blocks, "product", tf.matmul)
    monkeypatch.setattr(blocks, "recomputed_product", plain_product)
    assert_equal_results(found, results(model, features), tolerance=1e-10)


def calls_in_graph(model, training):
    """Returns how many calls of compiled functions a model's graph has.

    And how many places with a gradient of their own.
    """

    def run(ids):
        features = dict.fromkeys(
            ("input_ids", "input_mask", "segment_ids", "masked_lm_positions"),
            ids,
        )
        return model(features, KEYS, training=training)

    graph = tf.function(run).get_concrete_function(
        tf.TensorSpec((None, None), tf.int32)
    )
    nodes = graph.graph.as_graph_def().node
    return (
        sum(node.attr["_XlaMustCompile"].b for node in nodes),
        sum(
            node.attr["_gradient_op_type"].s.startswith(b"CustomGradient")
            for node in nodes
        ),
    )


@pytest.mark.slow
def test_only_training_compiles():
    model = randomise(AlbertForPretraining(override(SMALL, DROPOUT)))
    assert calls_in_graph(model, training=False) == (0, 0)
    compiled_calls, gradients = calls_in_graph(model, training=True)
    assert compiled_calls == 13
    # Each with a gradient of its own.
    assert gradients >= compiled_calls


@pytest.mark.parametrize("remat", ["none", "selective"])
def test_quantized_layers_are_left_to_keras(remat, monkeypatch):
    # Keras calls it for each layer: seconds among all that tests have made.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    model = randomise(AlbertForPretraining(SMALL, remat=remat))
    features = random_features(model.config)
    block = model.encoder.blocks[0]
    before = model(features)["sequence_output"]
    for layer in (
        block.feed_forward.intermediate,
        block.feed_forward.output_dense,
        block.attention.output_dense,
        block.attention.key,
    ):
        layer.quantize("int8")
    plain = model(features)["sequence_output"]
    trained = model(features, KEYS, training=True)["sequence_output"]
    np.testing.assert_allclose(trained, plain, atol=1e-5)
    assert 0 < np.abs(before - plain).max() < 0.5


def test_double_precision_stays_double():
    policy = keras.DTypePolicy("float64")
    model = randomise(AlbertForPretraining(SMALL, dtype=policy))
    features = random_features(model.config)
    np.testing.assert_allclose(
        model(features, KEYS, training=True)["sequence_output"],
        model(features)["sequence_output"],
        atol=1e-12,
    )
