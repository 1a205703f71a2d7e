"""Our models against those of transformers, over random architectures.

What we save opens there and what they save opens here, each without a weight
missing or left over, and both give the same outputs, losses and gradients.
"""

import dataclasses
import tempfile

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers
from hypothesis import strategies as st

from albert_tf.config import ModelConfig, override, setting_fields
from albert_tf.config.model import POOLING
from albert_tf.modeling.models import models
from albert_tf.modeling.weights.names import named_weights

# Relative to the largest entry of each tensor. A float32 has 6e-8; a block is
# some ten roundings in a row, and normalisation divides by what is left of
# differences: 1e-6 is common, 1e-5 is what users of both may count on.
OUTPUT_BOUND = 1e-5
# The way back meets the same roundings as the way there.
GRADIENT_BOUND = 1e-4
# A gradient far below the largest one of the model is a difference of larger
# numbers and rounded like those, so it is measured by this part of the largest
# one. Some are nothing but rounding: softmax does not see what is added to all
# keys, all choices or all starts of answers.
LEAST_SCALE = 1e-2

BATCH = 3
CHOICES = 2
NUM_LABELS = 3
POOLED_SIZES = {
    "vocab_size": 31,
    "embedding_size": 6,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
}


@dataclasses.dataclass(frozen=True)
class Counterpart:
    """A class of ours and theirs.

    Attributes:
        ours: a name in models().
        theirs: the name in transformers.
        logits: of our outputs, their names there.
        num_labels: of a class that has them.
    """

    ours: str
    theirs: str
    logits: dict[str, str]
    num_labels: int | None = None


COUNTERPARTS = (
    Counterpart(
        "AlbertModel",
        "AlbertModel",
        {
            "sequence_output": "last_hidden_state",
            "pooled_output": "pooler_output",
        },
    ),
    Counterpart(
        "AlbertForPretraining",
        "AlbertForPreTraining",
        {
            "masked_lm_logits": "prediction_logits",
            "sentence_order_logits": "sop_logits",
        },
    ),
    Counterpart(
        "AlbertForMaskedLM", "AlbertForMaskedLM", {"masked_lm_logits": "logits"}
    ),
    Counterpart(
        "AlbertForClassification",
        "AlbertForSequenceClassification",
        {"logits": "logits"},
        NUM_LABELS,
    ),
    Counterpart(
        "AlbertForMultiLabelClassification",
        "AlbertForSequenceClassification",
        {"logits": "logits"},
        NUM_LABELS,
    ),
    Counterpart(
        "AlbertForRegression",
        "AlbertForSequenceClassification",
        {"predictions": "logits"},
    ),
    Counterpart(
        "AlbertForMultipleChoice",
        "AlbertForMultipleChoice",
        {"logits": "logits"},
    ),
    Counterpart(
        "AlbertForTokenClassification",
        "AlbertForTokenClassification",
        {"logits": "logits"},
        NUM_LABELS,
    ),
    Counterpart(
        "AlbertForQuestionAnswering",
        "AlbertForQuestionAnswering",
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
)
THEIR_ACTIVATIONS = {
    "gelu": ("gelu_new", "gelu_pytorch_tanh"),
    "gelu_exact": ("gelu",),
    "relu": ("relu",),
}

each_counterpart = pytest.mark.parametrize(
    "counterpart", COUNTERPARTS, ids=[c.ours for c in COUNTERPARTS]
)
examples = hypothesis.settings(
    max_examples=20,
    deadline=None,
    # A failing example is shown as it is: making it smaller takes minutes.
    phases=[hypothesis.Phase.generate],
    # The same examples each time, so that the table can be made again.
    derandomize=True,
    database=None,
    suppress_health_check=[
        # It gathers over all examples, as it should.
        hypothesis.HealthCheck.function_scoped_fixture,
        hypothesis.HealthCheck.too_slow,
    ],
)


@st.composite
def architectures(draw, sharing=("all", "attention", "ffn", "none")):
    """Tiny ones without dropout, whose masks no other library repeats."""
    heads = draw(st.sampled_from([1, 2, 3]))
    hidden_size = heads * draw(st.sampled_from([4, 6]))
    layers = draw(st.integers(1, 4))
    changes = {
        "vocab_size": draw(st.integers(6, 40)),
        "embedding_size": draw(st.sampled_from([4, 7, hidden_size])),
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_hidden_groups": draw(st.integers(1, layers)),
        "inner_group_num": draw(st.integers(1, 2)),
        "num_attention_heads": heads,
        "intermediate_size": draw(st.integers(3, 20)),
        "hidden_act": draw(st.sampled_from(["gelu", "gelu_exact", "relu"])),
        "max_position_embeddings": draw(st.integers(4, 12)),
        "type_vocab_size": draw(st.integers(2, 3)),
        "layer_norm_eps": draw(st.sampled_from([1e-12, 1e-5, 0.1])),
        "sharing": draw(st.sampled_from(sharing)),
        "always_project_embeddings": draw(st.booleans()),
        "classifier_dropout_prob": 0.0,
    }
    return override(ModelConfig(), changes)


seeds = st.integers(0, 2**31)
# Theirs in both ways to compute attention; only the first returns it.
attention_ways = st.sampled_from(["eager", "sdpa"])


# --- Both models ----------------------------------------------------------


def random_value(rng, shape, is_scale):
    """Biases and normalisations are random too, but small.

    Large ones, the same at every position, drown what is different; then the
    losses see differences of nearly equal states, and with them rounding.
    """
    size = 0.1 if len(shape) == 1 else shape[1] ** -0.5
    value = rng.normal(size=tuple(shape)) * size
    return (value + is_scale).astype("float32")


def our_model(counterpart, config, seed):
    rng = np.random.default_rng(seed)
    model = models()[counterpart.ours](config, counterpart.num_labels)
    for variable in model.trainable_variables:
        value = random_value(rng, variable.shape, "gamma" in variable.path)
        variable.assign(value)
    return model


def their_model(counterpart, config, activation, seed):
    rng = np.random.default_rng(seed)
    values = {
        name: getattr(config, name)
        for name in setting_fields(config)
        if name not in ("sharing", "pooling", "always_project_embeddings")
    }
    values["hidden_act"] = activation
    if counterpart.num_labels or counterpart.ours == "AlbertForRegression":
        values["num_labels"] = counterpart.num_labels or 1
    if counterpart.ours == "AlbertForMultiLabelClassification":
        values["problem_type"] = "multi_label_classification"
    model = getattr(transformers, counterpart.theirs)(
        transformers.AlbertConfig(**values)
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_scale = name.lower().endswith("norm.weight")
            value = random_value(rng, weight.shape, is_scale)
            weight.copy_(torch.from_numpy(value))
    return model.eval()


def open_theirs(counterpart, directory, way):
    """Their model from a directory, which had all of its weights and no other.

    But for a pooler, which their classes have only where a head reads it.
    """
    model, report = getattr(transformers, counterpart.theirs).from_pretrained(
        directory, output_loading_info=True, attn_implementation=way
    )
    assert all(".pooler." in name for name in report.pop("unexpected_keys"))
    assert not any(report.values()), report
    return model.eval()


# --- Batches --------------------------------------------------------------


def random_features(counterpart, config, seed):
    """A batch with its labels, under our names.

    No id is 0, not in padding either: transformers never trains the row of
    the padding piece through the input, and where a loss reads all positions
    (the softmax over the starts of answers) padding has a gradient. Every
    text has a token: with none, all positions are as likely there and what
    the logits say here. Masks may have gaps.
    """
    rng = np.random.default_rng(seed)
    length = rng.integers(3, config.max_position_embeddings + 1)
    shape = (BATCH, length)
    if counterpart.ours == "AlbertForMultipleChoice":
        shape = (BATCH, CHOICES, length)
    mask = rng.random(shape) < 0.7
    mask[..., rng.integers(0, length)] = True
    places = np.argsort(rng.random((BATCH, length)), axis=1)[:, :3]
    weights = rng.random((BATCH, length)) < 0.6
    weights[:, 0] = True
    return {
        "input_ids": rng.integers(1, config.vocab_size, shape),
        "input_mask": mask.astype("int64"),
        "segment_ids": rng.integers(0, config.type_vocab_size, shape),
        "masked_lm_positions": places,
        **random_labels(counterpart, config, rng, weights),
    }


def random_labels(counterpart, config, rng, weights):
    length = weights.shape[1]
    labels = {
        "masked_lm_ids": rng.integers(0, config.vocab_size, (BATCH, 3)),
        "masked_lm_weights": weights[:, :3].astype("float32"),
        "sentence_order_labels": rng.integers(0, 2, BATCH),
        "start_positions": rng.integers(0, length, BATCH),
        "end_positions": rng.integers(0, length, BATCH),
        "label_ids": rng.integers(0, NUM_LABELS, BATCH),
    }
    if counterpart.ours == "AlbertForMultipleChoice":
        labels["label_ids"] = rng.integers(0, CHOICES, BATCH)
    elif counterpart.ours == "AlbertForMultiLabelClassification":
        labels["label_ids"] = rng.integers(0, 2, (BATCH, NUM_LABELS))
    elif counterpart.ours == "AlbertForRegression":
        labels["label_ids"] = rng.normal(size=BATCH).astype("float32")
    elif counterpart.ours == "AlbertForTokenClassification":
        labels["label_ids"] = rng.integers(0, NUM_LABELS, weights.shape)
        labels["label_weights"] = weights.astype("float32")
    return labels


def their_labels(counterpart, features):
    """The labels as their classes take them: -100 is a weight of 0."""
    names = {
        "AlbertForPretraining": {
            "sentence_order_label": "sentence_order_labels"
        },
        "AlbertForQuestionAnswering": {
            "start_positions": "start_positions",
            "end_positions": "end_positions",
        },
    }.get(counterpart.ours, {"labels": "label_ids"})
    if counterpart.ours == "AlbertModel":
        names = {}
    labels = {theirs: features[ours] for theirs, ours in names.items()}
    if "masked_lm_logits" in counterpart.logits:
        dense = np.full(features["input_ids"].shape, -100)
        rows = np.arange(BATCH)[:, None]
        dense[rows, features["masked_lm_positions"]] = np.where(
            features["masked_lm_weights"], features["masked_lm_ids"], -100
        )
        labels["labels"] = dense
    elif counterpart.ours == "AlbertForTokenClassification":
        labels["labels"] = np.where(
            features["label_weights"], features["label_ids"], -100
        )
    elif counterpart.ours == "AlbertForMultiLabelClassification":
        labels["labels"] = labels["labels"].astype("float32")
    return labels


# --- What is compared -----------------------------------------------------


def our_results(model, features):
    """Outputs, `loss` if there is one, and gradients by a variable's id."""
    with tf.GradientTape() as tape:
        outputs = model(
            features, output_hidden_states=True, output_attentions=True
        )
        loss = None
        if model.heads:
            loss = model.compute_loss(features, None, outputs)
    results = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            for number, item in enumerate(value):
                results[f"{name} {number}"] = np.asarray(item)
        else:
            results[name] = np.asarray(value)
    if loss is None:
        return results, {}
    results["loss"] = np.asarray(loss)
    variables = model.trainable_variables
    gradients = tape.gradient(
        loss,
        [v.value for v in variables],
        # Without a pooled head nothing trains the pooler.
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return results, {
        id(variable): np.asarray(tf.convert_to_tensor(gradient))
        for variable, gradient in zip(variables, gradients, strict=True)
    }


def their_results(counterpart, model, features):
    """The same under our names; gradients by their names."""
    labels = their_labels(counterpart, features)
    outputs = model(
        input_ids=torch.tensor(features["input_ids"]),
        attention_mask=torch.tensor(features["input_mask"]),
        token_type_ids=torch.tensor(features["segment_ids"]),
        output_hidden_states=True,
        output_attentions=model.config._attn_implementation == "eager",
        **{name: torch.tensor(value) for name, value in labels.items()},
    )
    results = {}
    for ours, theirs in counterpart.logits.items():
        value = outputs[theirs].detach().numpy()
        if ours == "masked_lm_logits":
            # Theirs are at every position.
            rows = np.arange(BATCH)[:, None]
            value = value[rows, features["masked_lm_positions"]]
        results[ours] = value[..., 0] if ours == "predictions" else value
    for name in ("hidden_states", "attentions"):
        for number, value in enumerate(outputs.get(name) or ()):
            results[f"{name} {number}"] = value.detach().numpy()
    if "loss" not in outputs:
        return results, {}
    results["loss"] = outputs.loss.detach().numpy()
    outputs.loss.backward()
    return results, {
        name: (
            np.zeros(weight.shape, "float32")
            if weight.grad is None
            else weight.grad.numpy()
        )
        for name, weight in model.named_parameters()
    }


def relative(ours, theirs, least_scale=0.0):
    """The largest difference, by the largest entry of theirs."""
    assert ours.shape == theirs.shape
    difference = np.abs(ours.astype("float64") - theirs).max()
    scale = max(np.abs(theirs).max(), least_scale)
    return difference / scale if difference else 0.0


def compare(counterpart, ours, theirs, features, record):
    our_values, our_gradients = our_results(ours, features)
    their_values, their_gradients = their_results(counterpart, theirs, features)
    assert set(their_values) <= set(our_values)
    assert f"hidden_states {len(ours.encoder.plan)}" in their_values
    subject = f"transformers {counterpart.theirs}"
    for name, value in their_values.items():
        what = name.split()[0]
        record(subject, what, relative(our_values[name], value), OUTPUT_BOUND)
    if not our_gradients:
        return
    largest = max(np.abs(g).max() for g in their_gradients.values())
    for key, gradient in in_our_layout(ours, their_gradients).items():
        record(
            subject,
            "gradients",
            relative(our_gradients[key], gradient, LEAST_SCALE * largest),
            GRADIENT_BOUND,
        )


def in_our_layout(model, their_gradients):
    """Their gradients by the id of our variable.

    The copies of a weight that a file repeats are one weight here, whose
    gradient is the sum of theirs.
    """
    summed = {}
    unused = set(their_gradients)
    for row in named_weights(model):
        if row.name not in their_gradients:
            # The pooler that no head reads.
            assert row.name.startswith("albert.pooler.")
            continue
        unused.discard(row.name)
        gradient = row.transposed(their_gradients[row.name])
        key = id(row.variable)
        summed[key] = gradient + summed.get(key, 0)
    # Their mapping of E to H, which there is none of here if both are equal.
    mapping = "albert.encoder.embedding_hidden_mapping_in."
    if model.encoder.projection:
        assert not unused
    assert all(name.startswith(mapping) for name in unused), unused
    return summed


# --- Tests ----------------------------------------------------------------


@each_counterpart
@examples
@hypothesis.given(architectures(), seeds, attention_ways)
def test_what_we_save_is_the_same_there(
    counterpart, record_difference, config, seed, way
):
    ours = our_model(counterpart, config, seed)
    with tempfile.TemporaryDirectory() as directory:
        ours.save_pretrained(directory)
        theirs = open_theirs(counterpart, directory, way)
    features = random_features(counterpart, config, seed)
    compare(counterpart, ours, theirs, features, record_difference)


@each_counterpart
@examples
@hypothesis.given(architectures(("all",)), seeds, attention_ways, st.data())
def test_what_they_save_is_the_same_here(
    counterpart, record_difference, config, seed, way, data
):
    names = THEIR_ACTIVATIONS[config.hidden_act]
    activation = data.draw(st.sampled_from(names))
    theirs = their_model(counterpart, config, activation, seed)
    theirs.set_attn_implementation(way)
    with tempfile.TemporaryDirectory() as directory:
        theirs.save_pretrained(directory)
        ours = models()[counterpart.ours].from_pretrained(directory)
    features = random_features(counterpart, config, seed)
    compare(counterpart, ours, theirs, features, record_difference)
    with tempfile.TemporaryDirectory() as directory:
        ours.save_pretrained(directory)
        again = open_theirs(counterpart, directory, way)
    weights = again.state_dict()
    for name, value in theirs.state_dict().items():
        record_difference(
            f"transformers {counterpart.theirs}",
            "weights, opened here and back",
            relative(weights[name].numpy(), value.numpy()),
            0,
        )


# --- Poolings that they lack ----------------------------------------------


@pytest.mark.parametrize(
    "pooling", [name for name in POOLING if name != "first"]
)
@pytest.mark.parametrize("ours", ["Classification", "MultipleChoice"])
def test_a_pooling_of_ours_is_not_taken_for_theirs(tmp_path, ours, pooling):
    (counterpart,) = (c for c in COUNTERPARTS if c.ours == f"AlbertFor{ours}")
    config = override(ModelConfig(), {**POOLED_SIZES, "pooling": pooling})
    our_model(counterpart, config, 1).save_pretrained(str(tmp_path / "ours"))
    assert type(transformers.AutoModel.from_pretrained(tmp_path / "ours")) is (
        transformers.AlbertModel
    )
    theirs, report = getattr(transformers, counterpart.theirs).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    names = [f"classifier.{name}" for name in ("bias", "weight")]
    assert sorted(report["missing_keys"]) == names
    assert sorted(report["unexpected_keys"]) == [
        f"{pooling}_{name}" for name in names
    ]
    # What is trained there pools as there.
    theirs.save_pretrained(tmp_path / "theirs")
    again = models()[counterpart.ours].from_pretrained(str(tmp_path / "theirs"))
    assert again.config.pooling == "first"
    (head,) = again.heads.values()
    np.testing.assert_array_equal(
        np.asarray(head.classifier.kernel).T,
        theirs.classifier.weight.detach().numpy(),
    )
