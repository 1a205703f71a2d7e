"""Evaluation of fine-tuned models, one or an ensemble, on a task's examples."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError, override, require
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.io import files, hub
from albert_tf.io.json_files import read_json
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Log, listed
from albert_tf.tasks.feature_building import FeatureBuilder, examples_digest
from albert_tf.tasks.kinds.base import Prediction, ScoredExamples, Table
from albert_tf.tasks.splits import DEV, TRAIN, HeldOut
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.training_loss import head_loss


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
    returns the model in a directory. Examples are held out as they were in
    training, where its run recorded that and nothing else tells them; of
    others that a model was trained on, their number is logged, and where the
    data are others than those of its run.

    Raises:
        UserError: when a model is of another kind than the task, models have
            different labels, or an example has a label that they do not know.
    """
    kind = task.kind
    runs = {path: _recorded_run(path) for path in model_dirs}
    task = divided_as_in_training(task, [*runs.values()], data_dir)
    examples = task.read(data_dir, split, log)
    for path, run in runs.items():
        if learned := _num_learned(task, examples, split, data_dir, run):
            log(
                f"{path} was trained on {learned} of these {len(examples)} "
                "examples, so that its metrics are too high here. Without "
                "--split, --dev_fraction and --split_seed those are evaluated "
                "that its run held out."
            )
        elif _held_out_others(task, examples, split, data_dir, run):
            log(
                f"These dev examples are not those that the run of {path} held "
                "out: the data, or its columns, are others. Metrics are too "
                "high where the model was trained on some of them; "
                "--split=test evaluates all examples of other data."
            )
    labelled = _are_labelled(task, examples)
    scored: list[ScoredExamples] = []
    expected = list(task.labels)
    for model_dir in model_dirs:
        loaded = load(model_dir)
        _check_task(task, loaded, model_dir, log)
        labels = loaded.labels or [] if kind.labelled else []
        # The labels of the task, or else of the first model.
        expected = expected or labels
        require(
            labels == expected,
            f"{model_dir} has the labels {listed(labels, 12)}; {task.name} has "
            f"{listed(expected, 12)}, as do models of an ensemble.",
        )
        config = loaded.features
        if null_threshold is not None:
            config = override(config, {"null_threshold": null_threshold})
        builder = FeatureBuilder(
            kind, loaded.tokenizer, config, labels, workers, cache_dir, log
        )
        evaluated = EvaluatedExamples(
            builder,
            examples,
            batch_size=batch_size,
            widths=bucket_widths(config.max_seq_length),
        )
        trainer = Evaluator(
            loaded.model,
            head_loss(kind.head),
            strategy=tf.distribute.get_strategy(),
        )
        scored.append(evaluated.score(trainer, progress)[1])
    together = _ensemble(task, scored)
    if not labelled:
        return TaskEvaluation(task, together, {}, [])
    members = [kind.compute_metrics(each, task.metrics) for each in scored]
    metrics = members[0]
    if len(scored) > 1:
        metrics = kind.compute_metrics(together, task.metrics)
    return TaskEvaluation(task, together, metrics, members)


def _recorded_run(model_dir: str) -> dict[str, Any]:
    """Returns the config.json of a model's fine-tuning run, {} without one."""
    if hub.is_on_hub(model_dir):
        return {}
    directory = model_dir.rstrip("/")
    for run_dir in (directory, os.path.dirname(directory)):
        path = os.path.join(run_dir, CONFIG)
        recorded = read_json(path) if files.isfile(path) else {}
        # That of a model has no job.
        if recorded.get("job") == "finetune":
            return recorded
    return {}


def divided_as_in_training(
    task: Task, runs: Sequence[dict[str, Any]], data_dir: str
) -> Task:
    """Returns the task with dev examples as all the runs held them out."""
    division = runs[0].get("held_out")
    if (
        division
        and all(run.get("held_out") == division for run in runs)
        and isinstance(task.reader, HeldOut)
        and task.reader.leaves_open(data_dir)
    ):
        return dataclasses.replace(
            task, reader=task.reader.divided_as(division)
        )
    return task


def _num_learned(
    task: Task,
    examples: Sequence[Any],
    split: str,
    data_dir: str,
    run: dict[str, Any],
) -> int:
    """Returns the number of examples learned by a run that held some out.

    0 for other data than the run's.
    """
    division = run.get("held_out")
    if not division or not isinstance(task.reader, HeldOut):
        return 0
    if split == DEV and task.division(data_dir) == division:
        return 0
    reader = task.reader.divided_as(division)
    try:
        parts = [
            reader.read(data_dir, name, lambda line: None)
            for name in (TRAIN, DEV)
        ]
    except UserError:
        # The run could not have read these data.
        return 0
    if examples_digest(parts[1]) not in run["dev_examples"]:
        return 0
    learned = {example.location for example in parts[0]}
    return sum(example.location in learned for example in examples)


def _held_out_others(
    task: Task,
    examples: Sequence[Any],
    split: str,
    data_dir: str,
    run: dict[str, Any],
) -> bool:
    """Returns whether these were held out like a run's, of other data."""
    division = run.get("held_out")
    return (
        bool(division)
        and split == DEV
        and task.division(data_dir) == division
        and examples_digest(examples) not in run["dev_examples"]
    )


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


def _check_task(
    task: Task, loaded: LoadedModel, model_dir: str, log: Log
) -> None:
    """Raises UserError for another head, and logs another task."""
    loaded.require_head(
        task.kind.head, model_dir, f"fine-tune one for {task.name} first."
    )
    if loaded.task and loaded.task.task != task.name:
        log(
            f"{model_dir} was fine-tuned for {loaded.task.task}, and is now "
            f"evaluated on {task.name}."
        )


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
