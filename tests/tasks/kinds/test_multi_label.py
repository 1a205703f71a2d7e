"""Classification with any number of labels: from examples to answers."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError, override
from albert_tf.tasks.baselines.table import baseline_scores
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import MultiLabelExample
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.multi_label import (
    MultiLabelClassification,
    thresholds,
)

KIND = MultiLabelClassification()
CONFIG = FeatureConfig(max_seq_length=8)
LABELS = ["sea", "ship", "war"]
EXAMPLES = [
    MultiLabelExample(("the",), ("war", "sea"), "f:2"),
    MultiLabelExample(("of", "and"), (), "f:3"),
    MultiLabelExample(("and",), None, "f:4"),
]
SCORES = list(np.array([[0.9, 0.6, 0.4], [0.3, 0.2, 0.1], [0.7, 0.1, 0.8]]))


def scored(gold=((1, 0, 1), (0, 0, 0)), scores=SCORES[:2], text="0.5"):
    examples = [
        MultiLabelExample(
            ("a",), tuple(n for n, has in zip(LABELS, row, strict=True) if has)
        )
        for row in gold
    ]
    config = override(CONFIG, {"label_thresholds": text})
    return ScoredExamples(examples, list(scores), config, LABELS)


def test_labels_are_those_that_occur():
    assert KIND.labels(EXAMPLES) == ["sea", "war"]
    with pytest.raises(UserError, match=r"^f:3 and .*no training example has"):
        KIND.labels(EXAMPLES[1:])


def test_one_rare_label_is_measured_by_its_ranking():
    found = [("rare",), *[()] * 7]
    examples = [MultiLabelExample(("a",), labels) for labels in found]
    assert KIND.labels(examples) == ["rare"]
    name, *_ = KIND.metric_names({}, ["rare"])
    # All are below the threshold; one stands above the label's own.
    scores = list(np.array([[0.3], [0.4], *[[0.1]] * 6]))
    rows = ScoredExamples(examples, scores, CONFIG, ["rare"])
    metrics = KIND.compute_metrics(rows, {})
    assert metrics[name] == 0.5
    assert (metrics["micro_f1"], metrics["exact_match"]) == (0.0, 7 / 8)


def test_features_have_a_label_and_a_weight_for_each_name(tiny_tokenizer):
    found = KIND.features(
        EXAMPLES, tiny_tokenizer, CONFIG, labels=LABELS, training=True
    )
    batch = found.batch(np.array([0, 2]))
    assert batch["label_ids"].tolist() == [[1, 0, 1], [0, 0, 0]]
    assert batch["label_weights"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_an_unknown_label_is_named():
    unknown = MultiLabelExample(("a",), ("sea", "air"), "dev.tsv:7")
    message = (
        "^dev.tsv:7: expected some of sea, ship, war as the labels, got 'air'.$"
    )
    with pytest.raises(UserError, match=message):
        KIND.check_labels([unknown], LABELS)


def test_labels_with_another_separator_are_reported():
    examples = [MultiLabelExample(("a",), ("sea|war",)), *EXAMPLES]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("1 of 3 labels look like several in one (sea|war)")
    assert "--label_separator" in line


def test_labels_that_may_stand_for_none_are_reported():
    examples = [MultiLabelExample(("a",), ("nan",)), *EXAMPLES]
    (line,) = KIND.warnings(examples, training=True)
    assert line.startswith("nan: trained as a class of its own, though")


def test_scores_are_sigmoids_however_far_from_0_logits_are():
    logits = np.array([[0.0, 2.0], [-1e4, 1e4]])
    found = KIND.scores(None, {"logits": logits}, CONFIG)
    expected = [[0.5, 1 / (1 + np.exp(-2))], [0, 1]]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one", [0.5] * 3),
        ("each", [0.5] * 3),
        ("0.2", [0.2] * 3),
        ("0.2, 0.5,0", [0.2, 0.5, 0]),
    ],
)
def test_thresholds(text, expected):
    config = override(CONFIG, {"label_thresholds": text})
    assert thresholds(config, 3).tolist() == expected


@pytest.mark.parametrize("text", ["", "two", "0.1,0.2", "1", "-0.1", "nan"])
def test_thresholds_that_are_none(text):
    config = override(CONFIG, {"label_thresholds": text})
    message = (
        f"^label_thresholds={text!r}: expected one, each, a number from 0 t"
    )
    with pytest.raises(UserError, match=message):
        thresholds(config, 3)
    # Before a model is trained.
    features = SimpleNamespace(scalars={"label_ids": np.zeros((2, 3))})
    with pytest.raises(UserError, match="^label_thresholds="):
        KIND.feature_warnings([], features, config)


def test_predictions_are_the_labels_above_their_thresholds():
    config = override(CONFIG, {"label_thresholds": "0.5,0.7,0.3"})
    rows = ScoredExamples(EXAMPLES, SCORES, config, LABELS)
    found = KIND.predictions(rows)
    assert found[0].fields == {
        "text": "the",
        "label": ["war", "sea"],
        "prediction": ["sea", "war"],
        "probabilities": {"sea": 0.9, "ship": 0.6, "war": 0.4},
    }
    assert [p.fields["prediction"] for p in found[1:]] == [[], ["sea", "war"]]
    assert found[2].fields["label"] is None
    assert [p.error for p in found] == [0.0, 0.0, 0.0]
    # The error is how far the worst of the wrong labels is off.
    (wrong,) = KIND.predictions(scored([(0, 1, 1)], SCORES[:1]))
    assert wrong.error == pytest.approx(0.9)


def test_the_trivial_baselines():
    """The most frequent set; the frequencies of the labels."""
    gold = [(1, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 0)]
    found = KIND.compute_metrics(scored(gold, np.zeros((4, 3))), {})
    assert found["majority_class_exact_match"] == 0.5
    # sea for all: 3 of 4 right, and ship is missed.
    assert found["majority_class_micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    # Ranked by frequency: sea for all four, then ship, then war.
    expected = (3 * (3 / 4) + 4 / 8) / 4
    assert found["majority_class_micro_average_precision"] == pytest.approx(
        expected
    )


def test_one_threshold_is_chosen_for_all_labels():
    rows = scored(text="one")
    metrics = KIND.compute_metrics(rows, {})
    # 0.9 and 0.4 are gold, 0.6 is between them.
    assert metrics["threshold"] == pytest.approx(0.35)
    assert metrics["best_micro_f1"] == pytest.approx(0.8)
    saved = KIND.config_to_save(rows.config, metrics)
    assert saved.label_thresholds == "0.35"
    again = KIND.compute_metrics(dataclasses.replace(rows, config=saved), {})
    assert again["micro_f1"] == pytest.approx(metrics["best_micro_f1"])
    assert "threshold" not in again
    # What users give is kept.
    assert KIND.config_to_save(saved, metrics) == saved


def test_a_threshold_is_chosen_for_each_label():
    rows = scored(text="each")
    metrics = KIND.compute_metrics(rows, {})
    assert metrics["best_macro_f1"] == pytest.approx(2 / 3)
    saved = KIND.config_to_save(rows.config, metrics)
    assert thresholds(saved, 3) == pytest.approx([0.6, 0.5, 0.25])


@pytest.mark.parametrize("value", [1 - 1e-12, 1 - 1e-10, 1.0])
def test_a_threshold_just_below_1_is_read_again_as_it_was(value):
    config = override(CONFIG, {"label_thresholds": "one"})
    saved = KIND.config_to_save(config, {"threshold": value})
    assert thresholds(saved, 3)[0] == min(value, np.nextafter(1, 0))


def test_an_ensemble_has_the_mean_of_the_thresholds():
    configs = [
        override(CONFIG, {"label_thresholds": text}) for text in ("0.2", "one")
    ]
    mean = KIND.config_of_ensemble(configs, LABELS)
    assert thresholds(mean, 3) == pytest.approx([0.35] * 3)


def test_table_and_figure():
    table = KIND.table(scored())
    assert table.rows == [
        ["sea", "1.0000", "1.0000", "1.0000", "1"],
        ["ship", "0.0000", "0.0000", "0.0000", "0"],
        ["war", "0.0000", "0.0000", "0.0000", "1"],
    ]
    groups = KIND.figure(scored()).groups
    assert sorted(groups["a label of the text"]) == [0.4, 0.9]
    assert sorted(groups["another label"]) == [0.1, 0.2, 0.3, 0.6]


def test_the_same_probabilities_for_all_are_reported():
    assert KIND.constant_prediction(scored()) is None
    same = [SCORES[1], SCORES[1] + 1e-4]
    found = KIND.constant_prediction(scored(scores=same))
    assert found == "sea 0.30, ship 0.20, war 0.10"


def test_the_simple_model_learns_each_label_by_itself():
    words = {"sea": "salt water", "ship": "a tall mast"}
    rng = np.random.default_rng(0)
    examples = []
    for _ in range(60):
        names = [name for name in words if rng.random() < 0.5]
        text = " ".join(["the", *map(words.__getitem__, names), "end"])
        # No example has war.
        examples.append(MultiLabelExample((text,), tuple(names)))
    task = dataclasses.replace(TASKS["multilabel"], labels=tuple(LABELS))
    found = baseline_scores(task, examples[:40], examples[40:])
    assert KIND.compute_metrics(found, {})["micro_average_precision"] == 1.0
    one = dataclasses.replace(task, labels=("sea",))
    only = [
        dataclasses.replace(e, labels=e.labels and e.labels[:1])
        for e in examples
        if e.labels in ((), ("sea",))
    ]
    found = baseline_scores(one, only[:15], only[15:])
    assert np.array(found.scores).shape == (len(only) - 15, 1)
    assert (
        KIND.compute_metrics(dataclasses.replace(found, labels=["sea"]), {})[
            "micro_average_precision"
        ]
        == 1.0
    )
