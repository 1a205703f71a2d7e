"""Models under `compile` and `fit`: losses, metrics and labels as Keras has.

What Keras reports is compared with NumPy on the outputs of the same model.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import randomise
from test_heads import CONFIG, LABELS, batch_of, losses

from albert_tf.config import UserError, override
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.optim.lamb import Lamb

# By output: its label, and the loss's factor in the sum of the heads' losses.
LABELLED = {
    name: {
        label.output: (label.name, label.factor)
        for head in kind.head_names
        for label in HEADS[head].labels
    }
    for name, kind in models().items()
    if any(HEADS[head].labels for head in kind.head_names)
}
ONE_LABEL = [name for name, outputs in LABELLED.items() if len(outputs) == 1]
ROWS = 6
ONE_LAYER = override(CONFIG, {"num_hidden_layers": 1})


def compiled(name, optimizer="sgd", **options):
    """Returns a model of one layer with random weights."""
    kind = models()[name]
    labels = {"num_labels": LABELS} if kind.takes_labels() else {}
    model = randomise(kind(ONE_LAYER, **labels))
    model.compile(optimizer, **{"run_eagerly": True, **options})
    return model


def parted(name):
    """Returns inputs, and labels by output."""
    batch = batch_of(name, ROWS)
    labels = {out: batch[label] for out, (label, _) in LABELLED[name].items()}
    inputs = {
        key: value
        for key, value in batch.items()
        # The end of an answer is scored given its start.
        if key not in {label for label, _ in LABELLED[name].values()}
        or (key == "start_positions" and "p_mask" in batch)
    }
    return inputs, labels


def evaluated(model, *data, batch_size=4, **options):
    return model.evaluate(
        *data, batch_size=batch_size, verbose=0, return_dict=True, **options
    )


def metric_of(output):
    """Returns a metric for an output: its name, itself, and in NumPy."""
    if output == "predictions":
        return "mae", "mae", lambda p, y: np.abs(p - y)
    if output == "unanswerable_logits":
        metric = keras.metrics.BinaryAccuracy(name="hits", threshold=0.0)
        return "hits", metric, lambda p, y: (p > 0) == y
    return "accuracy", "accuracy", lambda p, y: p.argmax(-1) == y


def keras_loss(output):
    if output == "predictions":
        return "mse"
    if output == "unanswerable_logits":
        return keras.losses.BinaryCrossentropy(from_logits=True)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def reported(name, expected):
    """Returns what Keras reports: without an output's name if it is alone."""
    alone = len(LABELLED[name]) == 1
    return {
        key if alone else f"{output}_{key}": value
        for output, (key, value) in expected.items()
    }


@pytest.mark.parametrize("name", LABELLED)
def test_heads_losses_and_metrics(name):
    inputs, labels = parted(name)
    metrics = {output: [metric_of(output)[1]] for output in LABELLED[name]}
    model = compiled(name, metrics=metrics)
    outputs = {n: np.asarray(v) for n, v in model(inputs | labels).items()}
    expected = {}
    for output, y in labels.items():
        key, _, values = metric_of(output)
        expected[output] = key, values(outputs[output], y).mean()
    expected = reported(name, expected)
    expected["loss"] = sum(
        factor * losses(output, outputs[output], labels[output]).mean()
        for output, (_, factor) in LABELLED[name].items()
    )
    approx = pytest.approx(expected, rel=1e-5)
    assert evaluated(model, inputs, labels) == approx
    by_label = {LABELLED[name][out][0]: y for out, y in labels.items()}
    assert evaluated(model, inputs, by_label) == approx
    assert evaluated(model, inputs | by_label) == approx
    if len(labels) == 1:
        assert evaluated(model, inputs, *labels.values()) == approx


@pytest.mark.parametrize("name", LABELLED)
def test_losses_of_the_users_own_with_weights(name):
    """A mean over the labels, as Keras weighs: not over the weights."""
    inputs, labels = parted(name)
    weights = np.float32([0, 1, 0.5, 2, 1, 0])
    loss = {output: keras_loss(output) for output in labels}
    weighted = {output: [metric_of(output)[1]] for output in labels}
    y = labels
    if name in ONE_LABEL:
        (loss,), (y,) = loss.values(), labels.values()
    model = compiled(name, loss=loss, weighted_metrics=weighted)
    outputs = {n: np.asarray(v) for n, v in model(inputs).items()}
    outputs |= {n: np.asarray(v) for n, v in model(inputs | labels).items()}
    parts, expected = {}, {}
    for output, label in labels.items():
        key, _, values = metric_of(output)
        values = values(outputs[output], label).astype(float)
        found = losses(output, outputs[output], label)
        by_row = weights.reshape([ROWS] + [1] * (found.ndim - 1))
        parts[output] = "loss", (found * by_row).mean()
        values = (values * by_row).sum() / (values * 0 + by_row).sum()
        expected[output] = key, values
    expected = reported(name, expected)
    expected["loss"] = sum(value for _, value in parts.values())
    if len(parts) > 1:
        expected |= reported(name, parts)
    found = evaluated(model, inputs, y, batch_size=ROWS, sample_weight=weights)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [None, "mse"])
def test_layers_own_losses_are_added(loss):
    name = "AlbertForRegression"
    inputs, labels = parted(name)
    model = compiled(name, loss=loss)
    plain = evaluated(model, inputs, labels)["loss"]
    kernel = model.regression.classifier.kernel
    kernel.regularizer = keras.regularizers.L2(0.5)
    model.compile("sgd", loss=loss, run_eagerly=True)
    decay = 0.5 * np.square(np.asarray(kernel)).sum()
    found = evaluated(model, inputs, labels)["loss"]
    assert found == pytest.approx(plain + decay, rel=1e-5)


def test_example_weights_multiply_token_weights():
    name = "AlbertForTokenClassification"
    inputs, labels = parted(name)
    rng = np.random.default_rng(0)
    tokens = rng.choice([0.0, 1.0], labels["logits"].shape).astype("float32")
    rows = np.float32([1, 2, 0.5, 1, 3, 1])
    # What weighs nothing may have any label.
    labels["logits"][tokens == 0] = -100
    model = compiled(name, weighted_metrics=["accuracy"])
    outputs = np.asarray(model(inputs)["logits"])
    weights = tokens * rows[:, None]
    kept = np.maximum(labels["logits"], 0)
    total = (losses("logits", outputs, kept) * weights).sum()
    hits = ((outputs.argmax(-1) == kept) * weights).sum()
    inputs["label_weights"] = tokens
    found = evaluated(
        model, inputs, labels["logits"], batch_size=ROWS, sample_weight=rows
    )
    assert found == pytest.approx(
        {"loss": total / weights.sum(), "accuracy": hits / weights.sum()},
        rel=1e-5,
    )


def test_weights_by_name_differ_between_start_and_end():
    name = "AlbertForQuestionAnswering"
    inputs, labels = parted(name)
    weights = {
        "start_logits": np.float32([1, 0, 1, 0, 2, 0]),
        "end_logits": np.float32([0, 1, 0, 3, 0, 1]),
    }
    model = compiled(name)
    outputs = model(inputs)
    expected = sum(
        0.5 * np.average(losses(out, outputs[out], y), weights=weights[out])
        for out, y in labels.items()
    )
    found = model.evaluate(
        inputs, labels, sample_weight=weights, batch_size=ROWS, verbose=0
    )
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_fit_on_a_dataset_with_class_weights_and_validation():
    name = "AlbertForClassification"
    inputs, labels = parted(name)
    y = labels["logits"]
    model = compiled(
        name,
        optimizer=keras.optimizers.SGD(0.0),
        run_eagerly=False,
        weighted_metrics=["accuracy"],
    )
    data = tf.data.Dataset.from_tensor_slices((inputs, y)).batch(ROWS)
    history = model.fit(
        data,
        class_weight={0: 1.0, 1: 0.5, 2: 3.0},
        validation_data=data,
        verbose=0,
    ).history
    outputs = np.asarray(model(inputs)["logits"])
    plain = losses("logits", outputs, y)
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["val_loss"][0] == pytest.approx(plain.mean(), rel=1e-5)
    # In training there is dropout: what is fitted is compared without it.
    weights = np.float32([1.0, 0.5, 3.0])[y]
    pair = model.test_on_batch(inputs, y, sample_weight=weights)
    expected = np.average(plain, weights=weights)
    assert pair[0] == pytest.approx(expected, rel=1e-5)
    tokens, labels = parted("AlbertForTokenClassification")
    model = compiled("AlbertForTokenClassification")
    with pytest.raises(UserError, match="many labels in an example"):
        model.fit(tokens, labels["logits"], class_weight={0: 2.0})


@pytest.mark.slow
def test_a_compiled_model_is_saved_with_its_losses_and_metrics(tmp_path):
    name = "AlbertForPretraining"
    inputs, labels = parted(name)
    model = compiled(
        name,
        optimizer=Lamb(0.01, bias_correction=True),
        loss={output: keras_loss(output) for output in labels},
        metrics={output: [metric_of(output)[1]] for output in labels},
    )
    model.fit(inputs, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.iterations == model.optimizer.iterations == 1
    assert again.optimizer.decays == model.optimizer.decays
    gradients = [tf.ones(v.shape) for v in model.trainable_variables]
    states = []
    for one in (again, model):
        one.optimizer.apply(gradients)
        states.append([*one.weights, *one.optimizer.variables])
    for found, expected in zip(*states, strict=True):
        np.testing.assert_array_equal(found, expected)
    expected = evaluated(model, inputs, labels)
    assert len(expected) > 1
    assert evaluated(again, inputs, labels) == pytest.approx(expected)


def test_an_encoder_takes_losses_by_output():
    model = randomise(AlbertModel(ONE_LAYER))
    inputs, _ = parted("AlbertForClassification")
    target = np.ones((ROWS, ONE_LAYER.hidden_size), "float32")
    model.compile("sgd", loss={"pooled_output": "mse"}, run_eagerly=True)
    found = evaluated(model, inputs, {"pooled_output": target})["loss"]
    pooled = np.asarray(model(inputs)["pooled_output"])
    expected = np.square(pooled - target).mean()
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_fit_cannot_use_is_refused():
    inputs, labels = parted("AlbertForClassification")
    model = compiled("AlbertForClassification")
    with pytest.raises(UserError, match=r"y has 'label', which .* label_ids"):
        model.evaluate(inputs, {"label": labels["logits"]})
    with pytest.raises(UserError, match="sample_weight has 'rows', which"):
        model.evaluate(inputs, labels, sample_weight={"rows": [1.0] * ROWS})
    model.compile("sgd", loss_weights={"logits": 0.5})
    with pytest.raises(UserError, match="loss_weights weigh losses that"):
        model.evaluate(inputs, labels, verbose=0)
    inputs, labels = parted("AlbertForQuestionAnswering")
    model = compiled("AlbertForQuestionAnswering", loss="mse")
    with pytest.raises(UserError, match="has 2 labels; give y by name: start"):
        model.evaluate(inputs, labels["start_logits"], verbose=0)
    del labels["end_logits"]
    with pytest.raises(UserError, match="has no end_positions, which"):
        model.evaluate(inputs, labels, verbose=0)
