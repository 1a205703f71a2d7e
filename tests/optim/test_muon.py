"""Muon and NorMuon equal NumPy."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import SMALL
from numpy_optimizers import RULES, numpy_steps

from albert_tf.config import OptimizerConfig, override
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.optim.muon import Muon, NorMuon
from albert_tf.optim.optimizers import build_optimizer


def orthogonalized(matrix):
    """Returns five quintic Newton-Schulz iterations (Jordan et al. 2024)."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / np.sqrt((x**2).sum())
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


@pytest.mark.parametrize("kind", ["muon", "normuon"])
@pytest.mark.parametrize(
    # Products of bfloat16 have 3 digits.
    "compute_dtype, close",
    [("float32", 1e-5), ("bfloat16", 1e-3), ("float16", 1e-3)],
)
def test_muon_equals_numpy(kind, compute_dtype, close):
    # Keras adds epsilon before the correction of the moments.
    rules = RULES | {"epsilon": 1e-9}
    rng = np.random.default_rng(3)
    shapes = {"kernel": (4, 6), "tall_kernel": (6, 4), "embeddings": (7, 2)}
    shapes["bias"] = (5,)
    weights = {n: rng.normal(size=s) for n, s in shapes.items()}
    gradients = {n: rng.normal(size=(3, *s)) for n, s in shapes.items()}
    variables = [
        keras.Variable(w, dtype="float32", name=n) for n, w in weights.items()
    ]
    optimizer = build_optimizer(
        override(OptimizerConfig(), rules | {"optimizer": kind}), compute_dtype
    )
    optimizer.build(variables)
    for step in range(3):
        optimizer.apply(
            [tf.constant(g[step], "float32") for g in gradients.values()]
        )
    for variable, name in zip(variables, shapes, strict=True):
        w, momentum, of_neurons = weights[name], 0.0, 0.0
        if "kernel" in name:
            for gradient in gradients[name]:
                w = w * (1 - 0.02 * 0.1)
                momentum = 0.95 * momentum + gradient
                update = orthogonalized(gradient + 0.95 * momentum)
                if kind == "normuon":
                    square = (update**2).mean(axis=0)
                    of_neurons = 0.95 * of_neurons + 0.05 * square
                    update = update / np.sqrt(of_neurons)
                    update = update / np.sqrt((update**2).mean())
                else:
                    update = np.sqrt(6) * update
                w = w - 0.02 * 0.2 * update
        else:
            *_, (w, _) = numpy_steps(
                w,
                gradients[name],
                decays=name == "embeddings",
                adapts=False,
                bias_correction=True,
                rules=rules,
            )
        np.testing.assert_allclose(variable, w, rtol=1e-4, atol=close)


def test_normuon_without_a_gradient_changes_nothing():
    kernel = keras.Variable(np.ones((4, 6), "float32"), name="kernel")
    optimizer = NorMuon(0.02, weight_decay_rate=0.0)
    optimizer.apply([tf.zeros((4, 6))], [kernel])
    np.testing.assert_array_equal(kernel, np.ones((4, 6)))


def test_normuon_without_nesterov_takes_the_momentum_itself():
    rng = np.random.default_rng(4)
    gradients = rng.normal(size=(2, 4, 6)).astype("float32")
    kernel = keras.Variable(np.zeros((4, 6), "float32"), name="kernel")
    optimizer = NorMuon(0.02, weight_decay_rate=0.0, nesterov=False)
    expected, momentum, of_neurons = 0.0, 0.0, 0.0
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient)], [kernel])
        momentum = 0.95 * momentum + gradient
        update = orthogonalized(momentum)
        of_neurons = 0.95 * of_neurons + 0.05 * (update**2).mean(axis=0)
        update = update / np.sqrt(of_neurons)
        size = np.sqrt((update**2).mean())
        expected = expected - 0.02 * 0.2 * update / size
    np.testing.assert_allclose(kernel, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Muon, NorMuon])
def test_a_models_name_decides_nothing(kind):
    model = AlbertForClassification(SMALL, 2, name="bias_of_embeddings")
    optimizer = kind(0.01)
    optimizer.build(model.trainable_variables)
    moved = {
        v.path
        for v, velocity in zip(
            model.trainable_variables, optimizer.adam_velocities, strict=True
        )
        if velocity is None
    }
    assert moved == {
        v.path
        for v in model.trainable_variables
        if len(v.shape) == 2 and "/embeddings/" not in v.path
    }


def test_layers_to_exclude_are_named_as_in_their_paths():
    head = keras.layers.Dense(2, name="classifier")
    inputs = keras.Input((3,))
    # A layer of a functional model has no model's name before it.
    model = keras.Model(inputs, keras.layers.Dense(4)(head(inputs)))
    optimizer = Muon(0.01, exclude_layers=["classifier"])
    optimizer.build(model.trainable_variables)
    moved = [velocity is None for velocity in optimizer.adam_velocities]
    assert moved == [False, False, True, False]


def test_serialization_of_normuon():
    optimizer = NorMuon(neuron_beta=0.9, compute_dtype="bfloat16", name="mine")
    written = json.dumps(keras.optimizers.serialize(optimizer))
    again = keras.optimizers.deserialize(json.loads(written))
    assert type(again) is NorMuon
    assert again.get_config() == optimizer.get_config()
    assert (again.neuron_beta, again.compute_dtype) == (0.9, "bfloat16")


def test_decays_of_keras_are_refused():
    with pytest.raises(ValueError, match="weight_decay=0.2 .*Muon does not"):
        Muon(adam_weight_decay=0.2)
