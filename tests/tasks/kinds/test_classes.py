"""What is told of classes: measures, tables, pictures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from albert_tf.tasks.kinds.base import ConfusionMatrix, Distributions
from albert_tf.tasks.kinds.classes import (
    class_error,
    class_figure,
    class_metrics,
    constant_class,
    label_table,
    listed,
    softmax,
)
from albert_tf.tasks.metrics import scalar

LABELS = ["no", "perhaps", "yes"]


@given(
    st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_softmax(rows):
    found = softmax(np.array(rows, np.float32))
    assert found.dtype == np.float64
    expected = special.softmax(np.array(rows), axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_measures_beside_the_most_frequent_class():
    numbers = np.array([2, 0, 2, 2, 1])
    probabilities = np.eye(3)[[2, 2, 2, 0, 1]] * 0.7 + 0.1
    found = class_metrics(
        numbers,
        list(probabilities),
        {"accuracy": scalar.accuracy, "macro_f1": scalar.macro_f1},
    )
    # Class 0: none right. Class 1: perfect. Class 2: 2 of 3 found, 2 of 3
    # that are predicted right. Always 2: precision 3/5, recall 1.
    assert found == pytest.approx(
        {
            "accuracy": 3 / 5,
            "macro_f1": (0 + 1 + 2 / 3) / 3,
            "majority_class_accuracy": 3 / 5,
            "majority_class_macro_f1": 2 * 0.6 / 1.6 / 3,
        }
    )


def test_the_most_frequent_class_does_not_hang_on_the_predictions():
    numbers = np.array([1, 1, 1, 0])
    for found in ([0, 0, 0, 0], [1, 1, 1, 1]):
        measures = class_metrics(
            numbers,
            list(np.eye(2)[found]),
            {"accuracy": scalar.accuracy},
        )
        assert measures["majority_class_accuracy"] == 0.75


def test_a_table_of_labels():
    table = label_table(np.array([0, 0, 1, 0]), np.array([0, 1, 1, 1]), LABELS)
    assert table.header == ["label", "precision", "recall", "f1", "examples"]
    assert table.rows == [
        ["no", "1.0000", "0.3333", "0.5000", "3"],
        ["perhaps", "0.3333", "1.0000", "0.5000", "1"],
        ["yes", "0.0000", "0.0000", "0.0000", "0"],
    ]


def test_how_wrong_a_class_is():
    row = np.array([0.2, 0.5, 0.3])
    found = [class_error(row, right) for right in (0, 1, 2, None)]
    assert found == pytest.approx([0.3, 0.0, 0.2, 0.0])


def test_a_class_that_is_the_answer_to_all():
    rows = [np.array([0.1, 0.9]), np.array([0.4, 0.6])]
    assert constant_class(rows, ["no", "yes"]) == "yes"
    assert constant_class(rows, ["yes", "no"]) == "no"
    assert constant_class([*rows, np.array([0.6, 0.4])], ["no", "yes"]) is None
    # One answer is always the only one.
    assert constant_class(rows[:1], ["no", "yes"]) is None


def test_labels_in_a_message():
    assert listed(["b", "a"]) == "b, a"
    twelve = [str(n) for n in range(12)]
    assert listed(twelve) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
    assert listed([*twelve, "x", "y"]) == f"{listed(twelve)} and 2 others"
    # A message is one line, and a label no page.
    assert listed(["a\nb", "c" * 99, "é"]) == f"'a\\nb', {'c' * 60}, é"


@pytest.mark.parametrize("count", [2, 100])
def test_a_picture_of_which_label_for_which(count):
    labels = [f"label {number}" for number in range(count)]
    rng = np.random.default_rng(0)
    right = rng.integers(count, size=50)
    rows = rng.dirichlet(np.ones(count), size=50)
    figure = class_figure(right, rows, labels)
    assert isinstance(figure, ConfusionMatrix)
    assert figure.labels == labels
    expected = np.zeros((count, count))
    for number, row in zip(right, rows, strict=True):
        expected[number, np.argmax(row)] += 1
    np.testing.assert_array_equal(figure.counts, expected)


def test_a_picture_of_more_labels_than_can_be_drawn():
    labels = [f"label {number}" for number in range(101)]
    rows = np.full((3, 101), 0.001)
    rows[[0, 1, 2], [100, 7, 0]] = (0.9, 0.4, 0.6)
    figure = class_figure(np.array([100, 8, 0]), rows, labels)
    assert isinstance(figure, Distributions)
    assert figure.measure == "probability of the answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"right": [0.9, 0.6], "wrong": [0.4]}
