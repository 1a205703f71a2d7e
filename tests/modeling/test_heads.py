"""Every head against NumPy: inputs, outputs and losses."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from numpy_albert import (
    DROPOUT,
    SMALL,
    NumpyAlbert,
    assert_equal,
    log_softmax,
    mix,
    no_dropout,
    numpy_dropout,
    numpy_keys,
    random_features,
    randomise,
    softmax,
)

from albert_tf.config import UserError, override
from albert_tf.modeling.dropout import example_keys
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import (
    AlbertForAnswerableQuestions,
    AlbertForSentenceEmbedding,
    models,
)

CONFIG = override(SMALL, DROPOUT)
LABELS, CHOICES = 3, 4
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")
ENCODER_OUTPUTS = {"sequence_output", "pooled_output"}
HEAD_SITE = 1 << 20


@functools.cache
def model_of(name, policy="float32"):
    """Returns a model of a class, made once, with random weights."""
    kind = models()[name]
    labels = {"num_labels": LABELS} if kind.takes_labels() else {}
    options = {
        AlbertForAnswerableQuestions: {"start_n_top": 3, "end_n_top": 2},
        AlbertForSentenceEmbedding: {"pooling": "mean_max"},
    }.get(kind)
    return randomise(
        kind(
            CONFIG,
            dtype=keras.DTypePolicy(policy),
            head_options=options,
            **labels,
        )
    )


def batch_of(name, batch=3, length=7, seed=1):
    """Returns inputs and labels, without weights, for a model class."""
    rng = np.random.default_rng(seed)
    features = random_features(CONFIG, batch, length, seed)
    rows = features["input_mask"].sum(1)
    if name == "AlbertForMultipleChoice":
        parts = [
            random_features(CONFIG, batch, length, seed + n)
            for n in range(CHOICES)
        ]
        features = {
            key: np.stack([part[key] for part in parts], 1)
            for key in ENCODER_INPUTS
        }
    if name not in ("AlbertForPretraining", "AlbertForMaskedLM"):
        features.pop("masked_lm_positions", None)
    labels = {
        "masked_lm_ids": rng.integers(0, CONFIG.vocab_size, (batch, 4)),
        "sentence_order_labels": rng.integers(0, 2, batch),
        "label_ids": rng.integers(0, LABELS, batch),
        "start_positions": rng.integers(0, rows),
        "end_positions": rng.integers(0, rows),
        "is_impossible": rng.integers(0, 2, batch),
    }
    if name == "AlbertForRegression":
        labels["label_ids"] = rng.normal(size=batch).astype("float32")
    if name == "AlbertForMultiLabelClassification":
        labels["label_ids"] = rng.integers(0, 2, (batch, LABELS))
    if name == "AlbertForTokenClassification":
        labels["label_ids"] = rng.integers(0, LABELS, (batch, length))
    if name == "AlbertForAnswerableQuestions":
        features["p_mask"] = 1 - features["input_mask"]
        features["p_mask"][:, 1] = 1
        labels["start_positions"] *= 0
        labels["end_positions"][:] = 2
        labels["end_positions"][rows < 3] = 0
    needed = {
        trained.label
        for head in models()[name].head_names
        for trained in HEADS[head].labelled_outputs
    }
    return features | {n: v for n, v in labels.items() if n in needed}


# --- The heads in NumPy ---------------------------------------------------


def classifier(name, reads):
    def head(oracle, encoded, features):
        hidden = oracle.drop(
            encoded[reads], CONFIG.classifier_dropout_prob, HEAD_SITE
        )
        return {"logits": oracle.dense(hidden, name + "/classifier")}

    return head


def regression(oracle, encoded, features):
    head = classifier("regression", "pooled_output")
    return {"predictions": head(oracle, encoded, features)["logits"][:, 0]}


def multiple_choice(oracle, encoded, features):
    head = classifier("multiple_choice", "pooled_output")
    logits = head(oracle, encoded, features)["logits"]
    return {"logits": logits.reshape(-1, CHOICES)}


def span(oracle, encoded, features):
    scores = oracle.dense(encoded["sequence_output"], "span/classifier")
    return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}


def answerable_span(oracle, encoded, features, training=False):
    """The original's run_squad_v2, one example and one start at a time."""
    name = "answerable_span/"
    hidden = encoded["sequence_output"]

    def masked(logits, p_mask):
        return np.where(p_mask == 1, -1e30, logits)

    def ends_given(states, start):
        pair = np.concatenate(
            [states, np.repeat(states[start][None], len(states), 0)], -1
        )
        x = np.tanh(oracle.dense(pair, name + "end_hidden"))
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        x = x * oracle.weight(name + "end_layer_norm/gamma")
        x = x + oracle.weight(name + "end_layer_norm/beta")
        return oracle.dense(x, name + "end")[:, 0]

    def best(logits, count):
        log_probs = log_softmax(logits)
        order = sorted(range(len(logits)), key=lambda n: (-logits[n], n))
        return [(log_probs[n], n) for n in order[:count]]

    found = {}
    summaries = []
    for row, (states, p_mask) in enumerate(
        zip(hidden, features["p_mask"], strict=True)
    ):
        one = {}
        starts = masked(oracle.dense(states, name + "start")[:, 0], p_mask)
        one["start_logits"] = starts
        summaries.append(np.concatenate([softmax(starts) @ states, states[0]]))
        if "start_positions" in features:
            gold = features["start_positions"][row]
            one["end_logits"] = masked(ends_given(states, gold), p_mask)
        if not training:
            beams = best(starts, 3)
            one["start_top_log_probs"], one["start_top_positions"] = zip(
                *beams, strict=True
            )
            ends = [
                best(masked(ends_given(states, start), p_mask), 2)
                for _, start in beams
            ]
            one["end_top_log_probs"] = [[p for p, _ in e] for e in ends]
            one["end_top_positions"] = [[n for _, n in e] for e in ends]
        for key, value in one.items():
            found.setdefault(key, []).append(value)
    answer = np.tanh(oracle.dense(np.array(summaries), name + "answer_hidden"))
    answer = oracle.drop(answer, CONFIG.classifier_dropout_prob, HEAD_SITE)
    found["unanswerable_logits"] = (
        answer @ oracle.weight(name + "answer/kernel")
    )[:, 0]
    return {key: np.array(value) for key, value in found.items()}


def sentence_embedding(oracle, encoded, features):
    tokens = [
        states[mask == 1]
        for states, mask in zip(
            encoded["sequence_output"], features["input_mask"], strict=True
        )
    ]
    means = np.array([states.mean(0) for states in tokens])
    maxima = np.array([states.max(0) for states in tokens])
    return {
        "embedding": np.concatenate([means, maxima], axis=1),
        "mean_embedding": means,
        "cls_embedding": encoded["sequence_output"][:, 0],
    }


ORACLES = {
    "masked_lm": NumpyAlbert.masked_lm,
    "sentence_order": NumpyAlbert.sentence_order,
    "classification": classifier("classification", "pooled_output"),
    "multi_label": classifier("multi_label", "pooled_output"),
    "regression": regression,
    "multiple_choice": multiple_choice,
    "token_classification": classifier(
        "token_classification", "sequence_output"
    ),
    "span": span,
    "answerable_span": answerable_span,
    "sentence_embedding": sentence_embedding,
}


def flat(features):
    """Returns features with every choice as a row of its own."""
    return {
        key: value.reshape(-1, value.shape[-1]) if value.ndim == 3 else value
        for key, value in features.items()
    }


def expected_outputs(model, features, drop=no_dropout, training=False):
    oracle = NumpyAlbert(model, drop)
    encoded = oracle(flat(features))
    outputs = dict(encoded)
    for name in model.head_names:
        extra = {"training": training} if name == "answerable_span" else {}
        outputs.update(ORACLES[name](oracle, encoded, features, **extra))
    return outputs


def cross_entropy(logits, labels):
    chosen = np.take_along_axis(log_softmax(logits), labels[..., None], -1)
    return -chosen[..., 0]


def losses(output, predicted, labels):
    """Returns the loss of every label of an output, float64."""
    predicted = np.asarray(predicted, float)
    if output == "predictions":
        return np.square(predicted - labels)
    if output == "unanswerable_logits" or predicted.shape == labels.shape:
        return np.logaddexp(0, predicted) - predicted * labels
    return cross_entropy(predicted, labels)


# --- Tests ----------------------------------------------------------------


@pytest.mark.parametrize("name", models())
def test_outputs_equal_numpys_with_and_without_dropout(name):
    model, features = model_of(name), batch_of(name)
    numbers = np.array([5, 6, 1000])
    keys = numpy_keys(17, 41, numbers)
    if name == "AlbertForMultipleChoice":
        # Every choice of an example is dropped in its own way.
        keys = np.stack(
            [mix(keys + (n + 1) * 0x9E3779B9) for n in range(CHOICES)], 1
        ).reshape(-1)
    outputs = model(
        features,
        dropout_keys=example_keys(17, np.int64(41), numbers),
        training=True,
    )
    drop = numpy_dropout(keys)
    assert_equal(outputs, expected_outputs(model, features, drop, True))
    assert_equal(
        model(features, dropout_keys=example_keys(1, 2, numbers)),
        expected_outputs(model, features),
    )


def test_contrast_of_pairs_is_infonce_and_leaves_padding_out():
    vectors = np.random.default_rng(0).normal(size=(4, 2, 5))
    vectors[3] *= 100
    weights = np.array([1, 1, 1, 0], np.float32)
    total, weight = HEADS["sentence_embedding"].loss(
        {"embedding": ops.convert_to_tensor(vectors, "float32")},
        {"example_weights": ops.convert_to_tensor(weights)},
    )
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    logits = unit[:3, 0] @ unit[:3, 1].T / 0.05
    expected = cross_entropy(logits, np.arange(3)).sum()
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    assert float(weight) == 3


def test_embeddings_of_pairs_are_those_of_their_texts():
    model = model_of("AlbertForSentenceEmbedding")
    batch = batch_of("AlbertForSentenceEmbedding")
    features = {name: batch[name] for name in ENCODER_INPUTS}
    single = model(features)
    pairs = {n: np.stack([v, v[::-1]], 1) for n, v in features.items()}
    for name in HEADS["sentence_embedding"].outputs:
        found = np.asarray(model(pairs)[name])
        vectors = np.asarray(single[name])
        expected = np.stack([vectors, vectors[::-1]], 1)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_losses_equal_numpys(head):
    name = next(n for n, kind in models().items() if head in kind.head_names)
    model, features = model_of(name), batch_of(name)
    outputs = model(features)
    loss = model.heads[head].loss
    if head == "sentence_embedding":
        assert loss(outputs, features) is None
        assert HEADS[head].labelled_outputs == ()
        return
    numpys = expected_outputs(model, features)
    expected = sum(
        trained.loss_weight
        * losses(
            trained.output, numpys[trained.output], features[trained.label]
        )
        for trained in HEADS[head].labelled_outputs
    )
    np.testing.assert_allclose(
        loss(outputs, features), (expected.sum(), expected.size), rtol=1e-5
    )
    rng = np.random.default_rng(0)
    weights = rng.choice([0.0, 1.0, 0.5], expected.shape).astype("float32")
    weights.flat[:2] = 0.0, 0.5
    # What weighs nothing counts nothing, whatever its label.
    named = HEADS[head].label_weights
    first = HEADS[head].labelled_outputs[0].label
    weighted = features | {named: weights}
    weighted[first] = np.where(weights == 0, 0, features[first])
    np.testing.assert_allclose(
        loss(outputs, weighted),
        ((expected * weights).sum(), weights.sum()),
        rtol=1e-5,
    )
    nothing = features | {named: weights * 0}
    np.testing.assert_array_equal(loss(outputs, nothing), (0, 0))


@pytest.mark.parametrize("name", models())
def test_inputs_and_outputs_are_those_declared(name):
    model, features = model_of(name), batch_of(name)
    outputs = model(features)
    heads = model.heads
    declared = [output for head in heads.values() for output in head.outputs]
    given_starts = {"end_logits"} if "p_mask" in features else set()
    assert set(outputs) == ENCODER_OUTPUTS.union(declared, given_starts)
    bare = {n: features[n] for n in ENCODER_INPUTS}
    wanted = {n for head in heads.values() for n in head.features}
    without_labels = bare | {n: features[n] for n in wanted}
    assert set(model(without_labels)) == ENCODER_OUTPUTS.union(declared)
    for missing in wanted:
        with pytest.raises(UserError, match=f"with {missing}; got"):
            model({n: v for n, v in features.items() if n != missing})
    for head in heads.values():
        own = {n: outputs[n] for n in {*head.outputs, *given_starts}}
        needed = {
            trained.label: features[trained.label]
            for trained in head.labelled_outputs
        }
        for label in needed:
            rest = {n: v for n, v in features.items() if n != label}
            with pytest.raises(KeyError, match=label):
                head.loss(own, rest)
        head.loss(own, needed)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, "mixed_bfloat16") for name in models()),
        ("AlbertForPretraining", "mixed_float16"),
    ],
)
def test_outputs_are_float32_in_mixed_precision(name, policy):
    model, features = model_of(name, policy), batch_of(name)
    outputs = model(features)
    expected = expected_outputs(model, features)
    kind = policy.removeprefix("mixed_")
    for key, value in outputs.items():
        own = key not in ENCODER_OUTPUTS
        if key.endswith("_positions"):
            assert value.dtype == "int32"
            continue
        assert value.dtype == ("float32" if own else kind), key
        if "_top_" not in key:
            # bfloat16 has 8 bits: 1/256 per operation. The root mean square:
            # without instructions for it (AVX2) TensorFlow rounds more often,
            # and single values are off by up to 7 %.
            value = np.asarray(tf.cast(value, "float32"))
            real = np.abs(expected[key]) < 1e9
            scale = np.abs(expected[key][real]).max()
            errors = np.abs(value - expected[key])[real]
            assert np.square(errors).mean() ** 0.5 < 0.05 * scale, key
            assert errors.max() < 0.1 * scale, key
    for head in model.heads.values():
        pair = head.loss(outputs, features)
        assert pair is None or all(part.dtype == "float32" for part in pair)


@pytest.mark.parametrize("name", models())
def test_padding_never_changes_an_output(name):
    model = model_of(name)
    short = batch_of(name, batch=2, length=5)
    short["input_mask"][:] = 1
    if "p_mask" in short:
        short["p_mask"][:] = [0, 1, 0, 0, 0]
    rng = np.random.default_rng(3)

    def padded(amount):
        features = dict(short)
        # Even where p_mask does not say that padding is no answer.
        for key, high in (("input_ids", 23), ("segment_ids", 2), ("p_mask", 1)):
            if key in short:
                junk = rng.integers(0, high, (*short[key].shape[:-1], amount))
                features[key] = np.concatenate([short[key], junk], -1)
        width = [(0, 0)] * (short["input_ids"].ndim - 1) + [(0, amount)]
        features["input_mask"] = np.pad(short["input_mask"], width)
        outputs = {n: np.asarray(v) for n, v in model(features).items()}
        for key, value in outputs.items():
            if value.shape[1:2] == (5 + amount,):
                outputs[key] = value[:, :5]
        return outputs

    first = padded(6)
    for outputs in (padded(1), padded(10), model(short)):
        assert_equal(outputs, first, tolerance=1e-6)
    # Other padding: not a bit differs.
    for key, value in padded(6).items():
        np.testing.assert_array_equal(value, first[key])


def test_the_end_of_an_answer_needs_its_start():
    name = "AlbertForAnswerableQuestions"
    model, features = model_of(name), batch_of(name)
    without = {k: v for k, v in features.items() if k != "start_positions"}
    with pytest.raises(UserError, match="start_positions must be among"):
        model.heads["answerable_span"].loss(model(without), features)


def test_more_beams_than_tokens_are_as_many_as_tokens():
    options = {"start_n_top": 5, "end_n_top": 9}
    model = AlbertForAnswerableQuestions(SMALL, head_options=options)
    names = (*ENCODER_INPUTS, "p_mask")
    spec = dict.fromkeys(names, tf.TensorSpec([None, None], tf.int64))
    graph = tf.function(model).get_concrete_function(spec)
    for length, starts, ends in ((4, 4, 4), (7, 5, 7), (12, 5, 9)):
        features = batch_of("AlbertForAnswerableQuestions", length=length)
        inputs = {name: tf.constant(features[name]) for name in names}
        outputs, traced = model(inputs), graph(inputs)
        assert outputs["start_top_positions"].shape == (3, starts)
        assert outputs["end_top_log_probs"].shape == (3, starts, ends)
        assert_equal(traced, {n: np.asarray(v) for n, v in outputs.items()})
        one, other = (o["start_top_log_probs"] for o in (traced, outputs))
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_text_of_padding_alone_has_a_finite_embedding():
    model = AlbertForSentenceEmbedding(SMALL)
    features = random_features(SMALL)
    features["input_mask"][1] = 0
    outputs = model(features)
    assert not np.asarray(outputs["mean_embedding"])[1].any()
    assert all(np.isfinite(value).all() for value in outputs.values())


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("TokenClassification", {}, "needs labels, .*num_labels=None"),
        (
            "TokenClassification",
            {"num_labels": 2, "labels": ["a", "b", "c"]},
            "num_labels=2 and 3 labels do not",
        ),
        ("AnswerableQuestions", {"num_labels": 2}, "got num_labels=2"),
        ("Pretraining", {"pooler": False}, "needs a pooler.*sentence_order"),
        ("AnswerableQuestions", {"head_options": {"n_top": 3}}, "of end_n_top"),
        ("AnswerableQuestions", {"head_options": {"start_n_top": 0}}, "from 1"),
        ("MultipleChoice", {"head_options": {"num_labels": 2}}, "one of none"),
        (
            "SentenceEmbedding",
            {"head_options": {"pooling": "max"}},
            "one of fi",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, arguments, text):
    with pytest.raises(UserError, match=text):
        models()[f"AlbertFor{name}"](SMALL, **arguments)


def test_which_heads_have_classes():
    # Others of ours have positions, numbers, vectors, or a probability of each
    # label by itself.
    ours = {name for name, head in HEADS.items() if head.has_classes()}
    assert ours == {
        "classification",
        "masked_lm",
        "multiple_choice",
        "sentence_order",
        "token_classification",
    }


def test_choices_are_refused_by_heads_that_read_single_texts():
    model = model_of("AlbertForClassification")
    with pytest.raises(UserError, match=r"reads input_ids \[batch, seq\]"):
        model({"input_ids": np.ones((2, 3, 4), "int32")})


def test_choices_without_their_axis_are_refused():
    features = batch_of("AlbertForClassification")
    with pytest.raises(UserError, match="they have 2 axes"):
        model_of("AlbertForMultipleChoice")(features)
