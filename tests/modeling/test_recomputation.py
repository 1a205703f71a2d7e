"""Activation checkpointing: equal gradients in less memory."""

import os
import re

import keras
import pytest
import tensorflow as tf
from numpy_albert import DROPOUT, SMALL, random_features, randomise
from step_memory import memory_of_a_step
from tensorflow_forks import call
from test_heads_only import assert_equal_results, results

from albert_tf.config import REMAT, UserError, override
from albert_tf.modeling import recomputation
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertModel,
)
from albert_tf.modeling.recomputation import (
    recomputed,
    recomputed_product,
)

# In float32 sums round by the order of threads, now and then beyond the bounds.
DOUBLE = "float64"


def assert_recomputed_equal(
    model, features, remats=REMAT[1:], tolerance=1e-9, run=results, **options
):
    found = []
    for remat in ("none", *remats):
        model.encoder.remat = remat
        if model.encoder.seed_generator:
            # The masks of a given first draw.
            model.encoder.seed_generator.state.assign([7, 11])
        found.append(run(model, features, **options))
    for again in found[1:]:
        assert_equal_results(again, found[0], tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharing": "attention", "num_hidden_groups": 2, "inner_group_num": 2},
        {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    ],
)
def test_recomputed_gradients_are_equal(changes):
    config = override(SMALL, DROPOUT | changes)
    model = randomise(AlbertForPretraining(config, dtype=DOUBLE))
    features = random_features(config)
    # Masks are of keys, or are drawn: once for both computations.
    assert_recomputed_equal(model, features)
    assert_recomputed_equal(model, features, keys=None)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_recomputed_gradients_are_equal_in_a_graph(jit_compile):
    changes = DROPOUT | {"sharing": "ffn", "num_hidden_layers": 2}
    config = override(SMALL, changes)
    model = randomise(AlbertForClassification(config, 2, dtype=DOUBLE))
    features = {
        name: tf.constant(value, tf.int32)
        for name, value in random_features(config).items()
    }

    def run(*given):
        function = tf.function(
            results, autograph=False, jit_compile=jit_compile
        )
        return function(*given)

    assert_recomputed_equal(model, features, run=run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("remat", "tolerance"),
    # A shared weight's gradients are added in float32 either way; selective
    # adds the parts of a hidden state's in another order.
    [("full", 1e-6), ("selective", 0.003)],
)
def test_recomputed_gradients_in_bfloat16(remat, tolerance):
    config = override(SMALL, DROPOUT)
    policy = keras.DTypePolicy("mixed_bfloat16")
    model = randomise(AlbertForPretraining(config, dtype=policy))
    features = random_features(config)
    assert_recomputed_equal(model, features, [remat], tolerance)


def test_the_compiler_of_a_step_may_not_keep_an_activation():
    """It reads what the backward pass computes again behind a barrier."""

    @tf.function(jit_compile=True, autograph=False)
    def step(weight, x, gradient):
        with tf.GradientTape() as tape:
            tape.watch([weight, x])
            product = recomputed_product(keras.ops.tanh)(weight, x)
        return product, tape.gradient(product, [weight, x], gradient)

    matrix = tf.ones([8, 8])
    compiled = step.experimental_get_compiler_ir(matrix, matrix, matrix)
    program = compiled("hlo")
    read = re.findall(r" tanh\(\S+ (%\S+)\)", program)
    made_by = [
        re.search(rf"{name} = \S+ [a-z-]+\((\(.*\) (%\S+)\))?", program)
        for name in read
    ]
    forward, backward = sorted(made_by, key=lambda found: bool(found[2]))
    assert not forward[2]
    assert re.search(rf"{backward[2]} = .* opt-barrier\(", program)


def test_an_unknown_remat_is_refused():
    with pytest.raises(UserError, match="remat='some' is not one of none, sel"):
        AlbertModel(SMALL, remat="some")


@pytest.mark.parametrize("remat", REMAT[1:])
def test_only_training_is_recomputed(remat, monkeypatch):
    model = AlbertForClassification(SMALL, 2, remat=remat)
    calls = []
    monkeypatch.setattr(
        recomputation,
        "recomputed",
        lambda *given: calls.append(given) or recomputed(*given),
    )
    features = random_features(model.config)
    model(features)
    assert not calls
    model(features, training=True)
    # Once for a block.
    assert len(calls) == 3


@pytest.mark.slow
@pytest.mark.parametrize("num_cores", [1, 2])
def test_chained_gradients_and_recomputation_save_memory(num_cores):
    """Reads TensorFlow's own count of the bytes that tensors hold.

    A single thread may go on to other blocks before a weight's gradient.
    """
    cores = sorted(os.sched_getaffinity(0))[:num_cores]
    if len(cores) < num_cores:
        pytest.skip(f"needs {num_cores} cores")
    plain, selective, full = call(memory_of_a_step, cores)
    # Units are the weights: plain 9, what 8 applications computed and a few
    # gradients; full 6, a few gradients and one application; selective 6. Where
    # activations are kept plain is 11; where all gradients wait for each other
    # plain is 16 and full 9 to 11.
    assert 8 < plain < 10
    assert full < selective < 7
    assert full < 7
