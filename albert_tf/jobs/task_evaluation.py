"""Evaluation of fine-tuned models, one or an ensemble, on a task's examples."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.cluster.distribution import local_rows
from albert_tf.config import UserError, override, require
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.inputs.prefetch import prefetch
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Log
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.base import Answers, Prediction, Table
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.objectives import head_objective
from albert_tf.training.running_statistics import RunningMeans


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

    def answers(
        self,
        trainer: Evaluator,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> tuple[float, Answers]:
        """Returns the mean loss, and the model's answers.

        `progress` takes the numbers of rows done and in all.
        """
        batches, num_rows = self.batches, len(self.features)
        means = RunningMeans()
        outputs_of_rows: dict[str, list] = {}
        replica_rows = local_rows(batches.batch_size, trainer.strategy)
        source = prefetch(
            lambda step: (step, batches.batch(step, replica_rows)),
            range(batches.num_steps),
        )
        done = 0
        for step, batch in source:
            losses, outputs = trainer.prediction_step(batch)
            means.add(losses)
            rows = batches.record_numbers(step)
            for name, values in outputs.items():
                self._check_finite(values[: len(rows)], rows)
                slots = outputs_of_rows.setdefault(name, [None] * num_rows)
                for row, value in zip(rows, values, strict=False):
                    slots[row] = value
            done += len(rows)
            progress(done, num_rows)
        kind, config = self.builder.kind, self.builder.config
        scores = kind.scores(self.features, outputs_of_rows, config)
        answers = Answers(self.examples, scores, config, self.builder.labels)
        return means.means()["loss"], answers

    def _check_finite(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Raises UserError for outputs `[rows, ...]` that are not finite."""
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            row = rows[finite.argmin()]
            example = self.examples[self.features.example_numbers[row]]
            raise UserError(
                f"{example.location}: the model's outputs are not finite; its "
                "numbers grow beyond the precision's range (float32 and "
                "bfloat16 have more than float16)."
            )


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """The evaluation of a model, or of an ensemble, on a split.

    Without labels there are no metrics; `members` are each model's.
    """

    task: Task
    answers: Answers
    metrics: dict[str, float]
    members: list[dict[str, float]]

    def table(self) -> Table | None:
        """Returns the metrics of each label, or part, if there are any."""
        return self.task.kind.table(self.answers) if self.metrics else None

    def predictions(self) -> list[Prediction]:
        """Returns the prediction for each example."""
        return self.task.kind.predictions(self.answers)


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
    returns the model in a directory.

    Raises:
        UserError: when a model is of another kind than the task, models have
            different labels, or an example has a label that they do not know.
    """
    kind = task.kind
    examples = task.read(data_dir, split, log)
    unlabelled = [e for e in examples if not kind.has_label(e)]
    if 0 < len(unlabelled) < len(examples):
        raise UserError(
            f"{unlabelled[0].location} has no label, though others have; "
            "expected labels for all examples of a split or for none."
        )
    answers: list[Answers] = []
    expected = list(task.labels)
    for model_dir in model_dirs:
        loaded = load(model_dir)
        loaded.require_head(
            kind.head, model_dir, f"fine-tune one for {task.name} first."
        )
        labels = loaded.labels or [] if kind.labelled else []
        # The labels of the task, or else of the first model.
        expected = expected or labels
        require(
            labels == expected,
            f"{model_dir} has the labels {', '.join(labels)}; {task.name} has "
            f"{', '.join(expected)}, as do models of an ensemble.",
        )
        config = loaded.features
        if null_threshold is not None:
            config = override(config, {"null_threshold": null_threshold})
        evaluated = EvaluatedExamples(
            FeatureBuilder(
                kind, loaded.tokenizer, config, labels, workers, cache_dir, log
            ),
            examples,
            batch_size=batch_size,
            widths=bucket_widths(config.max_seq_length),
        )
        trainer = Evaluator(
            loaded.model,
            head_objective(kind.head),
            strategy=tf.distribute.get_strategy(),
        )
        if loaded.task and loaded.task.task != task.name:
            log(
                f"{model_dir} was fine-tuned for {loaded.task.task}, and is "
                f"now evaluated on {task.name}."
            )
        answers.append(evaluated.answers(trainer, progress)[1])
    if len(answers) > 1:
        thresholds = [member.config.null_threshold for member in answers]
        mean = {"null_threshold": float(np.mean(thresholds))}
        ensemble = dataclasses.replace(
            answers[0],
            scores=kind.ensemble([member.scores for member in answers]),
            config=override(answers[0].config, mean),
        )
        answers.append(ensemble)
    if unlabelled:
        return TaskEvaluation(task, answers[-1], {}, [])
    metrics = [kind.compute_metrics(each, task.metrics) for each in answers]
    members = metrics[: len(model_dirs)]
    return TaskEvaluation(task, answers[-1], metrics[-1], members)
