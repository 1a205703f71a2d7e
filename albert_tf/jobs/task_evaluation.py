"""Evaluation of fine-tuned models, one or an ensemble, on a task's examples."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import Log, UserError, listed, override, require
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.rundir.recorded_division import (
    RecordedDivision,
    divided_as_in_training,
    learned_examples,
)
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.base import Prediction, ScoredExamples, Table
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import head_loss


class NonFiniteOutputs(UserError):
    """Outputs of a model, for an example, that are not finite."""


class EvaluatedExamples:
    """Held-out examples with their features and batches."""

    def __init__(
        self,
        builder: FeatureBuilder,
        examples: Sequence[Any],
        *,
        batch_size: int,
        widths: tuple[int, ...],
    ) -> None:
        self.builder = builder
        self.examples = examples
        self.features = builder.build(examples, training=False)
        self.batches = TaskBatches(
            self.features, batch_size=batch_size, seed=0, widths=widths
        )

    def score(
        self,
        evaluator: Evaluator,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> tuple[float, ScoredExamples]:
        """Returns the mean loss, and the examples with their scores.

        `progress` takes the numbers of rows done and in all.

        Raises:
            NonFiniteOutputs: for such outputs of the model.
        """
        num_rows, done = len(self.features), 0
        outputs_of_rows: dict[str, list] = {}

        def collect(step: int, outputs: dict[str, np.ndarray]) -> None:
            nonlocal done
            rows = self.batches.record_numbers(step)
            for name, values in outputs.items():
                self._check_finite(values[: len(rows)], rows)
                slots = outputs_of_rows.setdefault(name, [None] * num_rows)
                for row, value in zip(rows, values, strict=False):
                    slots[row] = value
            done += len(rows)
            progress(done, num_rows)

        means = evaluator.evaluate(self.batches, collect, with_outputs=True)
        kind, config = self.builder.kind, self.builder.config
        scores = kind.scores(self.features, outputs_of_rows, config)
        scored = ScoredExamples(
            self.examples, scores, config, self.builder.labels
        )
        return means["loss"], scored

    def _check_finite(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Raises NonFiniteOutputs for some in `values` `[rows, ...]`."""
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            row = rows[finite.argmin()]
            example = self.examples[self.features.example_numbers[row]]
            raise NonFiniteOutputs(
                f"{example.location}: the model's outputs are not finite; it "
                "has diverged, or its numbers grow beyond the precision's "
                "range (float32 and bfloat16 have more than float16)."
            )


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """The evaluation of a model, or of an ensemble, on a split.

    Without labels there are no metrics; `members` are each model's.
    """

    task: Task
    scored: ScoredExamples
    metrics: dict[str, float]
    members: list[dict[str, float]]

    def table(self) -> Table | None:
        """Returns the metrics of each label, or part, if there are any."""
        return self.task.kind.table(self.scored) if self.metrics else None

    def predictions(self) -> list[Prediction]:
        """Returns the prediction for each example."""
        return self.task.kind.predictions(self.scored)


def evaluate_task(
    model_dirs: Sequence[str],
    task: Task,
    data_dir: str,
    *,
    split: str,
    batch_size: int,
    workers: int = 1,
    cache_dir: str = "",
    null_threshold: float | None = None,
    load: Callable[[str], LoadedModel] = load_model_directory,
    log: Log = print,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TaskEvaluation:
    """Returns the evaluation of models on a split; several are an ensemble.

    The scores of an ensemble are the mean of its members' scores. `load`
    returns the model in a directory. Dev examples without a file are held out
    as they were in training, where its run recorded that and the task does not
    say how; of others that a model was trained on, their number is logged, and
    where the data are others than those of its run.

    Raises:
        UserError: when a model is of another kind than the task, models have
            different labels, or held out different dev examples without a
            file, or an example has a label that they do not know.
    """
    divisions = [RecordedDivision.of_model(path) for path in model_dirs]
    task = divided_as_in_training(task, divisions, data_dir, log, split)
    examples = task.read(data_dir, split, log)
    for line in learned_examples(divisions, task, examples, split, data_dir):
        log(line)
    labelled = _are_labelled(task, examples)
    scored: list[ScoredExamples] = []
    labels = list(task.labels)
    for model_dir in model_dirs:
        loaded = load(model_dir)
        labels = _checked_labels(task, loaded, model_dir, labels, log)
        config = loaded.features
        if null_threshold is not None:
            config = override(config, {"null_threshold": null_threshold})
        builder = FeatureBuilder(
            task.kind, loaded.tokenizer, config, labels, workers, cache_dir, log
        )
        evaluated = EvaluatedExamples(
            builder,
            examples,
            batch_size=batch_size,
            widths=bucket_widths(config.max_seq_length),
        )
        evaluator = task_evaluator(task, loaded.model)
        scored.append(evaluated.score(evaluator, progress)[1])
    return _evaluation(task, scored, labelled)


def task_evaluator(task: Task, model: keras.Model) -> Evaluator:
    """Returns the evaluator of a model on a task, on this process' devices."""
    strategy = tf.distribute.get_strategy()
    return Evaluator(model, head_loss(task.kind.head), strategy=strategy)


def _are_labelled(task: Task, examples: Sequence[Any]) -> bool:
    """Returns whether all examples have labels; raises UserError for some."""
    unlabelled = [e for e in examples if not task.kind.has_label(e)]
    if 0 < len(unlabelled) < len(examples):
        raise UserError(
            f"{unlabelled[0].location} {task.kind.without_label}, though "
            "others have; "
            "expected labels for all examples of a split or for none."
        )
    return not unlabelled


def _checked_labels(
    task: Task,
    loaded: LoadedModel,
    model_dir: str,
    expected: list[str],
    log: Log,
) -> list[str]:
    """Returns the labels of a model, and logs another task.

    Raises UserError for another head, and for other labels than those of the
    task, or without any those of the models before it.
    """
    loaded.require_head(
        task.kind.head, model_dir, f"fine-tune one for {task.name} first."
    )
    if loaded.task and loaded.task.task != task.name:
        log(
            f"{model_dir} was fine-tuned for {loaded.task.task}, and is now "
            f"evaluated on {task.name}."
        )
    labels = loaded.labels or [] if task.kind.labelled else []
    are_alike = sorted(labels) == sorted(expected)
    advice = ""
    if not are_alike and len(labels) == len(expected):
        advice = (
            " bin.convert --labels gives a model's classes names, in the order "
            "of its outputs."
        )
    require(
        labels == (expected or labels),
        f"{model_dir} has the labels {listed(labels, 12)}; {task.name} has "
        f"{'the same in another order: ' if are_alike else ''}"
        f"{listed(expected, 12)}, as do models of an ensemble.{advice}",
    )
    return labels


def _evaluation(
    task: Task, scored: Sequence[ScoredExamples], labelled: bool
) -> TaskEvaluation:
    """Returns the evaluation of models by their scores."""
    together = _ensemble(task, scored)
    if not labelled:
        return TaskEvaluation(task, together, {}, [])
    members = [task.kind.compute_metrics(each, task.metrics) for each in scored]
    metrics = members[0]
    if len(scored) > 1:
        metrics = task.kind.compute_metrics(together, task.metrics)
    return TaskEvaluation(task, together, metrics, members)


def _ensemble(task: Task, members: Sequence[ScoredExamples]) -> ScoredExamples:
    """Returns the scores of the members together; of one, its own."""
    first = members[0]
    if len(members) == 1:
        return first
    return dataclasses.replace(
        first,
        scores=task.kind.ensemble([member.scores for member in members]),
        config=task.kind.config_of_ensemble(
            [member.config for member in members], first.labels
        ),
    )
