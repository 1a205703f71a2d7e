"""Classification of texts, and what all kinds that predict classes share."""

import json
import re

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError, listed
from albert_tf.tasks import feature_building
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.classification import Classification, class_error
from albert_tf.tasks.metrics import scalar

KIND = Classification()
CONFIG = FeatureConfig()
LABELS = ["no", "perhaps", "yes"]
EXAMPLES = [
    Example(("the",), "yes", "f:2"),
    Example(("of", "and"), "no", "f:3"),
    Example(("and",), None, "f:4"),
]
SCORES = list(np.array([[0.1, 0.2, 0.7], [0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]))


def scored(gold, scores, labels=LABELS):
    examples = [Example(("a",), labels[number]) for number in gold]
    return ScoredExamples(examples, list(scores), CONFIG, labels)


def test_labels_in_a_message():
    assert listed(["b", "a"]) == "b, a"
    assert listed(map(str, range(14)), 12).endswith("10, 11 and 2 others")
    assert listed(["a\nb", "c" * 99, "é"]) == f"'a\\nb', {'c' * 60}, é"


def test_a_metric_may_be_a_number_of_numpy():
    metrics = {"half": lambda gold, predicted: np.float32(0.5)}
    found = KIND.compute_metrics(scored([0, 2], SCORES[:2]), metrics)
    assert json.loads(json.dumps(found))["half"] == 0.5


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["b", "a", None, "b", "B"], ["B", "a", "b"]),
        (["b"] * 3, "one label only, 'b'; a class"),
        # Nearly as many labels as examples.
        (
            [f"{n % 21:03}" for n in range(41)],
            "41 training examples have 21 different labels .*; is that the ri",
        ),
        (
            [f"{n % 21:03}" for n in range(42)],
            [f"{n:03}" for n in range(21)],
        ),
    ],
)
def test_labels(labels, found):
    examples = [Example(("a",), label, "t.tsv:2") for label in labels]
    if isinstance(found, list):
        assert KIND.labels(examples) == found
        return
    with pytest.raises(
        UserError, match=f"^t.tsv:2 and what follows: .*{found}"
    ):
        KIND.labels(examples)


def test_labels_that_differ_in_case_are_reported():
    examples = [Example(("a",), label) for label in ("no", "NO", "yes")]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("NO, no: trained as different labels, though only")
    examples = [Example(("a",), label) for label in ("1", "1.0", "-0", "0")]
    line, *_ = KIND.warnings(examples, training=True)
    assert line.startswith("-0, 0, 1, 1.0: trained as different labels")
    # Long numbers are different ones.
    for labels in (("1234567", "1234568"), (str(2**53), str(2**53 + 1))):
        examples = [Example(("a",), label) for label in labels]
        lines = KIND.warnings(examples, training=True)
        assert not [line for line in lines if "different labels" in line]
    labels = ("caf\u00e9", "cafe\u0301", "1.0", "1", "b\u200b", "b", "c", "10")
    examples = [Example(("a",), label) for label in labels]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith(
        "1, 1.0, b, 'b\\u200b', cafe\u0301, caf\u00e9: trained"
    )


@pytest.mark.parametrize(
    ("labels", "combined"),
    [
        ("a|b a b", "1 of 3 labels look like several in one (a|b)"),
        ("a|b c|d e", "2 of 3 labels look like several in one (a|b, c|d)"),
        (
            "a,b b,c a b",
            "2 of 4 labels look like several in one ('a,b', 'b,c')",
        ),
        ("a;b b a", "1 of 3 labels look like several in one (a;b)"),
        ("a|b c", "1 of 2 labels look like several in one (a|b)"),
        ("a#b b a", "1 of 3 labels look like several in one (a#b)"),
        ("['a','b'] a", "1 of 2 labels look like several in one (['a','b'])"),
        # Names.
        ("a| b", ""),
        ("Ulm,DE Bonn,DE Rome,IT", ""),
        ("C C# [C]", ""),
    ],
)
def test_labels_that_look_combined(labels, combined):
    examples = [Example(("a",), label) for label in labels.split()]
    found = KIND.warnings([*examples, *EXAMPLES[2:]], training=True)
    expected = (
        f"{combined}; each is trained as a class of its own, since an example "
        "has one label; --task=multilabel takes several."
    )
    assert found == ([expected] if combined else [])
    assert KIND.warnings(examples, training=False) == []


def test_labels_that_are_no_values_elsewhere():
    examples = [Example(("a",), label) for label in ("x", "NULL", "\\N")]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("NULL, \\N: trained as a class of its own, though")
    # SNLI marks a pair without a majority so; beside + it is a class.
    examples = [Example(("a",), label) for label in ("neutral", "-")]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("-: trained as a class of its own")
    assert not KIND.warnings([*examples, Example(("a",), "+")], training=True)


def test_labels_that_are_numbers():
    examples = [Example(("a",), label) for label in ("1", "2", "4.5")]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("1, 2, 4.5: numbers are learned as classes without")
    assert not KIND.warnings(examples[:2], training=True)


def test_labels_in_quotes():
    examples = [Example(("a",), label) for label in ("'x'", '"y"', "z'", '"')]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("\"y\", 'x': the quotes are part of these labels;")


def test_unknown_labels_are_listed_together(tiny_tokenizer, monkeypatch):
    # The chunks in which features are built do not matter.
    monkeypatch.setattr(feature_building, "_CHUNK", 1)
    builder = feature_building.FeatureBuilder(
        KIND, tiny_tokenizer, CONFIG, LABELS
    )
    unknown = [Example(("a",), label, f"dev.tsv:{label}") for label in "78"]
    message = (
        "^dev.tsv: 2 of 5 examples are bad: expected one of no, perhaps, yes "
        r"as the label \(2: lines 7, got '7'; 8, got '8'\)\. Others are not "
        r"in the training file, so that the model cannot predict them\.$"
    )
    with pytest.raises(UserError, match=message):
        builder.build([*EXAMPLES, *unknown], training=False)
    with pytest.raises(UserError, match=r"8, got '8'\)\.$"):
        builder.build([*EXAMPLES, *unknown], training=True)


def test_labels_for_classes_without_names(tiny_tokenizer):
    builder = feature_building.FeatureBuilder(
        KIND, tiny_tokenizer, CONFIG, ["LABEL_0", "LABEL_1"]
    )
    message = r"got 'no'\. The model's classes have no names; bin\.convert --la"
    with pytest.raises(UserError, match=message):
        builder.build([Example(("a",), "no", "dev.tsv:2")], training=False)


def test_features(tiny_tokenizer):
    config = FeatureConfig(max_seq_length=8)

    def label_ids(examples, labels):
        return KIND.features(
            examples, tiny_tokenizer, config, labels=labels, training=True
        ).scalars["label_ids"]

    found = label_ids(EXAMPLES, LABELS)
    assert (found.tolist(), found.dtype) == ([2, 0, 0], np.int32)
    assert label_ids(EXAMPLES, LABELS[::-1]).tolist() == [0, 2, 0]
    unknown = Example(("a",), "y" * 99, "dev.tsv:7")
    message = (
        "^dev.tsv:7: expected one of no, perhaps, yes as the label, got "
        "'y{76}\\.{4}$"
    )
    with pytest.raises(UserError, match=message):
        label_ids([*EXAMPLES, unknown], LABELS)


@pytest.mark.parametrize(
    ("label", "hint"),
    [
        # Pandas writes the first into CSV, the second into JSON.
        ("true", " (write 'True', as in training)"),
        ("1", " (write '1.0', as in training)"),
        ("2", ""),
        ("truth", ""),
    ],
)
def test_a_label_that_is_written_otherwise(label, hint):
    examples = [Example(("a",), label, "dev.tsv:2")]
    message = re.escape(f" as the label, got '{label}'{hint}.") + "$"
    with pytest.raises(UserError, match=message):
        KIND.label_ids(examples, ["1.0", "True"])


def test_probabilities_and_their_ensemble():
    # However far from 0 logits are.
    logits = np.log(SCORES) + np.array([[0], [9e3], [-9e3]])
    scores = KIND.scores(None, {"logits": logits}, CONFIG)
    np.testing.assert_allclose(scores, SCORES, atol=1e-6)
    mean = KIND.ensemble([SCORES, SCORES[::-1], SCORES])
    expected = (2 * np.array(SCORES) + SCORES[::-1]) / 3
    np.testing.assert_allclose(mean, expected)


def test_metrics_and_those_of_the_majority_class():
    metrics = {"accuracy": scalar.accuracy, "macro_f1": scalar.macro_f1}
    found = KIND.compute_metrics(
        scored([2, 0, 2, 2, 1], np.eye(3)[[2, 2, 2, 0, 1]]), metrics
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
    assert KIND.metric_names(metrics, LABELS) == ("accuracy", "macro_f1")
    # The majority is of the labels, not of the predictions.
    always_0 = scored([1, 1, 1, 0], np.eye(3)[[0] * 4])
    found = KIND.compute_metrics(always_0, metrics)
    assert found["majority_class_accuracy"] == 0.75


def test_table():
    table = KIND.table(scored([0, 0, 1, 0], np.eye(3)[[0, 1, 1, 1]]))
    assert table.header == ["label", "precision", "recall", "f1", "examples"]
    assert table.rows == [
        ["no", "1.0000", "0.3333", "0.5000", "3"],
        ["perhaps", "0.3333", "1.0000", "0.5000", "1"],
        ["yes", "0.0000", "0.0000", "0.0000", "0"],
    ]


def test_predictions():
    found = KIND.predictions(ScoredExamples(EXAMPLES, SCORES, CONFIG, LABELS))
    assert found[0].fields == {
        "text": "the",
        "label": "yes",
        "prediction": "yes",
        "probabilities": {"no": 0.1, "perhaps": 0.2, "yes": 0.7},
    }
    assert found[1].fields["texts"] == ["of", "and"]
    assert [p.fields["label"] for p in found] == ["yes", "no", None]
    assert [p.fields["prediction"] for p in found] == ["yes", "perhaps", "no"]
    assert [p.location for p in found] == ["f:2", "f:3", "f:4"]
    # Wrong by as much as the prediction is likelier than the label.
    assert [p.error for p in found] == pytest.approx([0.0, 0.3, 0.0])
    assert class_error(SCORES[1], 2) == pytest.approx(0.2)


def test_figures():
    labels = [f"label {number}" for number in range(101)]
    rows = np.full((3, 101), 0.001)
    rows[[0, 1, 2], [99, 7, 0]] = (0.9, 0.4, 0.6)
    gold = [99, 8, 0]
    figure = KIND.figure(scored(gold, rows[:, :100], labels[:100]))
    assert figure.labels == labels[:100]
    # Gold labels by predicted ones.
    assert np.argwhere(figure.counts).tolist() == [[0, 0], [8, 7], [99, 99]]
    # More labels than a confusion matrix has.
    figure = KIND.figure(scored(gold, rows, labels))
    assert figure.measure == "probability of the answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"right": [0.9, 0.6], "wrong": [0.4]}


def test_constant_prediction():
    def found(scores):
        return KIND.constant_prediction(
            ScoredExamples([], scores, CONFIG, LABELS)
        )

    assert found(SCORES) is None
    assert found(SCORES[:1] * 2) == "yes"
    # A single example has no other prediction to differ from.
    assert found(SCORES[:1]) is None


def test_logits_are_divided_by_the_temperature():
    logits = np.array([[0.0, 2.0, 1.0]], np.float32)
    (found,) = KIND.scores(
        None, {"logits": list(logits)}, FeatureConfig(temperature=4.0)
    )
    powers = np.exp([0.0, 0.5, 0.25])
    np.testing.assert_allclose(found, powers / powers.sum())


def test_the_temperature_of_an_evaluation_is_saved():
    saved = KIND.config_to_save(CONFIG, {"temperature": 1.5, "loss": 2.0})
    assert saved == FeatureConfig(temperature=1.5)
    assert KIND.config_to_save(CONFIG, {"loss": 2.0}) == CONFIG


def test_bold_answers_that_are_wrong_have_a_high_temperature():
    bold = scored([0, 1] * 20, [[0.99, 0.005, 0.005]] * 40)
    assert KIND.fitted_temperature(bold) > 2
    right = scored([0, 0] * 20, [[0.6, 0.2, 0.2]] * 40)
    assert KIND.fitted_temperature(right) < 1
