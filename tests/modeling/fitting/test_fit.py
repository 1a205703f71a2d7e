"""Models under `compile` and `fit`: losses, metrics and labels as Keras has.

What Keras reports is compared with NumPy on the outputs of the same model.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import randomise, softmax
from test_heads import CONFIG, LABELS, batch_of, losses

from albert_tf.config import UserError, override
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import AlbertModel, models
from albert_tf.optim.lamb import Lamb

# The label of an output, and the weight of its loss in the sum of losses.
LABELLED = {
    name: {
        trained.output: (trained.label, trained.loss_weight)
        for head in kind.head_names
        for trained in HEADS[head].labelled_outputs
    }
    for name, kind in models().items()
    if any(HEADS[head].labelled_outputs for head in kind.head_names)
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


def metric_of(output, name):
    """Returns a metric for an output: its name, itself, and in NumPy."""
    if output == "predictions":
        return "mae", "mae", lambda p, y: np.abs(p - y)
    if output == "unanswerable_logits" or "MultiLabel" in name:
        metric = keras.metrics.BinaryAccuracy(name="hits", threshold=0.0)
        return "hits", metric, lambda p, y: (p > 0) == y
    return "accuracy", "accuracy", lambda p, y: p.argmax(-1) == y


def keras_loss(output, name):
    if output == "predictions":
        return "mse"
    if output == "unanswerable_logits" or "MultiLabel" in name:
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
    metrics = {
        output: [metric_of(output, name)[1]] for output in LABELLED[name]
    }
    model = compiled(name, metrics=metrics)
    outputs = {n: np.asarray(v) for n, v in model(inputs | labels).items()}
    expected = {}
    for output, y in labels.items():
        key, _, values = metric_of(output, name)
        expected[output] = key, values(outputs[output], y).mean()
    expected = reported(name, expected)
    expected["loss"] = sum(
        factor * losses(output, outputs[output], labels[output]).mean()
        for output, (_, factor) in LABELLED[name].items()
    )
    approx = pytest.approx(expected, rel=1e-5)
    assert evaluated(model, inputs, labels) == approx
    by_label = {LABELLED[name][out][0]: y for out, y in labels.items()}
    assert evaluated(model, inputs | by_label) == approx
    # Other forms of one label are those of the tests of weights below.
    if len(labels) > 1:
        assert evaluated(model, inputs, by_label) == approx


@pytest.mark.slow
@pytest.mark.parametrize("name", LABELLED)
def test_losses_of_the_users_own_with_weights(name):
    """A mean over the labels, as Keras weighs: not over the weights."""
    inputs, labels = parted(name)
    weights = np.float32([0, 1, 0.5, 2, 1, 0])
    loss = {output: keras_loss(output, name) for output in labels}
    weighted = {output: [metric_of(output, name)[1]] for output in labels}
    y = labels
    if name in ONE_LABEL:
        (loss,), (y,) = loss.values(), labels.values()
    model = compiled(name, loss=loss, weighted_metrics=weighted)
    outputs = {n: np.asarray(v) for n, v in model(inputs).items()}
    outputs |= {n: np.asarray(v) for n, v in model(inputs | labels).items()}
    parts, expected = {}, {}
    for output, label in labels.items():
        key, _, values = metric_of(output, name)
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
        loss={output: keras_loss(output, name) for output in labels},
        metrics={output: [metric_of(output, name)[1]] for output in labels},
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


# --- Labels and weights in all forms, epochs of any batch size ---------------

NAME = "AlbertForClassification"
WEIGHTS = np.float32([2, 0, 0.5, 1, 3, 0.25])


class Batches(keras.utils.PyDataset):
    """Batches of two rows of (features, labels, weights)."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = parts

    def __len__(self):
        return ROWS // 2

    def __getitem__(self, number):
        rows = slice(2 * number, 2 * number + 2)
        return keras.tree.map_structure(lambda v: v[rows], self.parts)


class BatchesOfFeatures(Batches):
    """Batches that are dictionaries, as Keras takes them too."""

    def __getitem__(self, number):
        return super().__getitem__(number)[0]


def generated(*parts):
    for start in range(0, ROWS, 4):
        yield keras.tree.map_structure(
            lambda v, start=start: None if v is None else v[start : start + 4],
            parts,
        )


def dataset(*parts):
    return tf.data.Dataset.from_tensor_slices(parts).batch(4)


@pytest.fixture(scope="module")
def classified():
    """Returns a model that learns nothing, inputs, labels, losses by row."""
    inputs, labels = parted(NAME)
    model = compiled(NAME, keras.optimizers.SGD(0.0))
    # Without dropout fit reports what evaluate does.
    for layer in model._flatten_layers():
        if hasattr(layer, "rate"):
            layer.rate = 0.0
    y = labels["logits"]
    found = losses("logits", np.asarray(model(inputs)["logits"]), y)
    return model, inputs, y, found


def fitted(model, *data, **options):
    history = model.fit(*data, verbose=0, shuffle=False, **options)
    return history.history["loss"][0]


def measured(model, *data, **options):
    return model.evaluate(*data, verbose=0, **options)


@pytest.mark.slow
@pytest.mark.parametrize("run", [fitted, measured])
@pytest.mark.parametrize("batch_size", [1, 4, 6])
def test_an_epochs_loss_is_that_of_any_batch_size(classified, run, batch_size):
    model, inputs, y, found = classified
    weighted = run(
        model, inputs, y, sample_weight=WEIGHTS, batch_size=batch_size
    )
    expected = np.average(found, weights=WEIGHTS)
    assert weighted == pytest.approx(expected, rel=1e-5)
    batch = inputs | {"label_ids": y}
    weighted = run(model, batch, sample_weight=WEIGHTS, batch_size=batch_size)
    assert weighted == pytest.approx(expected, rel=1e-5)
    plain = run(model, inputs, y, batch_size=batch_size)
    assert plain == pytest.approx(found.mean(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        lambda x, y, w: (
            (x | {"label_ids": y}, None),
            {"sample_weight": {"label_ids": w}},
        ),
        lambda x, y, w: ((x, [y]), {"sample_weight": [w]}),
        lambda x, y, w: ((x, (y,)), {"sample_weight": w}),
        lambda x, y, w: ((x, y[:, None]), {"sample_weight": w[:, None]}),
        lambda x, y, w: ((x, y.tolist()), {"sample_weight": w.tolist()}),
        lambda x, y, w: ((x, {"label_ids": y}), {"sample_weight": w}),
        lambda x, y, w: (
            (x, {"label_ids": y}),
            {"sample_weight": {"logits": w}},
        ),
        lambda x, y, w: ((x, {"label_ids": y, "example_weights": w}), {}),
        lambda x, y, w: (
            (x, {"label_ids": y, "example_weights": w**0.5}),
            {"sample_weight": w**0.5},
        ),
        lambda x, y, w: (
            ({k: v.tolist() for k, v in x.items()}, {"logits": y.tolist()}),
            {"sample_weight": {"logits": w.tolist()}},
        ),
        lambda x, y, w: ((dataset(x, y, w),), {}),
        lambda x, y, w: (
            (dataset(x | {"label_ids": y}, w).map(lambda x, w: (x, None, w)),),
            {},
        ),
        lambda x, y, w: ((dataset(x | {"label_ids": y}, y, w),), {}),
        lambda x, y, w: (
            (dataset(x | {"label_ids": y, "example_weights": w}),),
            {},
        ),
        lambda x, y, w: ((Batches(x, {"label_ids": y}, w),), {}),
        lambda x, y, w: ((generated(x | {"label_ids": y}, None, w),), {}),
    ],
)
def test_weights_count_wherever_labels_are(classified, data):
    model, inputs, y, found = classified
    expected = np.average(found, weights=WEIGHTS)
    parts, options = data(inputs, y, WEIGHTS)
    if isinstance(parts[0], dict):
        options["batch_size"] = 4
    result = measured(model, *parts, **options)
    assert result == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
def test_a_batch_weighs_labels_among_the_features(classified, method):
    model, inputs, y, found = classified
    expected = pytest.approx(np.average(found, weights=WEIGHTS), rel=1e-5)
    call = getattr(model, method)
    assert call(inputs | {"label_ids": y}, None, WEIGHTS) == expected
    assert call(inputs, [y], [WEIGHTS]) == expected
    with pytest.raises(UserError, match="sample_weight must be finite"):
        call(inputs, y, -WEIGHTS)


@pytest.mark.slow
def test_validation_data_are_weighed(classified):
    model, inputs, y, found = classified
    expected = pytest.approx(np.average(found, weights=WEIGHTS), rel=1e-5)
    batch = inputs | {"label_ids": y}
    for data in ((batch, None, WEIGHTS), (inputs, [y], WEIGHTS)):
        history = model.fit(
            batch, validation_data=data, validation_batch_size=4, verbose=0
        ).history
        assert history["val_loss"][0] == expected
    history = model.fit(
        batch, sample_weight=WEIGHTS, validation_split=0.5, verbose=0
    ).history
    half = np.average(found[3:], weights=WEIGHTS[3:])
    assert history["val_loss"][0] == pytest.approx(half, rel=1e-5)


@pytest.mark.parametrize("name", ["AlbertForPretraining", "AlbertForMaskedLM"])
def test_each_heads_mean_is_over_its_own_weights(name):
    """Also in batches without any masked token, and without any weight."""
    inputs, labels = parted(name)
    model = compiled(name)
    rng = np.random.default_rng(2)
    shape = labels["masked_lm_logits"].shape
    masked = rng.choice([0.0, 1.0], shape).astype("float32")
    masked[:2] = 0
    rows = np.float32([1, 2, 0, 0, 3, 0.5])
    outputs = {n: np.asarray(v) for n, v in model(inputs).items()}
    weights = {
        "masked_lm_logits": masked * rows[:, None],
        "sentence_order_logits": rows,
    }
    expected = sum(
        np.average(losses(out, outputs[out], y), weights=weights[out])
        for out, y in labels.items()
    )
    batch = inputs | {LABELLED[name][out][0]: y for out, y in labels.items()}
    batch["masked_lm_weights"] = masked
    for batch_size in (1, 2, 5):
        found = model.evaluate(
            batch, sample_weight=rows, batch_size=batch_size, verbose=0
        )
        assert found == pytest.approx(expected, rel=1e-5)


CLASS_WEIGHT = {1: 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        lambda x, y: (x | {"label_ids": y},),
        lambda x, y: (x, [y]),
        lambda x, y: (x, {"label_ids": y}),
        lambda x, y: (x, y.tolist()),
        lambda x, y: (dataset(x | {"label_ids": y}),),
        lambda x, y: (dataset(x, {"logits": y}),),
        lambda x, y: (dataset(x, y),),
        lambda x, y: (Batches(x, y),),
    ],
)
def test_class_weights_count_wherever_labels_are(classified, data):
    """A class that is not named weighs 1."""
    model, inputs, y, found = classified
    weights = np.where(y == 1, 2, 1)
    result = fitted(model, *data(inputs, y), class_weight=CLASS_WEIGHT)
    expected = np.average(found, weights=weights)
    assert result == pytest.approx(expected, rel=1e-5)


def test_class_weights_that_cannot_be_used(classified):
    model, inputs, y, _ = classified
    for given, text in (
        ({3: 1.0}, "class_weight has 3: 1.0; it takes .* from 0 to below 3"),
        ({"bad": 1.0}, "class_weight has 'bad': 1.0; it takes numbers of"),
        ({0: -1.0}, r"class_weight has 0: -1.0; .* finite weights from 0"),
        ({0: np.nan}, "class_weight has 0: nan"),
        (dict.fromkeys(range(3), 0.0), "class_weight has no weight above 0"),
        ([1.0, 2.0], r"must be a dictionary .* it is \[1.0, 2.0\]"),
    ):
        with pytest.raises(UserError, match=text):
            model.fit(inputs, y, class_weight=given, verbose=0)
    among_features = Batches(inputs | {"label_ids": y})
    alone = BatchesOfFeatures(inputs | {"label_ids": y})
    for data in (among_features, alone, Batches(inputs, {"y": y})):
        with pytest.raises(UserError, match="a PyDataset has batches"):
            model.fit(data, class_weight=CLASS_WEIGHT, verbose=0)
    for name, text in (
        ("AlbertForRegression", "AlbertForRegression predicts numbers"),
        ("AlbertForMultipleChoice", "predicts numbers or chooses"),
        ("AlbertForQuestionAnswering", "many labels in an example"),
    ):
        batch, _ = parted(name)
        with pytest.raises(UserError, match=text):
            compiled(name).fit(batch, class_weight=CLASS_WEIGHT, verbose=0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_to_learn_are_finite(value):
    batch, labels = parted("AlbertForRegression")
    (name,) = labels
    labels[name] = np.array(labels[name])
    labels[name][1] = value
    model = compiled("AlbertForRegression")
    for data in ((batch, labels), (dataset(batch, labels),)):
        with pytest.raises(
            (UserError, tf.errors.InvalidArgumentError), match="must be finite"
        ):
            model.fit(*data, verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("run", [fitted, measured])
def test_weights_that_cannot_be_used(classified, run):
    model, inputs, y, _ = classified
    for value in (-1, np.nan, np.inf):
        weights = np.float32([1, value, 1, 1, 1, 1])
        text = rf"must be finite and not negative; at \[1\] is {value}"
        for data, options in (
            ((inputs, y), {"sample_weight": weights}),
            ((inputs | {"example_weights": weights}, y), {}),
            ((dataset(inputs, y, weights),), {}),
            ((Batches(inputs, y, weights),), {}),
        ):
            with pytest.raises(UserError, match=text):
                run(model, *data, **options)
    with pytest.raises(UserError, match="All weights are 0: there is nothing"):
        run(model, inputs, y, sample_weight=0 * WEIGHTS)
    with pytest.raises(UserError, match=r"shape \[6, 3\] do not fit .* \[6\]"):
        run(model, inputs, y, sample_weight=np.ones((ROWS, 3), "float32"))


def test_weights_of_a_loss_of_the_users_own_are_checked():
    inputs, labels = parted(NAME)
    model = compiled(NAME, loss=keras_loss("logits", NAME))
    data = dataset(inputs, labels["logits"], -WEIGHTS)
    with pytest.raises(UserError, match="sample_weight must be finite"):
        model.evaluate(data, verbose=0)


def test_a_batch_that_weighs_nothing_has_no_gradient(classified):
    model, inputs, y, _ = classified
    zeros = np.zeros(ROWS, "float32")
    batch = {name: tf.constant(value) for name, value in inputs.items()}
    with tf.GradientTape() as tape:
        loss = model.compute_loss(batch, y, model(batch), zeros)
    for gradient in tape.gradient(loss, model.trainable_variables):
        if gradient is not None:
            assert not np.asarray(tf.convert_to_tensor(gradient)).any()
    assert float(loss) == 0


@pytest.mark.slow
def test_strings_are_refused(classified):
    model, *_ = classified
    for texts in (["A fine film."], np.array(["A fine film."])):
        with pytest.raises(UserError, match="reads token ids, got strings: gi"):
            model.predict(texts, verbose=0)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        {"logits": keras.losses.sparse_categorical_crossentropy},
        keras.losses.SparseCategoricalCrossentropy(),
        "crossentropy",
        "poisson",
        keras.losses.KLDivergence(),
        keras.losses.dice,
    ],
)
def test_losses_of_probabilities_are_refused(loss):
    inputs, labels = parted(NAME)
    model = compiled(NAME, loss=loss)
    with pytest.raises(UserError, match="gives logits: give .* from_logits=T"):
        model.evaluate(inputs, labels, verbose=0)


def test_the_loss_of_a_rate_fits_numbers():
    inputs, labels = parted("AlbertForRegression")
    model = compiled("AlbertForRegression", loss="poisson")
    assert model.evaluate(inputs, labels, verbose=0) is not None


MULTI_LABEL = "AlbertForMultiLabelClassification"
METRICS = keras.metrics


def one_hot(y):
    return np.eye(LABELS, dtype="float32")[y]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metric", "text"),
    [
        (
            NAME,
            METRICS.AUC(),
            "AUC .* classes.: give it what it measures, in an",
        ),
        (NAME, METRICS.AUC(from_logits=True), "AUC .* what it measures, in an"),
        (NAME, "precision", r"Precision .* \(logits of classes\): .* top_k=1"),
        (NAME, "Poisson", "Poisson .*: give it what it measures, in an"),
        (NAME, METRICS.binary_accuracy, "BinaryAccuracy .* take another m"),
        (NAME, METRICS.MeanIoU(LABELS), "MeanIoU .*: give it sparse_y_pred=F"),
        (
            NAME,
            keras.losses.SparseCategoricalCrossentropy(),
            "SparseCategoricalCrossentropy .*: give it from_logits=True.",
        ),
        (NAME, "categorical_accuracy", "one-hot labels, and .* are numbers"),
        (MULTI_LABEL, METRICS.AUC(), "AUC .* or not.: give it from_logits=T"),
        (MULTI_LABEL, METRICS.Recall(), "Recall .*: give it thresholds=0."),
        (MULTI_LABEL, "accuracy", "CategoricalAccuracy .* take another metric"),
        (MULTI_LABEL, "mse", "MeanSquaredError .* take another metric"),
        ("AlbertForRegression", "accuracy", "Accuracy .* take another metric"),
        (
            "AlbertForRegression",
            METRICS.PearsonCorrelation(),
            r"predictions \(a number for each text\): give it axis=0",
        ),
    ],
)
def test_metrics_that_would_measure_something_else_are_refused(
    name, metric, text
):
    inputs, labels = parted(name)
    for argument in ("metrics", "weighted_metrics"):
        model = compiled(name, **{argument: [metric]})
        with pytest.raises(UserError, match=text):
            model.evaluate(inputs, labels, verbose=0)


def test_metrics_of_one_hot_labels_are_of_no_numbers():
    inputs, labels = parted(NAME)
    model = compiled(
        NAME,
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["sparse_categorical_accuracy"],
    )
    with pytest.raises(UserError, match="of classes, and .* are one-hot"):
        model.evaluate(inputs, one_hot(labels["logits"]), verbose=0)


def area(p, y):
    """Returns the share of pairs that are in the right order."""
    right = p[y == 1][:, None] - p[y == 0]
    return np.mean((right > 0) + 0.5 * (right == 0))


class OfSecondClass(keras.metrics.AUC):
    def update_state(self, y_true, y_pred, sample_weight=None):
        p = keras.ops.softmax(y_pred)[:, 1]
        return super().update_state(y_true == 1, p, sample_weight)


@pytest.mark.parametrize(
    ("name", "metric", "expected"),
    [
        (
            NAME,
            OfSecondClass(20_000),
            lambda z, y: area(softmax(z)[:, 1], y == 1),
        ),
        (
            NAME,
            METRICS.MeanIoU(LABELS, sparse_y_pred=False),
            lambda z, y: np.mean(
                [
                    np.sum((z.argmax(-1) == c) & (y == c))
                    / np.sum((z.argmax(-1) == c) | (y == c))
                    for c in range(LABELS)
                ]
            ),
        ),
        (
            MULTI_LABEL,
            METRICS.AUC(20_000, from_logits=True),
            lambda z, y: area(z.ravel(), y.ravel()),
        ),
        (
            MULTI_LABEL,
            METRICS.Precision(thresholds=0),
            lambda z, y: y[z > 0].mean(),
        ),
        (
            MULTI_LABEL,
            METRICS.TruePositives(thresholds=0),
            lambda z, y: y[z > 0].sum(),
        ),
        (
            "AlbertForRegression",
            METRICS.PearsonCorrelation(axis=0),
            lambda z, y: np.corrcoef(z, y)[0, 1],
        ),
    ],
)
def test_metrics_that_take_logits_are_right(name, metric, expected):
    inputs, labels = parted(name)
    model = compiled(name, metrics=[metric])
    ((output, y),) = labels.items()
    scores = np.asarray(model(inputs)[output])
    found = evaluated(model, inputs, labels, batch_size=ROWS)[metric.name]
    assert found == pytest.approx(expected(scores, y), rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_one_hot_labels_need_a_loss_for_them(dtype):
    inputs, labels = parted(NAME)
    y = labels["logits"]
    given_labels = one_hot(y).astype(dtype)
    model = compiled(NAME)
    text = r"must have the shape \[6\]; they have \[6, 3\]. .*argmax"
    for given in (given_labels, {"logits": given_labels}):
        with pytest.raises(UserError, match=text):
            model.evaluate(inputs, given, verbose=0)
    expected = losses("logits", np.asarray(model(inputs)["logits"]), y)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss, run_eagerly=True)
    found = evaluated(model, inputs, given_labels)["loss"]
    assert found == pytest.approx(expected.mean(), rel=1e-5)
    found = evaluated(model, inputs | {"label_ids": given_labels})["loss"]
    assert found == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize("label", [5, -100, 0.5])
def test_several_labels_are_0_or_1(label):
    name = "AlbertForMultiLabelClassification"
    inputs, labels = parted(name)
    y = labels["logits"].astype("float32")
    y[1, 2] = label
    with pytest.raises(UserError, match="label_ids must be whole .* 0 to 1"):
        compiled(name).evaluate(inputs, y, verbose=0)
    # What weighs nothing may be anything.
    weights = np.ones_like(y)
    weights[1, 2] = 0
    found = compiled(name).evaluate(inputs, y, sample_weight=weights, verbose=0)
    assert np.isfinite(found)


def test_weights_of_each_label_beside_metrics():
    name = "AlbertForMultiLabelClassification"
    inputs, labels = parted(name)
    weights = np.random.default_rng(5).random((ROWS, LABELS), "float32")
    plain = keras.metrics.BinaryAccuracy(name="hits", threshold=0.0)
    model = compiled(name, metrics=[plain])
    outputs = np.asarray(model(inputs)["logits"])
    y = labels["logits"]
    found = evaluated(model, inputs, y, sample_weight=weights)
    assert found["hits"] == pytest.approx(((outputs > 0) == y).mean())
    expected = np.average(losses("logits", outputs, y), weights=weights)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    model.compile("sgd", weighted_metrics=[plain], run_eagerly=True)
    with pytest.raises(UserError, match="whole examples of logits, not each"):
        evaluated(model, inputs, y, sample_weight=weights)


def test_weights_are_left_as_they_were_given():
    inputs, labels = parted(NAME)
    given = np.float32([1, 2, 3, 4, 5, 6])
    inputs["example_weights"] = given.copy()
    rows = given.copy()
    compiled(NAME).evaluate(inputs, labels, sample_weight=rows, verbose=0)
    np.testing.assert_array_equal(rows, given)
    np.testing.assert_array_equal(inputs["example_weights"], given)


def test_labels_of_other_forms_are_refused(classified):
    model, inputs, y, _ = classified
    with pytest.raises(UserError, match="a list of several arrays, and Albert"):
        model.evaluate(inputs, [y, y], verbose=0)
    with pytest.raises(UserError, match="label_ids must be numbers; they are"):
        model.evaluate(inputs, np.array(["good"] * ROWS), verbose=0)
    of_many, many = parted("AlbertForMultiLabelClassification")
    with pytest.raises(UserError, match=r"\[6, 3\]; they have \[6\]\.$"):
        compiled("AlbertForMultiLabelClassification").evaluate(
            of_many, many["logits"][:, 0], verbose=0
        )
    with pytest.raises(UserError, match="different lengths; pad them"):
        model.evaluate({"input_ids": [[1], [1, 2]]}, [0, 1], verbose=0)
    name = "AlbertForQuestionAnswering"
    inputs, labels = parted(name)
    with pytest.raises(UserError, match="has 2 labels; give y by name: start"):
        compiled(name).evaluate(inputs, [*labels.values()], verbose=0)


def test_a_dataset_without_shapes_is_refused():
    inputs, labels = parted(NAME)
    model = compiled(NAME, run_eagerly=False)
    ids, y = inputs["input_ids"], labels["logits"]

    def read(number):
        row = tf.py_function(lambda n: ids[n], [number], tf.int32)
        return {"input_ids": row}, tf.gather(y, number)

    rows = tf.data.Dataset.range(ROWS).map(read).batch(2)
    with pytest.raises(
        UserError, match="do not say how many axes .* tf.ensure_"
    ):
        model.evaluate(rows, verbose=0)
    whole = rows.map(
        lambda x, y: (
            {"input_ids": tf.ensure_shape(x["input_ids"], (None, None))},
            y,
        )
    )
    assert np.isfinite(model.evaluate(whole, verbose=0))


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_wrong_label_in_any_batch_is_refused(jit_compile):
    """XLA drops assertions: the graph around it has one."""
    inputs, labels = parted(NAME)
    y = labels["logits"].copy()
    y[3] = LABELS
    model = compiled(NAME, run_eagerly=False, jit_compile=jit_compile)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="label_ids must be from 0"
    ):
        model.evaluate(dataset(inputs, y), verbose=0)
    # Nothing reads the labels of what is predicted.
    assert model.predict(dataset(inputs, y), verbose=0)["logits"].shape == (
        6,
        3,
    )
    weights = np.where(y == LABELS, 0, WEIGHTS).astype("float32")
    assert np.isfinite(model.evaluate(dataset(inputs, y, weights), verbose=0))


@pytest.mark.slow
def test_a_training_step_of_the_users_own():
    """Takes a mean of the batches' losses, like Keras' guide."""

    class Own(models()[NAME]):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                outputs = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=outputs)
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply(gradients, variables)
            for metric in self.metrics:
                metric.update_state(loss)
            return {metric.name: metric.result() for metric in self.metrics}

    inputs, labels = parted(NAME)
    config = override(
        ONE_LAYER,
        {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout_prob": 0.0,
        },
    )
    model = randomise(Own(config, LABELS))
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    y = labels["logits"]
    found = losses("logits", np.asarray(model(inputs)["logits"]), y)
    result = fitted(model, inputs, y, batch_size=4)
    expected = (found[:4].mean() + found[4:].mean()) / 2
    assert result == pytest.approx(expected, rel=1e-5)
    teacher = {"teacher": np.zeros((ROWS, LABELS), "float32")}
    with pytest.raises(UserError, match="y has 'teacher'"):
        model.fit(inputs, teacher, verbose=0)
