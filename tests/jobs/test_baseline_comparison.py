"""The sentences on a model and the simple model of its task."""

import math

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, ModelConfig
from albert_tf.jobs.baseline_comparison import (
    Comparison,
    _advice,
    compare_with_baseline,
    no_better_than_guessing,
)
from albert_tf.tasks.baselines.table import baseline_scores
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import ScoredExamples

TITLE = "TF-IDF with a linear model"


@pytest.mark.parametrize(
    ("metric", "model", "baseline", "ends", "sentence"),
    [
        (
            *("accuracy", 0.883, 0.864, (0.004, 0.034)),
            "accuracy 88.3% is 1.9 points better than {} (86.4%; 95% "
            "interval 0.4 to 3.4, 872 examples).",
        ),
        (
            *("accuracy_mismatched", 0.713, 0.764, (-0.081, -0.02)),
            "accuracy_mismatched 71.3% is 5.1 points worse than {} (76.4%; "
            "95% interval 2.0 to 8.1, 872 examples).",
        ),
        (
            *("accuracy", 0.73, 0.745, (-0.04, 0.0)),
            "accuracy 73.0% cannot be told apart from {} (74.5%; 95% "
            "interval of the difference -4.0 to 0.0, 872 examples).",
        ),
        # This metric is in percent already.
        (
            *("f1", 31.2, 13.1, (16.2, 20.0)),
            "f1 31.2 is 18.1 better than {} (13.1; 95% interval 16.2 to "
            "20.0, 872 examples).",
        ),
        (
            *("pearson", 0.28, 0.72, (math.nan, math.nan)),
            "pearson 0.280 is 0.440 worse than {} (0.720; 95% interval not "
            "known, 872 examples).",
        ),
        # Errors are small where their labels' unit is large.
        (
            *("mean_squared_error", 4e-5, 5e-5, (-2e-5, -1e-6)),
            "mean_squared_error 4e-05 is 1e-05 worse than {} (5e-05; 95% "
            "interval 1e-06 to 2e-05, 872 examples).",
        ),
        (
            *("pearson", math.nan, 0.72, (math.nan, math.nan)),
            "pearson is not defined for answers, or labels, that are all "
            "alike: the model has none and {} has 0.720 (872 examples).",
        ),
        (
            *("pearson", 0.72, math.nan, (math.nan, math.nan)),
            "pearson is not defined for answers, or labels, that are all "
            "alike: the model has 0.720 and {} has none (872 examples).",
        ),
    ],
)
def test_sentences(metric, model, baseline, ends, sentence):
    comparison = Comparison(
        metric, TITLE, 872, model, baseline, model - baseline, *ends
    )
    assert comparison.sentence() == sentence.format(TITLE)


TRAIN = [
    Example((f"{word} thing",), str(number % 2))
    for number, word in enumerate(["bad", "good"] * 10)
]
# The words tell the label, as in TRAIN, in 30 of 40.
DEV = [
    Example(
        (f"{['bad', 'good'][number % 2]} one",),
        str((number + (number < 10)) % 2),
    )
    for number in range(40)
]


def compared(right, width=312):
    """The comparison of a model that is right on these examples."""
    gold = np.array([int(example.label) for example in DEV])
    classes = np.where(right, gold, 1 - gold)
    scored = ScoredExamples(
        DEV, list(np.eye(2)[classes]), FeatureConfig(), ["0", "1"]
    )
    return compare_with_baseline(
        TASKS["SST-2"],
        {"": scored},
        {"": baseline_scores(TASKS["SST-2"], TRAIN, DEV)},
        metric="accuracy",
        model=ModelConfig(
            hidden_size=width, num_attention_heads=1, intermediate_size=8
        ),
    )


def test_a_better_model_is_told_without_advice():
    found = compared(np.ones(40, bool))
    (sentence,) = found["verdict"]
    start = f"accuracy 100.0% is 25.0 points better than {TITLE} (75.0%; 95%"
    assert sentence.startswith(start)
    assert found["metrics"] == {"tfidf_accuracy": 0.75}
    (comparison,) = found["comparisons"]
    assert comparison["better_by"] == 0.25
    # The normal interval of ten differences of 1 among 40.
    half = 1.96 * math.sqrt(0.25 * 0.75 / 40)
    ends = (comparison["low"], comparison["high"])
    assert ends == pytest.approx((0.25 - half, 0.25 + half), abs=0.03)


def test_a_model_without_an_error_gets_no_advice():
    perfect = Comparison("accuracy", TITLE, 9, 1.0, 1.0, 0.0, 0.0, 0.0)
    assert _advice([perfect], ModelConfig()) == []


@pytest.mark.parametrize(
    ("width", "advice"),
    [(312, "a larger --preset"), (768, "unless these are released weights")],
)
def test_a_model_like_the_baseline_gets_advice(width, advice):
    sentence, to_try = compared(np.arange(40) >= 10, width)["verdict"]
    assert "accuracy 75.0% cannot be told apart from" in sentence
    assert to_try.startswith("To try: ")
    assert advice in to_try


def without_simple_model(examples):
    """Returns the comparison of a model that answers "0" everywhere."""
    scores = [np.array([1.0, 0.0])] * len(examples)
    scored = ScoredExamples(examples, scores, FeatureConfig(), ["0", "1"])
    return compare_with_baseline(
        TASKS["SST-2"],
        {"": scored},
        {},
        metric="accuracy",
        model=ModelConfig(),
    )


def test_a_kind_without_a_simple_model_has_the_warning_alone():
    found = without_simple_model(DEV)
    (warning,) = found["verdict"]
    assert warning.startswith("WARNING: accuracy is 0.5, and always predicting")
    assert not found["metrics"]


def test_examples_of_one_label_are_warned_of():
    alike = [Example((f"a {n}",), "0") for n in range(8)]
    found = without_simple_model(alike)
    (warning,) = found["verdict"]
    assert warning.startswith("WARNING: all of these examples have one label")


def test_numbers_that_are_all_alike_are_warned_of():
    metrics = {"mean_squared_error": 0.5, "mean_guess_mean_squared_error": 0.0}
    assert no_better_than_guessing(metrics, "mean_squared_error") == ""
    metrics["mean_guess_mean_squared_error"] = 0.25
    assert no_better_than_guessing(metrics, "mean_squared_error")


def test_a_model_below_the_majority_class_is_warned_of():
    warning, sentence, _ = compared(np.arange(40) % 4 == 0)["verdict"]
    assert warning == (
        "WARNING: accuracy is 0.25, and always predicting the majority "
        "class has 0.5: no better than guessing."
    )
    assert "is 50.0 points worse than" in sentence


def test_other_metrics_below_the_majority_class_are_warned_of_too():
    # One of four pairs is a paraphrase; the model says so of all.
    examples = [Example((f"a {n}", "b"), str(int(n < 10))) for n in range(40)]
    scored = ScoredExamples(
        examples, [np.array([0.0, 1.0])] * 40, FeatureConfig(), ["0", "1"]
    )
    found = compare_with_baseline(
        TASKS["MRPC"], {"": scored}, {}, metric="f1", model=ModelConfig()
    )
    assert found["verdict"] == [
        "WARNING: accuracy is 0.25, less than always predicting the "
        "majority class has (0.75)."
    ]


@pytest.mark.parametrize(
    ("metrics", "best_metric", "message"),
    [
        (
            {"accuracy": 0.52, "majority_class_accuracy": 0.5},
            "accuracy",
            "accuracy is 0.52, and always predicting the majority class "
            "has 0.5: hardly better than guessing",
        ),
        ({"accuracy": 0.53, "majority_class_accuracy": 0.5}, "accuracy", ""),
        # Entities have no such F1, answers no such accuracy.
        (
            {"f1": 0.01, "accuracy": 0.9, "majority_class_accuracy": 0.9},
            "f1",
            "f1 is 0.01, and always predicting the majority class has 0: "
            "hardly better than guessing",
        ),
        (
            {"f1": 0.1, "accuracy": 0.9, "majority_class_accuracy": 0.9},
            "f1",
            "",
        ),
        ({"f1": 0.0, "exact_match": 0.0}, "f1", ""),
        (
            {
                "pearson": 0.1,
                "mean_squared_error": 2.5,
                "mean_guess_mean_squared_error": 2.0,
            },
            "pearson",
            "mean_squared_error is 2.5, and always predicting the mean has 2: "
            "no better than guessing",
        ),
        (
            {
                "pearson": 0.6,
                "mean_squared_error": 1.5,
                "mean_guess_mean_squared_error": 2.0,
            },
            "pearson",
            "",
        ),
        ({"f1": 0.1}, "f1", ""),
        # With one label nothing is better.
        ({"accuracy": 1.0, "majority_class_accuracy": 1.0}, "accuracy", ""),
        # Two points above this are more than there are.
        ({"accuracy": 1.0, "majority_class_accuracy": 0.99}, "accuracy", ""),
        # The metrics of SQuAD are in percent.
        (
            {
                "f1": 51.0,
                "majority_class_f1": 50.0,
                "majority_class_exact": 50.0,
            },
            "f1",
            "f1 is 51, and always predicting no answer has 50: hardly better "
            "than guessing",
        ),
        (
            {
                "macro_f1": 0.3,
                "majority_class_macro_f1": 0.4,
                "majority_class_exact_match": 0.5,
            },
            "macro_f1",
            "macro_f1 is 0.3, and always predicting the most frequent labels "
            "has 0.4: no better than guessing",
        ),
    ],
)
def test_a_model_that_is_no_better_than_one_guess(
    metrics, best_metric, message
):
    found = no_better_than_guessing(metrics, best_metric)
    assert found == message
