"""Classification of texts, and what all kinds that predict classes share."""

import collections
import dataclasses
import decimal
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, listed, require, shown
from albert_tf.tasks.bad_rows import RowError, made_of_all
from albert_tf.tasks.class_weights import class_weights
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import (
    CallSignature,
    ConfusionMatrix,
    Distributions,
    Figure,
    Kind,
    Metric,
    Outputs,
    Prediction,
    SampledMetric,
    ScoredExamples,
    Table,
    metric_of_sample,
    metric_values,
)
from albert_tf.tasks.kinds.texts import TextKind, text_fields
from albert_tf.tasks.metrics.calibration import fit_temperature
from albert_tf.tasks.number_labels import is_number

# Labels that a confusion matrix has at most.
_MAX_MATRIX_LABELS = 100
# More labels than this, and than half the examples, are likely a mistake.
_MANY = 20
# Missing values as databases, R and pandas write or read them, SNLI's mark of a
# pair without a majority, and the folder of IMDB's unlabelled texts; "None" and
# "NA" may well be classes.
_MISSING = {
    *("\\N", "NULL", "null", "None", "NaN", "nan"),
    *("NA", "N/A", "n/a", "<NA>", "#N/A", "-", "unsup"),
}
_QUOTED = re.compile(r"""(["']).*\1""", re.DOTALL)
# A list of several labels, as programs print it.
_LIST = re.compile(r"""[\[{(].*[,"'].*[\])}]""", re.DOTALL)


class ClassKind(Kind):
    """A kind whose scores are probabilities.

    Those of an example are `[classes]`, or `[words, classes]`.
    """

    def class_names(self, scored: ScoredExamples) -> Sequence[str]:
        """Returns the names of the classes."""
        return scored.labels

    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[np.ndarray]:
        """Returns the probabilities of each example."""
        logits = np.array(outputs["logits"], np.float64)
        return list(softmax(logits / config.temperature))

    def fitted_temperature(self, scored: ScoredExamples) -> float:
        """Returns the temperature by which to divide the logits further."""
        gold, _ = self.gold_and_predicted(scored)
        return fit_temperature(self.probabilities(scored), gold)

    def config_to_save(
        self, config: FeatureConfig, metrics: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the settings with the temperature of the evaluation."""
        temperature = metrics.get("temperature", config.temperature)
        return dataclasses.replace(config, temperature=temperature)

    def probabilities(self, scored: ScoredExamples) -> np.ndarray:
        """Returns them, `[examples, classes]` or `[words of all, classes]`."""
        return np.concatenate([np.atleast_2d(row) for row in scored.scores])

    def gold_and_predicted(
        self, scored: ScoredExamples
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns label ids, both `[examples]` or `[words of all]`."""
        gold = self.label_ids(scored.examples, scored.labels)
        return gold, self.probabilities(scored).argmax(axis=1)

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and those of a majority-class baseline.

        `majority_class_<metric>` is the score of always predicting the class
        that is most frequent in these examples.
        """
        label_ids, predicted = self.gold_and_predicted(scored)
        majority = np.full_like(label_ids, np.bincount(label_ids).argmax())
        of_majority = metric_values(metrics, label_ids, majority)
        return metric_values(metrics, label_ids, predicted) | {
            f"majority_class_{name}": value
            for name, value in of_majority.items()
        }

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns a metric as a function of the numbers of examples."""
        return metric_of_sample(metrics, name, *self.gold_and_predicted(scored))

    def figure(self, scored: ScoredExamples) -> Figure:
        """Returns a confusion matrix, or probabilities of very many labels."""
        label_ids, predicted = self.gold_and_predicted(scored)
        names = list(self.class_names(scored))
        if len(names) > _MAX_MATRIX_LABELS:
            highest = self.probabilities(scored).max(axis=1)
            right = predicted == label_ids
            return Distributions(
                "probability of the answer",
                {"right": highest[right], "wrong": highest[~right]},
            )
        counts = np.zeros((len(names), len(names)), np.int64)
        np.add.at(counts, (label_ids, predicted), 1)
        return ConfusionMatrix(names, counts)

    def constant_prediction(self, scored: ScoredExamples) -> str | None:
        """Returns the class that all examples, or words, are given."""
        classes = self.probabilities(scored).argmax(axis=1)
        if len(classes) < 2 or classes.min() < classes.max():
            return None
        return self.class_names(scored)[classes[0]]


def _written_otherwise(label: str, labels: Sequence[str]) -> str:
    """Returns a hint if a label differs in case, or as a number; else "".

    As `True` and `true`, `1` and `1.0` of one column in two formats.
    """

    def value(text: str) -> str | float:
        return float(text) if is_number(text) else text.casefold()

    alike = [name for name in labels if value(name) == value(label)]
    return f" (write {shown(alike[0])}, as in training)" if alike else ""


class Classification(TextKind, ClassKind):
    """One label of several."""

    name = "classification"
    head = "classification"
    labelled = True
    # Exports of models with several labels have no `label`.
    exported = ("text", "label")
    label_type = np.int32

    def labels(self, examples: Sequence[Example]) -> list[str]:
        """Returns the labels that occur, sorted: two at least, not too many."""
        labels = sorted({e.label for e in examples if e.label is not None})
        source = f"{examples[0].location} and what follows"
        require(
            len(labels) > 1,
            f"{source}: the training examples have one label only, "
            f"{shown(', '.join(labels))}; a classifier needs at least two.",
        )
        check_number_of_labels(labels, len(examples), source)
        return labels

    def label_ids(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns label ids, int32 `[examples]`, 0 without a label."""
        ids: dict[str | None, int] = {None: 0}
        ids |= {name: number for number, name in enumerate(labels)}

        def label_id(example: Example) -> int:
            if example.label not in ids:
                raise RowError(
                    example.location,
                    f"expected one of {listed(labels, 12)} as the label",
                    f", got {shown(str(example.label))}"
                    f"{_written_otherwise(str(example.label), labels)}",
                )
            return ids[example.label]

        return np.array(made_of_all(label_id, examples), np.int32)

    def warnings(
        self, examples: Sequence[Example], *, training: bool
    ) -> list[str]:
        """Returns those of all kinds, and on labels that may be no classes."""
        found = super().warnings(examples, training=training)
        if not training:
            return found
        labels = {e.label for e in examples if e.label is not None}
        found += missing_labels(labels)
        if quoted := sorted(filter(_QUOTED.fullmatch, labels)):
            found.append(
                f"{listed(quoted)}: the quotes are part of these labels; in "
                "CSV they are double, and stand right behind the separator."
            )
        found += alike_labels(labels)
        if len(labels) > 2 and all(map(is_number, labels)):
            found.append(
                f"{listed(sorted(labels), 12)}: numbers are learned as classes "
                "without an order; --task=custom --columns=text=...,number=... "
                "learns ratings and the like as numbers."
            )
        if combined := combined_labels(labels):
            found.append(
                f"{len(combined)} of {len(labels)} labels look like several in "
                f"one ({listed(combined)}); each is trained as a class of its "
                "own, since an example has one label; --task=multilabel takes "
                "several."
            )
        return found

    def class_weighted(
        self, features: Features, labels: Sequence[str], text: str
    ) -> tuple[Features, dict[str, float]]:
        """Returns features with `example_weights`, those of their classes."""
        ids = features.scalars["label_ids"]
        counts = np.bincount(ids, minlength=len(labels))
        weights = class_weights(text, labels, counts)
        of_examples = weights.astype(np.float32)[ids]
        scalars = {**features.scalars, "example_weights": of_examples}
        return (
            dataclasses.replace(features, scalars=scalars),
            dict(zip(labels, weights.tolist(), strict=True)),
        )

    def exported_scores(
        self, call: CallSignature, examples: Sequence[Example]
    ) -> list[np.ndarray]:
        """Returns each example's probabilities from an exported model."""
        rows = self.exported_rows(call, examples)
        return [row["probabilities"] for row in rows]

    def table(self, scored: ScoredExamples) -> Table:
        """Returns precision, recall, F1 and number of examples by label."""
        return labels_table(scored.labels, *self.gold_and_predicted(scored))

    def _prediction(
        self, example: Example, scores: np.ndarray, scored: ScoredExamples
    ) -> Prediction:
        labels = list(scored.labels)
        gold = None
        if example.label is not None:
            (gold,) = self.label_ids([example], labels)
        fields = {
            **text_fields(example.texts),
            "label": example.label,
            "prediction": labels[int(scores.argmax())],
            "probabilities": dict(zip(labels, map(float, scores), strict=True)),
        }
        error = class_error(scores, gold)
        return Prediction(fields, example.location, error)


def check_number_of_labels(
    labels: Sequence[str], num_examples: int, source: str
) -> None:
    """Raises UserError for so many labels that they may be none."""
    require(
        len(labels) <= max(_MANY, num_examples / 2),
        f"{source}: {num_examples} training examples have {len(labels)} "
        f"different labels ({listed(labels, 12)}); is that the right "
        "column? Numbers are learned with --task=custom "
        "--columns=text=...,number=....",
    )


def missing_labels(labels: Collection[str]) -> list[str]:
    """Returns a warning on labels that may stand for none, if any."""
    missing = _MISSING.intersection(labels)
    if "+" in labels:
        missing.discard("-")
    if not missing:
        return []
    return [
        f"{listed(sorted(missing), 12)}: trained as a class of its own, though "
        "other programs write this for a missing label."
    ]


def alike_labels(labels: Collection[str]) -> list[str]:
    """Returns a warning on labels that may be the same one, if any."""
    counts = collections.Counter(map(_simplified, labels))
    alike = sorted(
        (_simplified(name), name)
        for name in labels
        if counts[_simplified(name)] > 1
    )
    if not alike:
        return []
    return [
        f"{listed([name for _, name in alike], 12)}: trained as different "
        "labels, though only the case of letters differs, or how a number or "
        "an accent is written."
    ]


def _simplified(label: str) -> str:
    """Returns a label as it would be read aloud: 1.0 is 1."""
    if is_number(label):
        return str(decimal.Decimal(label).normalize() + 0)
    text = unicodedata.normalize("NFKC", label).casefold()
    # Characters of this category are invisible, such as zero-width spaces.
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def combined_labels(labels: Collection[str]) -> list[str]:
    """Returns the labels that seem to consist of several.

    Commas, semicolons and doccano's # also occur in plain names, so that there
    the parts must be labels by themselves.
    """
    if lists := sorted(filter(_LIST.fullmatch, labels)):
        return lists
    for separator in "|;,#":
        parts = {
            label: [part.strip() for part in label.split(separator)]
            for label in sorted(labels)
        }
        found = [
            label
            for label, names in parts.items()
            if len(names) > 1 and all(names)
        ]
        known = [f for f in found if all(name in labels for name in parts[f])]
        if known or (separator == "|" and found):
            return found
    return []


def labels_table(
    labels: Sequence[str], gold: np.ndarray, predicted: np.ndarray
) -> Table:
    """Returns the `scores_table` of labels, by their ids."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(
        gold, predicted, labels=list(range(len(labels))), zero_division=0.0
    )
    rows = zip(labels, zip(*columns, strict=True), strict=True)
    return scores_table("label", dict(rows))


def scores_table(name: str, rows: Mapping[str, Sequence[float]]) -> Table:
    """Returns a table of precision, recall, F1 and number of examples."""
    return Table(
        [name, "precision", "recall", "f1", "examples"],
        [
            [label, *(f"{value:.4f}" for value in row[:3]), f"{row[3]:.0f}"]
            for label, row in rows.items()
        ],
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis, float64."""
    logits = logits.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def class_error(probabilities: np.ndarray, label_id: int | None) -> float:
    """Returns the largest probability minus that of the gold class."""
    if label_id is None:
        return 0.0
    return float(probabilities.max() - probabilities[label_id])
