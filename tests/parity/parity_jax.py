"""Our models on the JAX backend of Keras against the TensorFlow backend.

A backend is chosen once per process, so this file is also the program that
computes one side: python parity_jax.py DIRECTORY, with KERAS_BACKEND=jax. It
opens every model directory in DIRECTORY and writes its results into it.
"""

import itertools
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from albert_tf.config import REMAT, ModelConfig, override
from albert_tf.modeling import attention
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.kernels import chain_gradients
from albert_tf.modeling.models import models
from albert_tf.optim.lamb import Lamb

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Relative to the largest entry of each tensor, as for transformers.
BOUND = 1e-5
GRADIENT_BOUND = 1e-4
# See parity_transformers.py.
LEAST_SCALE = 1e-2

BATCH, CHOICES, LENGTH, NUM_LABELS = 3, 2, 7, 4
SHAPES = {
    "all": {"num_hidden_groups": 2, "inner_group_num": 2},
    "attention": {"sharing": "attention", "hidden_act": "gelu_exact"},
    "ffn": {"sharing": "ffn", "hidden_act": "relu", "embedding_size": 12},
    "none": {"sharing": "none", "layer_norm_eps": 0.1},
    "mean_max": {"pooling": "mean_max"},
}
POOLED = ("AlbertForClassification", "AlbertForMultipleChoice")


def architecture(shape):
    """Dropout is on: its masks are a function of keys on every backend."""
    changes = {
        "vocab_size": 31,
        "embedding_size": 6,
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout_prob": 0.3,
        "max_position_embeddings": 9,
    }
    return override(ModelConfig(), changes | SHAPES[shape])


def new_model(kind, shape):
    labels = NUM_LABELS if models()[kind].takes_labels() else None
    model = models()[kind](architecture(shape), labels)
    rng = np.random.default_rng(len(kind))
    for variable in model.trainable_variables:
        # See parity_transformers.py.
        size = 0.1 if len(variable.shape) == 1 else variable.shape[1] ** -0.5
        value = rng.normal(size=variable.shape) * size
        variable.assign(value + ("gamma" in variable.path))
    return model


def random_features(kind):
    rng = np.random.default_rng(len(kind))
    shape = (BATCH, LENGTH)
    labels = rng.integers(0, CHOICES, BATCH)
    if kind == "AlbertForMultipleChoice":
        shape = (BATCH, CHOICES, LENGTH)
    elif kind == "AlbertForTokenClassification":
        labels = rng.integers(0, NUM_LABELS, shape)
    elif kind == "AlbertForMultiLabelClassification":
        labels = rng.integers(0, 2, (BATCH, NUM_LABELS))
    lengths = rng.integers(3, LENGTH + 1, (*shape[:-1], 1))
    mask = np.arange(LENGTH) < lengths
    return {
        "input_ids": rng.integers(1, 31, shape),
        "input_mask": mask.astype("int64"),
        "segment_ids": rng.integers(0, 2, shape),
        "masked_lm_positions": rng.integers(0, 3, (BATCH, 4)),
        "masked_lm_ids": rng.integers(0, 31, (BATCH, 4)),
        "masked_lm_weights": np.array([[1, 1, 1, 0]] * BATCH, "float32"),
        "sentence_order_labels": rng.integers(0, 2, BATCH),
        "label_ids": labels,
        "start_positions": rng.integers(0, 3, BATCH),
        "end_positions": rng.integers(0, 3, BATCH),
        "is_impossible": rng.integers(0, 2, BATCH),
        "p_mask": (np.arange(LENGTH) >= 5) * np.ones((BATCH, 1), "int64"),
    }


# --- One side: on whatever backend this process has -----------------------


def training_loss(model, features, outputs):
    """The heads' loss; for a model without one, something of its outputs."""
    if any(head.labelled_outputs for head in model.heads.values()):
        return model.compute_loss(features, None, outputs)
    return keras.ops.mean(keras.ops.sin(outputs["sequence_output"]))


def jax_outputs(model, features, keys):
    """(outputs, (loss, outputs in training), gradients of the variables)."""
    import jax

    values = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def evaluate(values, features):
        every = {"output_hidden_states": True, "output_attentions": True}
        return model.stateless_call(values, others, features, **every)[0]

    def train(values, features, keys):
        outputs, _ = model.stateless_call(
            values, others, features, dropout_keys=keys, training=True
        )
        with keras.StatelessScope():
            return training_loss(model, features, outputs), outputs

    # Operation by operation JAX would compile each of them.
    trained, gradients = jax.jit(jax.value_and_grad(train, has_aux=True))(
        values, features, keys
    )
    return jax.jit(evaluate)(values, features), trained, gradients


def tensorflow_outputs(model, features, keys):
    """The same."""
    import tensorflow as tf

    every = {"output_hidden_states": True, "output_attentions": True}
    values = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        outputs = model(features, dropout_keys=keys, training=True)
        loss = training_loss(model, features, outputs)
    gradients = tape.gradient(
        loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return model(features, **every), (loss, outputs), gradients


def lamb_updates(model):
    """Both steps' weights; the gradients are drawn, not those of the model.

    Of a gradient that is but rounding LAMB would make a step of full size.
    """
    rng = np.random.default_rng(0)
    variables = model.trainable_variables
    optimizer = Lamb(learning_rate=0.01)
    optimizer.build(variables)
    for _ in range(2):
        gradients = [
            (rng.normal(size=v.shape) * 1e-3).astype("float32")
            for v in variables
        ]
        optimizer.apply(list(map(keras.ops.convert_to_tensor, gradients)))
    return {variable.path: variable for variable in variables}


def flat(group, outputs):
    """Arrays by `<group>/<name>`."""
    arrays = {}
    for name, value in outputs.items():
        values = value if isinstance(value, list) else [value]
        for number, item in enumerate(values):
            array = keras.ops.convert_to_numpy(item)
            arrays[f"{group}/{name} {number}"] = array
    return arrays


def results(directory, kind):
    """What one model gives: all that is compared, by `<group>/<name>`."""
    model = models()[kind].from_pretrained(directory)
    keys = example_keys(3, np.int64(8), np.arange(BATCH))
    compute = {"jax": jax_outputs, "tensorflow": tensorflow_outputs}
    outputs, (loss, training_outputs), gradients = compute[
        keras.backend.backend()
    ](model, random_features(kind), keys)
    paths = [variable.path for variable in model.trainable_variables]
    return {
        **flat("outputs", outputs),
        **flat("outputs in training", training_outputs),
        **flat("loss in training", {"loss": loss}),
        **flat("gradients", dict(zip(paths, gradients, strict=True))),
        **flat("weights after 2 updates of LAMB", lamb_updates(model)),
    }


def check_gradients():
    """Asserts what only JAX computes so: recomputed and compiled gradients."""
    import jax

    kind = "AlbertForPretraining"
    model, features = new_model(kind, "all"), random_features(kind)
    keys = example_keys(3, np.int64(8), np.arange(BATCH))
    found = []
    for remat in REMAT:
        model.encoder.remat = remat
        found.append(jax_outputs(model, features, keys)[2])
        # And with masks that are drawn.
        model(features, training=True)
    # Blocks of queries are computed again, each for itself.
    attention.LONGEST_CHUNK = 4
    found.append(jax_outputs(model, features, keys)[2])
    gradients, *recomputed = found
    assert max(abs(part).max() for part in gradients) > 1e-4
    for again in recomputed:
        for one, two in zip(gradients, again, strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)

    # Parts are added in the weight's type: 256 + 1 is no bfloat16.
    def total(weight):
        value, sums = weight.astype("bfloat16"), 0.0
        for number, part in enumerate([1.0, 1.0, 256.0, 1.0]):
            used, weight = chain_gradients(weight, value, number == 3)
            sums += (used * part).sum().astype("float32")
        return sums

    assert jax.grad(total)(jax.numpy.ones((1, 1))) == 259.0

    optimizer = Lamb(0.01, bias_correction=True)
    variables = model.trainable_variables
    optimizer.build(variables)
    updated, _ = jax.jit(optimizer.stateless_apply)(
        [v.value for v in optimizer.variables],
        gradients,
        [v.value for v in variables],
    )
    optimizer.apply(gradients)
    for variable, value in zip(variables, updated, strict=True):
        np.testing.assert_allclose(variable, value, rtol=1e-5, atol=1e-6)


def main(directory):
    for name in sorted(os.listdir(directory)):
        arrays = results(os.path.join(directory, name), name.split()[0])
        np.savez(os.path.join(directory, name, "results.npz"), **arrays)
    check_gradients()
    assert "tensorflow" not in sys.modules
    print(keras.backend.backend())


# --- The comparison -------------------------------------------------------


@pytest.mark.parametrize("half", [0, 1])
def test_jax_gives_the_same(tmp_path, record_difference, half):
    assert keras.backend.backend() == "tensorflow"
    cases = [("AlbertForPretraining", shape) for shape in SHAPES]
    shapes = itertools.cycle(SHAPES)
    cases += zip(models(), shapes, strict=False)
    cases += [(kind, "mean_max") for kind in POOLED]
    # Two tests, for two processes.
    cases = dict.fromkeys(cases[half::2])
    for kind, shape in cases:
        place = str(tmp_path / f"{kind} {shape}")
        new_model(kind, shape).save_pretrained(place)
    finished = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env=os.environ
        | {
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert finished.stdout.split()[-1] == "jax"
    for kind, shape in cases:
        place = tmp_path / f"{kind} {shape}"
        ours = results(str(place), kind)
        with np.load(place / "results.npz") as file:
            theirs = {name: file[name] for name in file.files}
        compare(kind, ours, theirs, record_difference)


def compare(kind, ours, theirs, record):
    assert ours.keys() == theirs.keys()
    sizes = [
        np.abs(value).max()
        for name, value in ours.items()
        if name.startswith("gradients/")
    ]
    for name, value in ours.items():
        group = name.partition("/")[0]
        other = theirs[name]
        assert value.shape == other.shape, name
        difference = np.abs(value.astype("float64") - other).max()
        scale = np.abs(value).max()
        bound = BOUND
        if group == "gradients":
            scale = max(scale, LEAST_SCALE * max(sizes))
            bound = GRADIENT_BOUND
        if difference:
            difference /= scale
        record(f"JAX backend, {kind}", group, difference, bound)


if __name__ == "__main__":
    main(sys.argv[1])
