"""Metrics of Keras that would measure something else of a head's output.

Keras' are of probabilities unless they are made otherwise, and heads give
logits.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import KerasTensor as Tensor

from albert_tf.config import require
from albert_tf.modeling.heads.base import LabelledOutput
from albert_tf.modeling.losses import (
    weighted_binary_cross_entropy,
    weighted_cross_entropy,
    weighted_squared_error,
)

_NONE: dict[str, Any] = {}
_FROM_LOGITS = {"from_logits": True}
_AT_ZERO = {"thresholds": 0}
_OVER_ROWS = {"axis": 0}
_BY_RANK = {"threshold": None}
_COUNTS = (
    "TruePositives",
    "TrueNegatives",
    "FalsePositives",
    "FalseNegatives",
)
_AT_A_THRESHOLD = (
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
)
_OF_ONE_CLASS = (
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "F1Score",
    "FBetaScore",
    "IoU",
    "MeanIoU",
    "OneHotIoU",
    "OneHotMeanIoU",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "TopKCategoricalAccuracy",
)
_OF_SEVERAL_CLASSES = (
    *_COUNTS,
    "AUC",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "Precision",
    "Recall",
)
# Metrics that take no logits, whatever they are made with.
_NEVER: dict[str, dict] = dict.fromkeys(
    (
        *_AT_A_THRESHOLD,
        "Accuracy",
        "ConcordanceCorrelation",
        "KLDivergence",
        "LogCoshError",
        "MeanAbsoluteError",
        "MeanAbsolutePercentageError",
        "MeanSquaredError",
        "MeanSquaredLogarithmicError",
        "PearsonCorrelation",
        "Poisson",
        "R2Score",
        "RootMeanSquaredError",
    ),
    _NONE,
)
# By the loss of an output: what the output is, and the arguments with which a
# metric takes it. A metric with no arguments here does not take it at all; one
# without an entry always does.
_ARGUMENTS: dict[Any, tuple[str, dict[str, dict]]] = {
    # A threshold would be compared with the logit of each class by itself.
    weighted_cross_entropy: (
        "logits of classes",
        _NEVER
        | dict.fromkeys((*_COUNTS, "AUC", "BinaryAccuracy", "BinaryIoU"), _NONE)
        | {
            "BinaryCrossentropy": _FROM_LOGITS,
            "CategoricalCrossentropy": _FROM_LOGITS,
            "SparseCategoricalCrossentropy": _FROM_LOGITS,
            "F1Score": _BY_RANK,
            "FBetaScore": _BY_RANK,
            "IoU": {"sparse_y_pred": False},
            "MeanIoU": {"sparse_y_pred": False},
            "Precision": {"top_k": 1},
            "Recall": {"top_k": 1},
        },
    ),
    # Which label has the highest says nothing of the others.
    weighted_binary_cross_entropy: (
        "logits of labels, each there or not",
        _NEVER
        | dict.fromkeys(_OF_ONE_CLASS, _NONE)
        | dict.fromkeys((*_COUNTS, "Precision", "Recall"), _AT_ZERO)
        | {
            "AUC": _FROM_LOGITS,
            "BinaryAccuracy": {"threshold": 0},
            "BinaryCrossentropy": _FROM_LOGITS,
            "BinaryIoU": {"threshold": 0},
        },
    ),
    weighted_squared_error: (
        "a number for each text",
        dict.fromkeys(
            (*_AT_A_THRESHOLD, *_OF_ONE_CLASS, *_OF_SEVERAL_CLASSES), _NONE
        )
        | dict.fromkeys(
            ("ConcordanceCorrelation", "PearsonCorrelation"), _OVER_ROWS
        ),
    ),
}


def check_metrics(
    metrics: Any,
    labels: Mapping[str, Tensor],
    predicted: Mapping[str, Tensor],
    known: Mapping[str, LabelledOutput],
) -> None:
    """Raises UserError for a metric that does not fit an output.

    Args:
        metrics: Keras' CompileMetrics; it is built here.
        labels: by output, as Keras gets them.
        predicted: outputs, as Keras gets them.
        known: the outputs of heads that have a label.
    """
    if not metrics.built:
        metrics.build(labels, predicted)
    for flat in (metrics._flat_metrics, metrics._flat_weighted_metrics):
        for output, listed in zip(sorted(predicted), flat, strict=True):
            if output not in known or listed is None:
                continue
            loss = known[output].loss
            for metric in _of_keras(listed.metrics):
                if loss in _ARGUMENTS:
                    _check_arguments(metric, output, *_ARGUMENTS[loss])
                if loss is weighted_cross_entropy:
                    _check_form(metric, labels[output], predicted[output])


def _of_keras(metrics: list) -> Iterator[keras.metrics.Metric]:
    """Yields the metrics that are Keras' own, not users' subclasses."""
    for metric in metrics:
        if type(metric) is keras.metrics.MeanMetricWrapper:
            metric = metric._fn
            if inspect.isfunction(metric) and _is_of_keras(metric):
                # A metric of this name has the same defaults.
                metric = keras.metrics.get(metric.__name__)
        if not inspect.isfunction(metric) and _is_of_keras(type(metric)):
            yield metric


def _is_of_keras(value: Any) -> bool:
    return value.__module__.split(".")[0] == "keras"


def _check_arguments(
    metric: keras.metrics.Metric,
    output: str,
    meaning: str,
    arguments: Mapping[str, Mapping],
) -> None:
    """Raises UserError unless a metric is made with what an output needs."""
    name, config = type(metric).__name__, metric.get_config()
    if name not in arguments:
        return
    needed = arguments[name]
    advice = ", ".join(f"{key}={value}" for key, value in needed.items()) or (
        "what it measures, in an update_state of your own (docs/library.md "
        "has one), or take another metric"
    )
    require(
        bool(needed)
        and all(
            config[key] == value or (key == "top_k" and config[key])
            for key, value in needed.items()
        ),
        f"The metric {name} as it is made does not fit {output} ({meaning}): "
        f"give it {advice}.",
    )


def _check_form(
    metric: keras.metrics.Metric, labels: Tensor, predicted: Tensor
) -> None:
    """Raises UserError for labels in another form than a metric compares.

    Keras compares some of them without an error.
    """
    name, config = type(metric).__name__, metric.get_config()
    takes_numbers = name.startswith("Sparse") or config.get(
        "sparse_y_true", False
    )
    are_numbers = len(labels.shape) < len(predicted.shape) or (
        labels.shape[-1] == 1 != predicted.shape[-1]
    )
    forms = "one-hot labels", "numbers of classes"
    require(
        takes_numbers == are_numbers,
        f"The metric {name} compares {forms[takes_numbers]}, and the labels "
        f"are {forms[are_numbers]}; keras.metrics.SparseCategoricalAccuracy() "
        "is for numbers, CategoricalAccuracy() for one-hot labels.",
    )
