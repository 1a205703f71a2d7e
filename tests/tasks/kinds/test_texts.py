"""Texts and pairs: rows, labels, numbers, and what is said of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Answers
from albert_tf.tasks.kinds.texts import (
    Classification,
    Regression,
    framed,
    is_number,
    label_numbers,
    lengths_that_fit,
    number_of,
    text_features,
)
from albert_tf.tasks.metrics import scalar

CONFIG = FeatureConfig()
LABELS = ["no", "perhaps", "yes"]


def popped(first, second, room):
    """The original's `_truncate_seq_pair`, to the letter."""
    a, b = [0] * first, [0] * second
    while True:
        if len(a) + len(b) <= room:
            return len(a), len(b)
        if len(a) > len(b):
            a.pop()
        else:
            b.pop()


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 50))
def test_a_pair_is_cut_as_in_the_original(first, second, room):
    expected = popped(first, second, room)
    assert lengths_that_fit(first, second, room) == expected


class Frame:
    """What of a tokenizer a row needs."""

    cls_id, sep_id, pad_id = 2, 3, 7


def rows_of(features, width):
    batch = features.batch(np.arange(len(features)), width)
    return {name: batch[name].tolist() for name in batch}


def test_single_texts():
    found = framed([[[8, 9]], [[]], [[6] * 9]], Frame, 6, {})
    assert rows_of(found, 6) == {
        "input_ids": [
            [2, 8, 9, 3, 7, 7],
            [2, 3, 7, 7, 7, 7],
            [2, 6, 6, 6, 6, 3],
        ],
        "segment_ids": [[0] * 6] * 3,
        "input_mask": [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [1] * 6],
    }
    assert found.cut == [2]
    assert found.example_numbers.tolist() == [0, 1, 2]


def test_pairs():
    found = framed(
        [[[8], [9, 9]], [[], []], [[5] * 9, [6, 6]], [[5, 5, 5], [6, 6, 6]]],
        Frame,
        8,
        {"label_ids": np.array([3, 1, 2, 0])},
    )
    assert rows_of(found, 8) == {
        "input_ids": [
            [2, 8, 3, 9, 9, 3, 7, 7],
            [2, 3, 3, 7, 7, 7, 7, 7],
            [2, 5, 5, 5, 3, 6, 6, 3],
            [2, 5, 5, 5, 3, 6, 6, 3],
        ],
        "segment_ids": [
            [0, 0, 0, 1, 1, 1, 0, 0],
            [0, 0, 1, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 1, 1, 1],
            [0, 0, 0, 0, 0, 1, 1, 1],
        ],
        "input_mask": [
            [1, 1, 1, 1, 1, 1, 0, 0],
            [1, 1, 1, 0, 0, 0, 0, 0],
            [1] * 8,
            [1] * 8,
        ],
        "label_ids": [3, 1, 2, 0],
    }
    assert found.cut == [2, 3]


def test_texts_that_just_fit_are_not_cut():
    assert framed([[[5] * 6]], Frame, 8, {}).cut == []
    assert framed([[[5] * 7]], Frame, 8, {}).cut == [0]
    assert framed([[[5] * 2, [6] * 3]], Frame, 8, {}).cut == []
    assert framed([[[5] * 3, [6] * 3]], Frame, 8, {}).cut == [0]


def test_texts_are_in_their_order(tiny_tokenizer):
    examples = [
        Example(("the of", "and"), None),
        Example(("and the",), None),
        Example(("of", "of the"), None),
    ]
    found = text_features(examples, tiny_tokenizer, 64, {})
    encode, sep = tiny_tokenizer.encode, tiny_tokenizer.sep_id
    for number, example in enumerate(examples):
        expected = [tiny_tokenizer.cls_id]
        for text in example.texts:
            expected += [*encode(text), sep]
        assert found.row(number, "input_ids").tolist() == expected
    assert found.padding["input_ids"] == tiny_tokenizer.pad_id


def test_empty_texts_are_counted():
    examples = [
        Example(texts, "x", f"file, line {n}")
        for n, texts in enumerate([("a", "b"), ("a", ""), (" \t", "b")])
    ]
    for kind in (Classification(), Regression()):
        assert kind.warnings(examples, training=True) == [
            "2 of 3 examples have an empty text, the first file, line 1."
        ]
        assert kind.warnings(examples[:1], training=False) == []


def test_the_numbers_of_labels():
    examples = [Example(("a",), label) for label in ("yes", None, "perhaps")]
    found = label_numbers(examples, LABELS)
    assert found.tolist() == [2, 0, 1]
    assert found.dtype == np.int32
    assert label_numbers(examples, LABELS[::-1]).tolist() == [0, 0, 1]
    strange = Example(("a",), "y" * 99, "dev.tsv, line 7")
    said = (
        "^dev.tsv, line 7: the label is 'y{60}'; the model's labels are no, "
        "perhaps, yes.$"
    )
    with pytest.raises(UserError, match=said):
        label_numbers([*examples, strange], LABELS)


@pytest.mark.parametrize(
    ("label", "number"),
    [
        ("3.800", 3.8),
        ("-2", -2.0),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("1e-3", 1e-3),
        ("2E+1", 20.0),
        ("3.4e38", 3.4e38),
    ],
)
def test_labels_that_are_numbers(label, number):
    assert number_of(label, "") == number
    assert is_number(label)


@pytest.mark.parametrize(
    "label",
    [
        "",
        "good",
        "1_0",
        "nan",
        "inf",
        "1e999",
        # A number, but not in float32.
        "-1e39",
        "0x1",
        " 1",
        "1,5",
        "٣",
        ".",
        "1\n",
    ],
)
def test_labels_that_are_no_numbers(label):
    with pytest.raises(UserError) as raised:
        number_of(label, "t.tsv, line 2")
    assert str(raised.value) == (
        f"t.tsv, line 2: the label is {label!r}; it must be a number (up to "
        "3.4e+38)."
    )
    assert not is_number(label)


# Classification.

KIND = Classification()
EXAMPLES = [
    Example(("the",), "yes", "f, line 2"),
    Example(("of", "and"), "no", "f, line 3"),
    Example(("and",), None, "f, line 4"),
]
SCORES = [
    np.array([0.1, 0.2, 0.7]),
    np.array([0.2, 0.5, 0.3]),
    np.array([0.6, 0.3, 0.1]),
]


def test_the_labels_that_occur():
    examples = [Example(("a",), label) for label in ("b", "a", None, "b", "B")]
    assert KIND.labels(examples) == ["B", "a", "b"]
    one = [Example(("a",), "b", "train.tsv, line 2")] * 3
    said = (
        "^train.tsv, line 2 and what follows: .* one label only, 'b'; a class"
    )
    with pytest.raises(UserError, match=said):
        KIND.labels(one)


@pytest.mark.parametrize(
    ("labels", "examples", "refused"),
    [
        # However few examples there are, twenty may be.
        (20, 20, False),
        (21, 21, True),
        (21, 41, True),
        (21, 42, False),
        (50, 100, False),
        (51, 100, True),
    ],
)
def test_labels_that_are_likely_no_labels(labels, examples, refused):
    made = [
        Example(("a",), f"{number % labels:03}", "t.tsv, line 2")
        for number in range(examples)
    ]
    if not refused:
        assert len(KIND.labels(made)) == labels
        return
    with pytest.raises(UserError) as raised:
        KIND.labels(made)
    named = ", ".join(f"{number:03}" for number in range(12))
    assert str(raised.value) == (
        f"t.tsv, line 2 and what follows: {examples} training examples have "
        f"{labels} different labels ({named} and {labels - 12} others); is "
        "that the right column? Numbers are learned with --task=custom "
        "--columns=text=...,number=...."
    )


def test_features_of_classes(tiny_tokenizer):
    found = KIND.features(
        EXAMPLES,
        tiny_tokenizer,
        FeatureConfig(max_seq_length=8),
        labels=LABELS,
        training=True,
    )
    assert found.scalars["label_ids"].tolist() == [2, 0, 0]
    assert found.scalars["label_ids"].dtype == np.int32
    assert found.lengths.max() <= 8
    assert [KIND.has_label(example) for example in EXAMPLES] == [
        True,
        True,
        False,
    ]


def test_probabilities_and_their_mean():
    logits = [np.log(np.array(row, np.float32)) for row in SCORES]
    scores = KIND.scores(EXAMPLES, None, {"logits": logits}, CONFIG)
    np.testing.assert_allclose(scores, SCORES, atol=1e-6)
    averaged = KIND.ensemble([SCORES, SCORES[::-1], SCORES])
    expected = [
        (2 * a + b) / 3 for a, b in zip(SCORES, SCORES[::-1], strict=True)
    ]
    np.testing.assert_allclose(averaged, expected)


def test_measures_and_table_of_classes():
    of_task = {"accuracy": scalar.accuracy}
    answers = Answers(EXAMPLES[:2], SCORES[:2], CONFIG, LABELS)
    found = KIND.compute_metrics(answers, of_task)
    assert found == {"accuracy": 0.5, "majority_class_accuracy": 0.5}
    assert KIND.metric_names(of_task, LABELS) == ("accuracy",)
    table = KIND.table(answers)
    assert [row[-1] for row in table.rows] == ["1", "0", "1"]
    assert table.rows[2][:4] == ["yes", "1.0000", "1.0000", "1.0000"]


def test_predictions_of_classes():
    found = KIND.predictions(Answers(EXAMPLES, SCORES, CONFIG, LABELS))
    assert found[0].fields == {
        "text": "the",
        "label": "yes",
        "prediction": "yes",
        "probabilities": {"no": 0.1, "perhaps": 0.2, "yes": 0.7},
    }
    assert found[1].fields["texts"] == ["of", "and"]
    assert [p.fields["label"] for p in found] == ["yes", "no", None]
    assert [p.fields["prediction"] for p in found] == ["yes", "perhaps", "no"]
    assert [p.location for p in found] == [e.location for e in EXAMPLES]
    assert [p.error for p in found] == pytest.approx([0.0, 0.3, 0.0])


def test_a_picture_of_classes():
    figure = KIND.figure(
        Answers(
            [EXAMPLES[0], EXAMPLES[1], EXAMPLES[0], EXAMPLES[0]],
            [SCORES[0], SCORES[1], SCORES[2], SCORES[0]],
            CONFIG,
            LABELS,
        )
    )
    assert figure.labels == LABELS
    # A row is of what was right: of "yes" two are found, one is said "no".
    assert figure.counts.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 2]]
    many = [*LABELS, *(f"z{number}" for number in range(98))]
    rows = [np.append(row, np.zeros(98)) for row in SCORES[:2]]
    figure = KIND.figure(Answers(EXAMPLES[:2], rows, CONFIG, many))
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"right": [0.7], "wrong": [0.5]}


def test_a_label_that_is_the_answer_to_all():
    assert KIND.constant_prediction(Answers([], SCORES, CONFIG, LABELS)) is None
    assert (
        KIND.constant_prediction(Answers([], SCORES[:1] * 2, CONFIG, LABELS))
        == "yes"
    )


# Regression.

NUMBERS = Regression()
GRADED = [
    Example(("the",), "1.5", "f, line 2"),
    Example(("of", "and"), "-2", "f, line 3"),
    Example(("and",), "4", "f, line 4"),
    Example(("and",), None, "f, line 5"),
]


def test_features_of_numbers(tiny_tokenizer):
    found = NUMBERS.features(
        GRADED, tiny_tokenizer, CONFIG, labels=[], training=True
    )
    assert found.scalars["label_ids"].tolist() == [1.5, -2.0, 4.0, 0.0]
    assert found.scalars["label_ids"].dtype == np.float32
    assert [NUMBERS.has_label(example) for example in GRADED] == [True] * 3 + [
        False
    ]
    wrong = Example(("a",), "good", "f, line 9")
    with pytest.raises(
        UserError, match="f, line 9: the label is 'good'; it mu"
    ):
        NUMBERS.features(
            [wrong], tiny_tokenizer, CONFIG, labels=[], training=True
        )


def test_numbers_and_their_mean():
    outputs = {"predictions": np.array([0.5, 2.0], np.float32)}
    scores = NUMBERS.scores(GRADED[:2], None, outputs, CONFIG)
    assert scores == [0.5, 2.0]
    assert {type(score) for score in scores} == {float}
    averaged = NUMBERS.ensemble([[1.0, 2.0], [3.0, 4.0], [8.0, 0.0]])
    assert averaged == [4.0, 2.0]
    assert {type(score) for score in averaged} == {float}


def test_measures_of_numbers():
    labels, found = np.array([1.5, -2.0, 4.0]), np.array([1.0, 0.0, 3.0])
    of_task = {"pearson": scalar.pearson, "spearman": scalar.spearman}
    measures = NUMBERS.compute_metrics(
        Answers(GRADED[:3], found.tolist(), CONFIG, []), of_task
    )
    squares = np.mean((labels - found) ** 2)
    guessed = np.mean((labels - labels.mean()) ** 2)
    assert measures == pytest.approx(
        {
            "pearson": np.corrcoef(labels, found)[0, 1],
            "spearman": 1.0,
            "mean_squared_error": squares,
            "mean_guess_mean_squared_error": guessed,
        }
    )
    measured = NUMBERS.metric_names(of_task, [])
    assert measured == ("pearson", "spearman", "mean_squared_error")
    assert set(measured) <= measures.keys()
    assert NUMBERS.metric_names({}, []) == ("mean_squared_error",)
    assert not any(map(math.isnan, measures.values()))


def test_predictions_of_numbers():
    found = NUMBERS.predictions(
        Answers(GRADED, [1.0, 0.0, 4.0, 9.0], CONFIG, [])
    )
    assert found[0].fields == {"text": "the", "label": "1.5", "prediction": 1.0}
    assert found[1].fields["texts"] == ["of", "and"]
    assert [p.error for p in found] == [0.5, 2.0, 0.0, 0.0]
    assert [p.location for p in found] == [e.location for e in GRADED]


def test_a_picture_of_numbers():
    figure = NUMBERS.figure(Answers(GRADED[:3], [1.0, 0.0, 4.0], CONFIG, []))
    assert figure.measure == "number"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"labels": [1.5, -2.0, 4.0], "answers": [1.0, 0.0, 4.0]}


def test_a_number_that_is_the_answer_to_all():
    assert (
        NUMBERS.constant_prediction(
            Answers([], [2.501, 2.499, 2.5], CONFIG, [])
        )
        == "2.5"
    )
    assert (
        NUMBERS.constant_prediction(Answers([], [2.5, 2.53], CONFIG, []))
        is None
    )
    assert NUMBERS.constant_prediction(Answers([], [2.5], CONFIG, [])) is None
