"""The examples of a fine-tuning run, and their features and batches."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FinetuneConfig, Log, listed, require
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.jobs.task_evaluation import EvaluatedExamples
from albert_tf.tasks.base import Task
from albert_tf.tasks.class_weights import BALANCED, imbalance
from albert_tf.tasks.duplicates import duplicates_line
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import LabelScaling
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.splits import TRAIN


@dataclasses.dataclass(frozen=True)
class FinetuningData:
    """What a run learns from, and what it is evaluated on.

    Attributes:
        directory: of the task's files.
        examples: of each split, those for training under "train".
        label_scaling: of numbers, as they are learned.
        builder: of features, with the labels in the order of their ids.
        features: of the training examples.
        evaluated: held-out examples, by the suffix of their metrics.
    """

    task: Task
    directory: str
    examples: Mapping[str, Sequence[Any]]
    label_scaling: LabelScaling
    builder: FeatureBuilder
    features: Features
    evaluated: Mapping[str, EvaluatedExamples]

    @property
    def labels(self) -> Sequence[str]:
        """The labels, in the order of their ids."""
        return self.builder.labels

    def training_batches(self, config: FinetuneConfig) -> TaskBatches:
        """Returns the batches of training."""
        examples = self.examples[TRAIN]
        numbers = self.features.example_numbers
        return TaskBatches(
            self.features,
            batch_size=config.training.train_batch_size,
            seed=config.training.seed,
            widths=_widths(config),
            training=True,
            name_of=lambda row: examples[numbers[row]].location,
        )


def read_examples(
    task: Task, data_dir: str, log: Log
) -> dict[str, Sequence[Any]]:
    """Returns the labelled examples of each split that a run needs.

    Raises UserError for one without a label.
    """
    return {
        split: task.read_labelled(data_dir, split, log)
        for split in (TRAIN, *task.evaluated.values())
    }


def in_both_orders(task: Task, examples: Sequence[Any]) -> Sequence[Any]:
    """Returns pairs of texts, and the same with their texts swapped.

    Raises:
        UserError: where the order matters, or examples are no pairs.
    """
    require(
        not task.ordered,
        "double_unordered swaps the texts of pairs, and the labels of "
        f"{task.name} depend on their order.",
    )
    return task.kind.in_both_orders(examples)


def finetuning_data(
    config: FinetuneConfig,
    task: Task,
    data_dir: str,
    examples: Mapping[str, Sequence[Any]],
    builder: FeatureBuilder,
) -> FinetuningData:
    """Returns the data of a run, from its examples.

    Logs the unit of numbers, the weights of classes, held-out texts that are
    in training too, and what the builder logs.
    """
    log = builder.log
    scaling = task.kind.label_scaling(examples[TRAIN])
    if scaling.deviation != 1.0:
        log(
            f"The numbers have the mean {scaling.mean:.4g} and the standard "
            f"deviation {scaling.deviation:.4g}; they are learned in these "
            "units."
        )
    features = builder.build(examples[TRAIN], training=True)
    features = _class_weighted(features, config, task, builder)
    evaluated = held_out_examples(config, task, examples, builder)
    for suffix, part in evaluated.items():
        line = duplicates_line(
            task.kind,
            examples[TRAIN],
            part.examples,
            task.evaluated[suffix],
        )
        if line:
            log(line)
    return FinetuningData(
        task, data_dir, examples, scaling, builder, features, evaluated
    )


def held_out_examples(
    config: FinetuneConfig,
    task: Task,
    examples: Mapping[str, Sequence[Any]],
    builder: FeatureBuilder,
) -> dict[str, EvaluatedExamples]:
    """Returns the examples of evaluations, by the suffix of their metrics."""
    training = config.training
    max_examples = training.max_eval_steps * training.eval_batch_size or None
    return {
        suffix: EvaluatedExamples(
            builder,
            examples[split][:max_examples],
            batch_size=training.eval_batch_size,
            widths=_widths(config),
        )
        for suffix, split in task.evaluated.items()
    }


def _widths(config: FinetuneConfig) -> tuple[int, ...]:
    """Returns the sequence lengths of batches."""
    longest = config.features.max_seq_length
    if config.finetuning.padding == "bucket":
        return bucket_widths(longest)
    return (longest,)


def _class_weighted(
    features: Features,
    config: FinetuneConfig,
    task: Task,
    builder: FeatureBuilder,
) -> Features:
    """Returns the features with the weights of their classes, logged.

    A class that most examples are of is logged, with what helps the others.
    """
    kind, labels, log = builder.kind, builder.labels, builder.log
    if isinstance(kind, Classification):
        counts = np.bincount(features.scalars["label_ids"])
        if line := imbalance(labels, counts, _for_rare_classes(config, task)):
            log(line)
    if not config.finetuning.class_weights:
        return features
    features, weights = kind.class_weighted(
        features, labels, config.finetuning.class_weights
    )
    of_classes = (f"{name} {value:.3g}" for name, value in weights.items())
    log(f"Class weights: {listed(of_classes, 12)}.")
    return features


def _for_rare_classes(config: FinetuneConfig, task: Task) -> list[str]:
    """Returns flags that help classes of few examples, but those in use."""
    advice = []
    if not config.finetuning.class_weights:
        advice.append(f"--class_weights={BALANCED}")
    by_accuracy = config.training.best_metric in ("", "accuracy")
    if by_accuracy and {"accuracy", "macro_f1"} <= task.metrics.keys():
        advice.append(
            "--best_metric=macro_f1 (the best model is that of the highest "
            "accuracy, which rare classes hardly change)"
        )
    return advice
