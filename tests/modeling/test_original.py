"""Our model and optimizer against recorded numbers of the originals.

tests/data/README.md says where the numbers come from.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.interchange import google_tf1
from albert_tf.modeling.losses import weighted_cross_entropy
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.weights.names import named_weights
from albert_tf.modeling.weights.stored_weights import load_stored_weights
from albert_tf.optim.lamb import Lamb

DATA = Path(__file__).resolve().parents[1] / "data"
KEY_BIAS = (
    "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/key/bias"
)


def relative_error(ours, theirs):
    """Returns the largest difference over the largest reference value."""
    ours, theirs = np.asarray(ours, "float64"), np.asarray(theirs, "float64")
    assert ours.shape == theirs.shape
    return np.abs(ours - theirs).max() / np.abs(theirs).max()


@pytest.fixture(scope="module")
def reference():
    with np.load(DATA / "google_tf1_reference.npz") as file:
        return {name: file[name] for name in file.files}


def _part(reference, prefix):
    return {
        name.removeprefix(prefix): value
        for name, value in reference.items()
        if name.startswith(prefix)
    }


@pytest.fixture(scope="module")
def ours(reference, tmp_path_factory):
    """Returns our outputs and, by Google's names, our gradients."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "albert_config.json").write_text(str(reference["config"]))
    checkpoint = str(folder / "model.ckpt-125000")
    google_tf1.write_checkpoint(checkpoint, _part(reference, "weight:"))
    model = AlbertForPretraining(google_tf1.config_beside(checkpoint))
    assert load_stored_weights(model, google_tf1.open_weights(checkpoint)) == []
    rows = named_weights(model, "google")
    batch = _part(reference, "input:")
    with tf.GradientTape() as tape:
        outputs = dict(model(batch))
        mlm, weight = weighted_cross_entropy(
            outputs["masked_lm_logits"],
            batch["masked_lm_ids"],
            batch["masked_lm_weights"],
        )
        sop, count = weighted_cross_entropy(
            outputs["sentence_order_logits"],
            batch["sop_labels"],
            np.ones(len(batch["sop_labels"]), "float32"),
        )
        # The original guards its division so; ours divides by the weight.
        outputs["mlm_loss"] = mlm / (weight + 1e-5)
        outputs["sop_loss"] = sop / count
        loss = outputs["mlm_loss"] + outputs["sop_loss"]
    for name, logits in (
        ("mlm_log_probs", outputs["masked_lm_logits"]),
        ("sop_log_probs", outputs["sentence_order_logits"]),
    ):
        flat = tf.reshape(logits, (-1, logits.shape[-1]))
        outputs[name] = tf.nn.log_softmax(flat)
    gradients = tape.gradient(loss, [row.variable.value for row in rows])
    by_name = {}
    for row, gradient in zip(rows, gradients, strict=True):
        by_name[row.name] = row.transposed(
            tf.convert_to_tensor(gradient).numpy()
        )
    return outputs, by_name


@pytest.mark.parametrize(
    "name",
    [
        *("sequence_output", "pooled_output", "mlm_loss", "sop_loss"),
        *("mlm_log_probs", "sop_log_probs"),
    ],
)
def test_outputs_equal_the_originals(reference, ours, name):
    assert relative_error(ours[0][name], reference[f"output:{name}"]) < 1e-5


def test_every_gradient_equals_the_originals(reference, ours):
    theirs = _part(reference, "grad:")
    gradients = dict(ours[1])
    assert set(gradients) == set(theirs)
    # A bias of the keys adds the same number to all logits of a query, which
    # softmax does not see: the gradient is 0 and what either implementation
    # gives is rounding, so only its size can be compared.
    scale = np.abs(theirs[KEY_BIAS.replace("key", "query")]).max()
    assert scale > 1e-6
    assert np.abs(theirs.pop(KEY_BIAS)).max() < 1e-4 * scale
    assert np.abs(gradients.pop(KEY_BIAS)).max() < 1e-4 * scale
    errors = {
        name: relative_error(gradients[name], value)
        for name, value in theirs.items()
    }
    assert {name: e for name, e in errors.items() if not e < 1e-5} == {}
    assert len(errors) == 31


def test_lamb_follows_tensorflow_addons():
    with np.load(DATA / "tfa_lamb_reference.npz") as file:
        recorded = {name: file[name] for name in file.files}
    names = [n[5:] for n in recorded if n.startswith("init:")]
    assert len(names) == 5
    variables = [
        # Variable names cannot hold dots.
        keras.Variable(recorded[f"init:{name}"], name=name.replace(".", "_"))
        for name in names
    ]
    optimizer = Lamb(
        learning_rate=float(recorded["learning_rate"]),
        weight_decay_rate=float(recorded["weight_decay"]),
        bias_correction=True,
    )
    optimizer.build(variables)
    for step in range(8):
        optimizer.apply(
            [tf.constant(recorded[f"grads:{name}"][step]) for name in names]
        )
        for name, variable in zip(names, variables, strict=True):
            after = recorded[f"after:{name}"][step]
            assert relative_error(variable, after) < 1e-6
    before, after = (
        recorded["init:embeddings"],
        recorded["after:embeddings"][-1],
    )
    assert relative_error(before, after) > 0.01
