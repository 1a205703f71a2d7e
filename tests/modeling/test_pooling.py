"""Poolings: what the heads of texts read, against NumPy."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import (
    DROPOUT,
    SMALL,
    NumpyAlbert,
    assert_equal,
    no_dropout,
    numpy_dropout,
    numpy_keys,
    random_features,
    randomise,
)

from albert_tf.config import (
    EmbeddingConfig,
    ModelConfig,
    UserError,
    override,
    setting_fields,
)
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.heads import HEADS, DenseHead
from albert_tf.modeling.heads.pooling import EMBEDDINGS, POOLINGS, TEXT_VECTOR
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
    AlbertForRegression,
    AlbertModel,
    model_class,
)

LABELS, CHOICES = 3, 2
OWN = [name for name in POOLINGS if name != "first"]
POOLED_HEADS = [n for n, head in HEADS.items() if head.reads == TEXT_VECTOR]
# The other is a classifier of texts, too.
ONE_LABEL = [name for name in POOLED_HEADS if name != "multi_label"]
RATE = DROPOUT["classifier_dropout_prob"]
INPUTS = ("input_ids", "input_mask", "segment_ids")


def build(head, pooling, policy="float32", **changes):
    config = override(SMALL, {"pooling": pooling, **changes})
    kind = model_class(head)
    labels = LABELS if kind.takes_labels() else None
    model = kind(config, labels, dtype=keras.DTypePolicy(policy))
    return randomise(model)


def batch_of(head, length=7):
    features = random_features(SMALL, length=length)
    del features["masked_lm_positions"]
    if head == "multiple_choice":
        # The choices of a text are of different lengths.
        other = random_features(SMALL, length=length, seed=2)
        features = {
            n: np.stack([features[n], other[n][::-1]], 1) for n in INPUTS
        }
    return features


def rows_of(features):
    return {n: v.reshape(-1, v.shape[-1]) for n, v in features.items()}


def vectors(oracle, features, pooling):
    """Returns the vector of each row, one token after the other."""
    encoded = oracle(features)
    if pooling == "first":
        return encoded["pooled_output"]
    rows = (encoded["sequence_output"], *map(features.get, INPUTS))
    return np.array(
        [vector_of(pooling, *row) for row in zip(*rows, strict=True)]
    )


def vector_of(pooling, states, ids, mask, segments):
    texts = (mask, mask * (segments == 0), mask * (segments == 1))
    chosen = [
        [state for state, n in zip(states, text, strict=True) if n]
        for text in texts
    ]
    mean, first, second = (
        sum(text) / len(text) if text else np.zeros(SMALL.hidden_size)
        for text in chosen
    )
    highest = [max(values) for values in zip(*chosen[0], strict=True)]
    compared = [*first, *second, *abs(first - second), *first * second]
    ngrams, u, v = (ngram_vector(ids, text) for text in texts)
    shared = [*np.minimum(u, v), *abs(u - v), 160 * u @ v / 40**2]
    shared += [160 * n for n in likeness(*(ids[t > 0] for t in texts[1:]))]
    of_both = [*u / 2, *v / 2, *shared]
    return {
        "mean": mean,
        "mean_max": [*mean, *highest],
        "mean_ngrams": [*mean, *ngrams],
        "pair_mean": compared,
        "pair_mean_ngrams": [*compared, *of_both],
    }[pooling]


def ngram_vector(ids, text):
    """Returns the roots of the shares of all tokens and pairs, hashed."""
    found = [int(n) for n, counts in zip(ids, text, strict=True) if counts]
    for place in range(len(ids) - 1):
        if text[place] and text[place + 1]:
            found.append(int(ids[place]) * 7919 + int(ids[place + 1]))
    shares = np.zeros(2**15)
    for ngram in found:
        shares[ngram % 2**15] += 1 / len(found)
    return 40 * np.sqrt(shares)


def likeness(first, second):
    """Returns cosine and shares of tokens by the logarithms of their ranks."""
    information = {int(n): np.log(2 + n) for n in [*first, *second]}
    u, v = (
        {n: information[n] * text.count(n) for n in text}
        for text in (first.tolist(), second.tolist())
    )
    product = sum(u[n] * v.get(n, 0) for n in u)
    lengths = [sum(w**2 for w in text.values()) ** 0.5 for text in (u, v)]
    shared = u.keys() & v.keys()
    return [
        product / max(lengths[0] * lengths[1], 1),
        *(
            sum(text[n] for n in shared) / max(sum(text.values()), 1)
            for text in (u, v)
        ),
    ]


def scores_of(model, features, drop=no_dropout):
    """Returns the scores `[rows, width]` of the model's only head."""
    oracle = NumpyAlbert(model, drop)
    found = vectors(oracle, rows_of(features), model.config.pooling)
    # All but the n-grams, which are behind the states.
    ngrams = {"mean_ngrams": 2**15, "pair_mean_ngrams": 4 * 2**15 + 4}
    end = found.shape[1] - ngrams.get(model.config.pooling, 0)
    rate = model.config.classifier_dropout_prob
    found[:, :end] = drop(found[:, :end], rate, 1 << 20)
    (head,) = model.head_names
    return oracle.dense(found, head + "/classifier")


def outputs_of(model, features, **options):
    """Returns the head's output as `[rows, width]`."""
    (head,) = model.heads.values()
    (name,) = head.outputs
    value = model(features, **options)[name]
    width = LABELS if head.takes_labels() else 1
    value = keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))
    return value.reshape(-1, width)


def test_the_settings_choices_are_the_rows():
    choices = setting_fields(ModelConfig)["pooling"].metadata["choices"]
    assert tuple(choices) == tuple(POOLINGS)
    assert ModelConfig().pooling == "first"
    settings = setting_fields(EmbeddingConfig().embeddings)
    choices = settings["pooling"].metadata["choices"]
    assert tuple(choices) == tuple(EMBEDDINGS)


def test_the_heads_of_texts_read_the_pooled_vector():
    names = "classification multi_label regression multiple_choice"
    assert names.split() == POOLED_HEADS
    for name in POOLED_HEADS:
        assert issubclass(HEADS[name], DenseHead)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("head", POOLED_HEADS)
def test_outputs_are_numpys(head, pooling):
    model, features = build(head, pooling), batch_of(head)
    expected = scores_of(model, features)
    for options in ({}, {"heads_only": True}):
        found = outputs_of(model, features, **options)
        assert_equal({"": found}, {"": expected})


@pytest.mark.parametrize("pooling", OWN)
def test_dropout_is_of_the_vector(pooling):
    model = build("classification", pooling, classifier_dropout_prob=RATE)
    features, numbers = batch_of("classification"), np.array([5, 6, 9])
    found = outputs_of(
        model,
        features,
        dropout_keys=example_keys(17, np.int64(41), numbers),
        training=True,
    )
    drop = numpy_dropout(numpy_keys(17, 41, numbers))
    assert_equal({"": found}, {"": scores_of(model, features, drop)})


@pytest.mark.parametrize("pooling", OWN)
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_near(policy, pooling):
    model = build("regression", pooling, policy)
    features = batch_of("regression")
    expected = scores_of(model, features)
    errors = np.abs(outputs_of(model, features) - expected)
    bound = 0.05 if policy == "mixed_bfloat16" else 0.01
    assert errors.max() < bound * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.parametrize("pooling", OWN)
@pytest.mark.parametrize("head", ONE_LABEL)
def test_padding_changes_nothing(head, pooling):
    model, features = build(head, pooling), batch_of(head, length=6)
    rng = np.random.default_rng(4)

    def padded(amount):
        found = {}
        for name, value in features.items():
            high = 1 if name == "input_mask" else 2
            junk = rng.integers(0, high, (*value.shape[:-1], amount))
            found[name] = np.concatenate([value, junk], -1)
        return outputs_of(model, found)

    first = padded(5)
    np.testing.assert_array_equal(padded(5), first)
    for amount in (0, 1, 9):
        np.testing.assert_allclose(padded(amount), first, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize("pooling", OWN)
def test_a_text_of_padding_alone_gives_the_bias(pooling, policy):
    model = build("regression", pooling, policy)
    features = batch_of("regression")
    features["input_mask"][1] = 0
    with tf.GradientTape() as tape:
        found = model(features, heads_only=True)["predictions"]
        loss = tf.reduce_sum(found)
    bias = model.regression.classifier.bias
    np.testing.assert_allclose(found[1], bias[0], rtol=1e-3)
    variables = [v.value for v in model.trainable_variables]
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(
        model.trainable_variables, gradients, strict=True
    ):
        # Nothing reads the pooled output.
        assert (gradient is None) == ("pooler" in variable.path)
        if gradient is not None:
            gradient = tf.convert_to_tensor(gradient)
            assert np.isfinite(tf.cast(gradient, "float32")).all()


def test_the_classifier_is_as_wide_as_the_vector():
    config = override(SMALL, {"pooling": "mean_max"})
    width = SMALL.hidden_size
    weights = {"classification": 3, "regression": 1, "multiple_choice": 1}
    for name, outputs in weights.items():
        count = HEADS[name].count_weights(config, 3)
        assert count == (2 * width + 1) * outputs
    assert HEADS["sentence_order"].count_weights(config, 3) == (width + 1) * 2


def test_only_the_pooled_output_needs_a_pooler():
    for pooling in OWN:
        config = override(SMALL, {"pooling": pooling})
        model = AlbertForRegression(config, pooler=False)
        assert "predictions" in model(batch_of("regression"))
        with pytest.raises(UserError, match=r"needs a pooler.*sentence_order"):
            AlbertForPretraining(config, pooler=False)
    with pytest.raises(UserError, match=r"needs a pooler.*head regression"):
        AlbertForRegression(SMALL, pooler=False)


def test_weights_of_ngrams_begin_at_zero():
    head = AlbertForClassification(
        override(SMALL, {"pooling": "mean_ngrams"}), 2
    )
    head.build()
    assert not np.any(head.classification.classifier.kernel)


def test_a_pooling_that_is_none():
    with pytest.raises(UserError, match="pooling='max' is not one of first, "):
        override(SMALL, {"pooling": "max"})


@pytest.mark.parametrize("pooling", POOLINGS)
def test_all_positions_are_computed_only_where_they_are_read(pooling):
    model = build("classification", pooling)
    assert model.reads_positions_only() == (pooling == "first")
    encoder = AlbertModel(override(SMALL, {"pooling": pooling}))
    assert encoder.reads_positions_only()


# Each head and each pooling once: a pair takes seconds.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "pooling"),
    list(zip(itertools.cycle(ONE_LABEL), OWN, strict=False)),
)
def test_keras_trains_saves_and_loads(head, pooling, tmp_path):
    model = build(head, pooling, num_hidden_layers=1)
    features, labels = batch_of(head), np.array([1, 0, 1])
    model.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=True)
    losses = model.fit(features, labels, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    expected = outputs_of(model, features)
    model.save(tmp_path / "model.keras")
    model.save_pretrained(str(tmp_path / "model"))
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        type(model).from_pretrained(str(tmp_path / "model")),
    ):
        assert again.config == model.config
        np.testing.assert_array_equal(outputs_of(again, features), expected)


def test_a_frozen_encoder_leaves_the_classifier():
    model = AlbertForClassification(override(SMALL, {"pooling": "mean_max"}), 2)
    model.encoder.trainable = False
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    assert shapes == [(2 * SMALL.hidden_size, 2), (2,)]


def test_a_pooling_of_pairs_knows_them_in_one_segment():
    config = override(SMALL, {"type_vocab_size": 1, "pooling": "pair_mean"})
    model = AlbertForClassification(config, 2)
    ids = np.array([[2, 5, 3, 6, 3]])
    both, first = (
        model({"input_ids": ids, "segment_ids": np.array([segments])})
        for segments in ([0, 0, 0, 1, 1], [0] * 5)
    )
    np.testing.assert_array_equal(
        both["sequence_output"], first["sequence_output"]
    )
    assert not np.allclose(both["logits"], first["logits"])
