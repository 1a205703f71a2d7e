"""Fused kernels against their plain functions."""

import functools
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
from albert_tf.modeling.kernels import (
    argmax,
    compiled,
    fused,
    product,
    recomputed_product,
    shared_use,
    states_at,
    with_gradient,
)
from albert_tf.modeling.models import AlbertForPretraining

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
    return blocks._normalized_sum, (1e-6, rate), given + drawing


def dropped_case(kind):
    return dropout.dropped, (0.4,), [*tensors(kind, (3, 2, 4, 5)), KEYS]


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
        fused(blocks._normalized_sum, 1e-6, 0.0)(*given), "float64"
    )[0]
    np.testing.assert_allclose(
        found, np.array([-3, -1, 1, 3]) / math.sqrt(5), rtol=4e-3
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_fused_kernel_in_a_loop_in_a_graph(jit_compile):
    function, constants, given = sum_case("float32", 0.3)

    def looped(chain):
        def call(output, *rest):
            return tf.while_loop(
                lambda i, x: i < 3,
                lambda i, x: (i + 1, chain(x, *rest)),
                (0, output),
                maximum_iterations=3,
            )[1]

        return call

    def compiled(chain):
        run = functools.partial(with_gradients, looped(chain))
        return tf.function(run, jit_compile=jit_compile)(given)

    assert_close(
        compiled(fused(function, *constants)),
        with_gradients(looped(functools.partial(function, *constants)), given),
        5e-6,
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


def test_the_gradient_given_is_the_one_taken():
    run = with_gradient(
        lambda x, n: (x * n, n, n + 1), lambda g, n, m, x, _: g * x * m * n
    )
    x, n = tf.constant([2.0, 3.0]), tf.constant([5.0, 7.0])
    with tf.GradientTape() as tape:
        tape.watch([x, n])
        result = run(x, n)
    np.testing.assert_array_equal(result, [10, 21])
    found = tape.gradient(result, [x, n], tf.constant([1.0, 10.0]))
    np.testing.assert_array_equal(found[0], [2 * 6 * 5, 10 * 3 * 8 * 7])
    assert found[1] is None


def test_argmax_is_the_first_of_the_largest():
    x = np.array([[1, 3, 3], [-2, -1, -4], [-0.0, 0, -1]], "float32")
    for values in (x, tf.cast(x, "bfloat16")):
        found = argmax(values)
        np.testing.assert_array_equal(found, [1, 1, 0])
        assert found.dtype == tf.int32


@pytest.mark.parametrize("uses", [1, 2, 4])
@pytest.mark.parametrize("kind", TOLERANCE)
def test_a_shared_weight_gets_the_sum_of_its_gradients(uses, kind):
    (weight,) = tensors("float32", (3, 4))
    parts = tensors(kind, *[(3, 4)] * uses)

    @tf.function
    def gradient(weight):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            shared, cast = weight, tf.cast(weight, kind)
            total = 0.0
            for number, part in enumerate(parts, start=1):
                used, shared = shared_use(shared, cast, number == uses)
                assert used.dtype == part.dtype
                # Of the second power, so that values count too.
                total += tf.reduce_sum(tf.cast(used * used * part, "float32"))
        return tape.gradient(total, weight)

    found = np.asarray(gradient(weight))
    assert found.dtype == np.float32
    rounded = np.asarray(tf.cast(weight, kind), "float64")
    expected = sum(2 * rounded * np.asarray(p, "float64") for p in parts)
    # Each part is of the smaller type, their sum is not.
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() <= TOLERANCE[kind] * scale


def test_parts_of_a_gradient_are_added_in_the_weights_type():
    # 256 + 1 is no bfloat16.
    parts = [tf.constant([[x]], "bfloat16") for x in (1.0, 256.0, 1.0, 1.0)]
    weight = tf.ones((1, 1))
    with tf.GradientTape() as tape:
        tape.watch(weight)
        shared, cast = weight, tf.cast(weight, "bfloat16")
        totals = []
        for number, part in enumerate(parts):
            used, shared = shared_use(shared, cast, number == 3)
            totals.append(tf.cast(used * part, "float32"))
        total = tf.add_n(totals)
    assert tape.gradient(total, weight) == 259.0


def test_compiled_reads_variables_and_gives_several_results():
    variable = keras.Variable(np.arange(3.0, dtype="float32"))
    run = compiled(lambda factor, x, y: (factor * x, x + y), 3.0)
    for call in (run, tf.function(lambda v: run(v, tf.ones(3)))):
        arguments = (variable, tf.ones(3)) if call is run else (variable,)
        one, two = call(*arguments)
        np.testing.assert_array_equal(one, [0, 3, 6])
        np.testing.assert_array_equal(two, [1, 2, 3])


def test_states_at_positions_that_repeat():
    (hidden,) = tensors("float32", (2, 5, 3))
    positions = tf.constant([[4, 0, 0], [2, 2, 1]])

    def plain(hidden, positions):
        return keras.ops.take_along_axis(hidden, positions[..., None], axis=1)

    given = [hidden, positions]
    assert_close(
        with_gradients(states_at, given), with_gradients(plain, given), 1e-7
    )


# --- In models ------------------------------------------------------------


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


def test_only_training_compiles():
    model = randomise(AlbertForPretraining(override(SMALL, DROPOUT)))
    assert calls_in_graph(model, training=False) == (0, 0)
    compiled_calls, gradients = calls_in_graph(model, training=True)
    assert compiled_calls == 13
    # Each with a gradient of its own.
    assert gradients >= compiled_calls


@pytest.mark.parametrize("remat", ["none", "selective"])
def test_quantized_layers_are_left_to_keras(remat):
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
