"""Models and LAMB on JAX, where TensorFlow is not loaded: the same numbers."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy_optimizers import numpy_steps
from test_heads import CONFIG, batch_of, model_of

from albert_tf.config import to_dict
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.models import models

ON_JAX = """
import json
import sys
import jax
import numpy as np
import keras
assert keras.backend.backend() == "jax"
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.kernels import shared_use
from albert_tf.modeling.models import models
from albert_tf.optim.lamb import Lamb

given = np.load("given.npz")
config = json.loads(str(given["config"]))
found = {}
for name, kind in models().items():
    labels = {"num_labels": 3} if kind.takes_labels() else {}
    options = {}
    if "Answerable" in name:
        options = {"head_options": {"start_n_top": 3, "end_n_top": 2}}
    parts = {
        tuple(key.split(":")[1:]): given[key]
        for key in given.files
        if key.split(":")[0] == name
    }
    model = kind(config, remat="full", **labels, **options)
    for number, variable in enumerate(model.trainable_variables):
        variable.assign(parts["weight", str(number)])
    features = {k[1]: v for k, v in parts.items() if k[0] == "feature"}
    keys = example_keys(17, np.int32(41), np.arange(3))
    for training in (False, True):
        outputs = model(features, dropout_keys=keys, training=training)
        for key, value in outputs.items():
            found[f"{name}:{training}:{key}"] = np.asarray(value)
    # And with masks that are drawn.
    model(features, training=True)

# Recomputed gradients are equal.
features = {
    key.split(":")[2]: given[key]
    for key in given.files
    if key.startswith("AlbertModel:feature:")
}
model = models()["AlbertModel"](config)
variables = model.trainable_variables

def loss(values):
    with keras.StatelessScope(list(zip(variables, values))):
        outputs = model(features, dropout_keys=keys, training=True)
        return (outputs["pooled_output"] ** 2).sum()

values = [variable.value for variable in variables]
plain = jax.grad(loss)(values)
for remat in ("selective", "full"):
    model.encoder.remat = remat
    # Anew, or JAX would remember the trace of another.
    gradient = jax.jit(jax.grad(lambda values: loss(values)))
    for one, two in zip(plain, gradient(values)):
        np.testing.assert_allclose(one, two, atol=1e-6)
assert max(abs(part).max() for part in plain) > 1e-4

# Parts of a gradient are added in the weight's type: 256 + 1 is no bfloat16.
def total(weight):
    value, sums = weight.astype("bfloat16"), 0.0
    for number, part in enumerate([1.0, 1.0, 256.0, 1.0]):
        used, weight = shared_use(weight, value, number == 3)
        sums += (used * part).sum().astype("float32")
    return sums

assert jax.grad(total)(jax.numpy.ones((1, 1))) == 259.0

names = ["kernel", "dense_bias", "zero_weight"]
variables = [keras.Variable(given["initial:" + n], name=n) for n in names]
optimizer = Lamb(0.02, 0.8, 0.95, 1e-3, 0.1, bias_correction=True)
optimizer.build(variables)
step = jax.jit(optimizer.stateless_apply)
for number in range(2):
    weights, state = step(
        [v.value for v in optimizer.variables],
        [given["gradients:" + n][number] for n in names],
        [v.value for v in variables],
    )
    for variable, value in zip(
        [*variables, *optimizer.variables], [*weights, *state], strict=True
    ):
        variable.assign(value)
updated = {"updated:" + v.name: np.asarray(v) for v in variables}
ratios = {"ratio:" + n: r for n, r in optimizer.trust_ratios().items()}
assert "tensorflow" not in sys.modules
np.savez("found.npz", **found)
np.savez("updated.npz", **updated, **ratios)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
def test_jax_gives_the_same_outputs_and_updates(tmp_path):
    given = {"config": json.dumps(to_dict(CONFIG))}
    rng = np.random.default_rng(0)
    initial = {
        "kernel": rng.normal(size=(4, 3)).astype("float32"),
        "dense_bias": rng.normal(size=3).astype("float32"),
        "zero_weight": np.zeros((3, 2), "float32"),
    }
    gradients = {
        name: rng.normal(size=(2, *weight.shape)).astype("float32")
        for name, weight in initial.items()
    }
    for name, weight in initial.items():
        given[f"initial:{name}"] = weight
        given[f"gradients:{name}"] = gradients[name]
    for name in models():
        for number, variable in enumerate(model_of(name).trainable_variables):
            given[f"{name}:weight:{number}"] = np.asarray(variable)
        for key, value in batch_of(name).items():
            given[f"{name}:feature:{key}"] = value
    np.savez(tmp_path / "given.npz", **given)
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    subprocess.run(
        [sys.executable, "-c", ON_JAX],
        cwd=tmp_path,
        env=os.environ
        | {"KERAS_BACKEND": "jax", "PYTHONPATH": os.path.abspath(root)},
        check=True,
    )
    found = np.load(tmp_path / "found.npz")
    expected = {}
    for name in models():
        for training in (False, True):
            outputs = model_of(name)(
                batch_of(name),
                dropout_keys=example_keys(17, np.int64(41), np.arange(3)),
                training=training,
            )
            for key, value in outputs.items():
                expected[f"{name}:{training}:{key}"] = np.asarray(value)
    assert set(found.files) == set(expected)
    for key, value in expected.items():
        scale = np.abs(value[np.abs(value) < 1e9]).max()
        np.testing.assert_allclose(
            found[key], value, rtol=1e-5, atol=1e-5 * scale, err_msg=key
        )
    updated = np.load(tmp_path / "updated.npz")
    for name, weight in initial.items():
        rules = name != "dense_bias"
        *_, (after, ratio) = numpy_steps(
            weight,
            gradients[name],
            decays=rules,
            adapts=rules,
            bias_correction=True,
        )
        np.testing.assert_allclose(
            updated[f"updated:{name}"], after, rtol=2e-5, atol=2e-6
        )
        if rules:
            got = float(updated[f"ratio:{name}"])
            assert got == pytest.approx(ratio, rel=2e-5)
