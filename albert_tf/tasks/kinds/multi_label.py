"""Classification of texts with any number of labels."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, listed, require, shown
from albert_tf.tasks.bad_rows import RowError, made_of_all
from albert_tf.tasks.class_weights import BALANCED, balanced, class_weights
from albert_tf.tasks.examples import MultiLabelExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import (
    CallSignature,
    Distributions,
    Metric,
    Outputs,
    Prediction,
    SampledMetric,
    ScoredExamples,
    Table,
)
from albert_tf.tasks.kinds.classification import (
    alike_labels,
    check_number_of_labels,
    combined_labels,
    missing_labels,
    scores_table,
)
from albert_tf.tasks.kinds.texts import TextKind, text_fields
from albert_tf.tasks.metrics.multi_label import best_threshold, metrics_of
from albert_tf.text.tokenizer_base import Tokenizer

# Thresholds that fine-tuning chooses, and what they are before that.
_CHOSEN = ("one", "each")
_DEFAULT = 0.5
# The metric with the threshold of a label, or of all.
_THRESHOLD = "threshold"


def thresholds(config: FeatureConfig, num_labels: int) -> np.ndarray:
    """Returns the threshold of each label, float64 `[labels]`."""
    text = config.label_thresholds
    if text in _CHOSEN:
        return np.full(num_labels, _DEFAULT)
    try:
        found = np.array([float(part) for part in text.split(",")])
    except ValueError:
        found = np.array([])
    require(
        len(found) in (1, num_labels)
        and bool(np.all((found >= 0) & (found < 1))),
        f"label_thresholds={shown(text)}: expected one, each, a number from 0 "
        f"to below 1, or {num_labels} of them, one for each label.",
    )
    return np.broadcast_to(found, num_labels)


def _with_thresholds(
    config: FeatureConfig, values: Iterable[float]
) -> FeatureConfig:
    # Nine digits of one just below 1 would be 1, which is none.
    texts = [
        f"{value:.9g}"
        if value < 1 - 1e-9
        else repr(min(float(value), math.nextafter(1.0, 0.0)))
        for value in values
    ]
    return dataclasses.replace(config, label_thresholds=",".join(texts))


class MultiLabelClassification(TextKind):
    """Any number of several labels, none among them."""

    name = "multi-label classification"
    head = "multi_label"
    labelled = True
    exported = ("text", "labels")
    example_type = MultiLabelExample
    label_type = np.uint8
    extra_metrics = (
        *("micro_average_precision", "macro_average_precision"),
        *("micro_f1", "macro_f1", "exact_match"),
    )

    def example(self, texts: tuple[str, ...], number: int) -> MultiLabelExample:
        """Returns the unlabelled example of a text or pair."""
        return MultiLabelExample(texts, None, f"text {number}")

    def has_label(self, example: MultiLabelExample) -> bool:
        """Returns whether the labels are known."""
        return example.labels is not None

    def labels(self, examples: Sequence[MultiLabelExample]) -> list[str]:
        """Returns the labels that occur, sorted: one at least, not too many."""
        labels = sorted({name for e in examples for name in e.labels or ()})
        source = f"{examples[0].location} and what follows"
        require(bool(labels), f"{source}: no training example has a label.")
        check_number_of_labels(labels, len(examples), source)
        return labels

    def label_ids(
        self, examples: Sequence[MultiLabelExample], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns 1 for each label that is given, `[examples, labels]`."""
        ids = {name: number for number, name in enumerate(labels)}
        found = np.zeros((len(examples), len(labels)), np.int32)

        def mark(numbered: tuple[int, MultiLabelExample]) -> None:
            number, example = numbered
            for name in example.labels or ():
                if name not in ids:
                    raise RowError(
                        example.location,
                        f"expected some of {listed(labels, 12)} as the labels",
                        f", got {shown(name)}",
                    )
                found[number, ids[name]] = 1

        made_of_all(mark, list(enumerate(examples)))
        return found

    def warnings(
        self, examples: Sequence[MultiLabelExample], *, training: bool
    ) -> list[str]:
        """Returns those of all kinds, and on labels that may be several."""
        found = super().warnings(examples, training=training)
        names = {name for e in examples for name in e.labels or ()}
        if training and (combined := combined_labels(names)):
            found.append(
                f"{len(combined)} of {len(names)} labels look like several in "
                f"one ({listed(combined)}); --label_separator says what stands "
                "between two labels."
            )
        if training:
            found += alike_labels(names) + missing_labels(names)
        return found

    def features(
        self,
        examples: Sequence[MultiLabelExample],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns a row for each example, with `label_ids` and weights of 1."""
        found = super().features(
            examples, tokenizer, config, labels=labels, training=training
        )
        weights = np.ones_like(found.scalars["label_ids"])
        scalars = {**found.scalars, "label_weights": weights}
        return dataclasses.replace(found, scalars=scalars)

    def feature_warnings(
        self,
        examples: Sequence[MultiLabelExample],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns none; raises UserError for thresholds of other labels.

        Before a model is trained, which only its evaluation would find.
        """
        thresholds(config, features.scalars["label_ids"].shape[1])
        return []

    def class_weighted(
        self, features: Features, labels: Sequence[str], text: str
    ) -> tuple[Features, dict[str, float]]:
        """Returns features with the weights of labels where a text has them.

        A label that a text has not weighs 1; balanced, each label is a task of
        two classes.
        """
        ids = features.scalars["label_ids"]
        counts = ids.sum(axis=0, dtype=np.int64)
        weights = class_weights(text, labels, counts)
        others = np.ones(len(labels))
        if text == BALANCED:
            of_two = np.stack([len(ids) - counts, counts])
            others, weights = np.apply_along_axis(balanced, 0, of_two)
        named = {}
        for label, weight, other in zip(labels, weights, others, strict=True):
            named[label] = float(weight)
            if other != 1:
                named[f"no {label}"] = float(other)
        of_labels = np.where(ids == 1, weights, others).astype(np.float32)
        scalars = {**features.scalars, "label_weights": of_labels}
        return dataclasses.replace(features, scalars=scalars), named

    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[np.ndarray]:
        """Returns each example's probabilities, float64 `[labels]`."""
        logits = np.array(outputs["logits"], np.float64)
        # This form of the sigmoid does not overflow.
        return list(np.exp(-np.logaddexp(0.0, -logits)))

    def exported_predictions(
        self,
        call: CallSignature,
        examples: Sequence[MultiLabelExample],
        labels: Sequence[str],
    ) -> list[Prediction]:
        """Returns the predictions of an exported model, by its thresholds."""
        rows = self.exported_rows(call, examples)
        return [
            _made(example, row["probabilities"], row["labels"] != b"", labels)
            for example, row in zip(examples, rows, strict=True)
        ]

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns average precision, which needs no thresholds, and others."""
        return self.extra_metrics

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and those of two trivial baselines in one.

        `majority_class_<metric>` has the most frequent set of labels for every
        example, and the labels' frequencies as probabilities. Where thresholds
        are to be chosen, these too (`threshold`, or `threshold_<label>`), with
        the F1 that they have on these very examples, `best_...`.
        """
        gold, probabilities, predicted = self._arrays(scored)
        once = np.ones(len(gold), np.int64)
        sets, counts = np.unique(gold, axis=0, return_counts=True)
        most = np.broadcast_to(sets[counts.argmax()], gold.shape)
        shares = np.broadcast_to(gold.mean(axis=0), gold.shape)
        of_majority = metrics_of(gold, shares, most)
        found = {
            name: metric(once)
            for name, metric in metrics_of(
                gold, probabilities, predicted
            ).items()
        }
        found |= {
            f"majority_class_{name}": metric(once)
            for name, metric in of_majority.items()
        }
        return found | _chosen(scored, gold, probabilities)

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns a metric as a function of the numbers of examples."""
        metric = metrics_of(*self._arrays(scored)).get(name)
        count = len(scored.examples)
        return metric and (lambda rows: metric(np.bincount(rows, None, count)))

    def config_to_save(
        self, config: FeatureConfig, metrics: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the settings with the thresholds that were chosen."""
        found = [
            value
            for name, value in metrics.items()
            if name == _THRESHOLD or name.startswith(f"{_THRESHOLD}_")
        ]
        if config.label_thresholds not in _CHOSEN or not found:
            return config
        return _with_thresholds(config, found)

    def config_of_ensemble(
        self, configs: Sequence[FeatureConfig], labels: Sequence[str]
    ) -> FeatureConfig:
        """Returns the settings with the mean of the thresholds."""
        rows = [thresholds(config, len(labels)) for config in configs]
        return _with_thresholds(configs[0], np.mean(rows, axis=0))

    def _arrays(
        self, scored: ScoredExamples
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns gold labels, probabilities and predicted labels."""
        probabilities = np.array(scored.scores)
        limits = thresholds(scored.config, len(scored.labels))
        gold = self.label_ids(scored.examples, scored.labels) > 0
        return gold, probabilities, probabilities > limits

    def _prediction(
        self,
        example: MultiLabelExample,
        scores: np.ndarray,
        scored: ScoredExamples,
    ) -> Prediction:
        limits = thresholds(scored.config, len(scored.labels))
        return _made(example, scores, scores > limits, scored.labels)

    def table(self, scored: ScoredExamples) -> Table:
        """Returns precision, recall, F1 and number of examples by label."""
        from sklearn.metrics import precision_recall_fscore_support

        gold, _, predicted = self._arrays(scored)
        # A single label is a column of two classes for scikit-learn.
        columns = [
            np.array(
                precision_recall_fscore_support(
                    *pair, labels=[True], zero_division=0.0
                )
            )[:, 0].tolist()
            for pair in zip(gold.T, predicted.T, strict=True)
        ]
        rows = dict(zip(scored.labels, columns, strict=True))
        return scores_table("label", rows)

    def figure(self, scored: ScoredExamples) -> Distributions:
        """Returns the probabilities of the labels of a text, and of others."""
        gold, probabilities, _ = self._arrays(scored)
        return Distributions(
            "probability",
            {
                "a label of the text": probabilities[gold],
                "another label": probabilities[~gold],
            },
        )

    def constant_prediction(self, scored: ScoredExamples) -> str | None:
        """Returns the probabilities, where all examples have the same ones.

        To two digits: it is no fault where no text has a label.
        """
        rows = np.round(np.array(scored.scores), 2)
        if len(rows) < 2 or np.any(rows.min(axis=0) < rows.max(axis=0)):
            return None
        pairs = zip(scored.labels, rows[0], strict=True)
        return listed((f"{name} {value:.2f}" for name, value in pairs), 12)


def _chosen(
    scored: ScoredExamples, gold: np.ndarray, probabilities: np.ndarray
) -> dict[str, float]:
    """Returns thresholds that fine-tuning is to choose, and their F1."""
    how = scored.config.label_thresholds
    if how == "one":
        threshold, f1 = best_threshold(gold.ravel(), probabilities.ravel())
        return {"best_micro_f1": f1, _THRESHOLD: threshold}
    if how != "each":
        return {}
    pairs = zip(gold.T, probabilities.T, strict=True)
    limits, f1s = zip(*(best_threshold(*pair) for pair in pairs), strict=True)
    names = (f"{_THRESHOLD}_{label}" for label in scored.labels)
    return {
        "best_macro_f1": float(np.mean(f1s)),
        **dict(zip(names, limits, strict=True)),
    }


def _made(
    example: MultiLabelExample,
    probabilities: np.ndarray,
    predicted: np.ndarray,
    labels: Sequence[str],
) -> Prediction:
    """Returns the prediction of these labels, `[labels]`."""
    fields: dict[str, Any] = {
        **text_fields(example.texts),
        "label": None if example.labels is None else list(example.labels),
        "prediction": [
            n for n, has in zip(labels, predicted, strict=True) if has
        ],
        "probabilities": dict(
            zip(labels, map(float, probabilities), strict=True)
        ),
    }
    error = 0.0
    if example.labels is not None:
        gold = np.array([name in example.labels for name in labels])
        wrong = gold != predicted
        # The most confident of the wrong decisions.
        error = float(np.max(np.abs(gold - probabilities) * wrong))
    return Prediction(fields, example.location, error)
