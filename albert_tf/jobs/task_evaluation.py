"""What models say of a task's examples, and how right they are."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import FeatureConfig, UserError, override
from albert_tf.inputs.input_pipeline import prefetch
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import Answers, Kind, Prediction, Table
from albert_tf.training.objectives import HeadObjective
from albert_tf.training.running_statistics import RunningMeans
from albert_tf.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class EvaluatedExamples:
    """Examples that are evaluated again and again.

    Attributes:
        examples: of a task.
        features: theirs.
        batches: of all rows.
    """

    examples: Sequence[Any]
    features: Features
    batches: TaskBatches

    @classmethod
    def made(
        cls,
        builder: FeatureBuilder,
        examples: Sequence[Any],
        *,
        batch_size: int,
        widths: tuple[int, ...],
    ) -> "EvaluatedExamples":
        """Returns examples with their features and batches."""
        features = builder.build(examples, training=False)
        batches = TaskBatches(
            features, batch_size=batch_size, seed=0, widths=widths
        )
        return cls(examples, features, batches)


def scores_of(
    trainer: Trainer,
    kind: Kind,
    evaluated: EvaluatedExamples,
    config: FeatureConfig,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[float, list[Any]]:
    """Returns the mean loss, and what the model says of each example.

    Args:
        trainer: with a HeadObjective.
        kind: of the examples.
        evaluated: the examples.
        config: how they became features.
        progress: takes how many rows are done, and how many there are.
    """
    batches = evaluated.batches
    means = RunningMeans()
    found: dict[str, list] = {}
    num_rows = len(evaluated.features)
    rows = trainer.evaluation_rows(batches.batch_size)
    source = prefetch(
        lambda step: (step, batches.batch(step, rows)), range(batches.num_steps)
    )
    done = 0
    for step, batch in source:
        measures, outputs = trainer.answers(batch)
        means.add(measures)
        numbers = batches.record_numbers(step)
        for name, values in outputs.items():
            _check_numbers(values[: len(numbers)], numbers, evaluated)
            places = found.setdefault(name, [None] * num_rows)
            for number, value in zip(numbers, values, strict=False):
                places[number] = value
        done += len(numbers)
        progress(done, num_rows)
    scores = kind.scores(evaluated.examples, evaluated.features, found, config)
    return means.means()["loss"], scores


def _check_numbers(
    values: np.ndarray, numbers: np.ndarray, evaluated: EvaluatedExamples
) -> None:
    """Raises UserError for outputs that are no numbers, and so no answers."""
    finite = np.isfinite(values.reshape(len(values), -1))
    wrong = ~finite.all(axis=1)
    if wrong.any():
        row = numbers[wrong.argmax()]
        example = evaluated.examples[evaluated.features.example_numbers[row]]
        raise UserError(
            f"{example.location}: the model's outputs are not finite; its "
            "numbers grow beyond the precision's range (float32 and bfloat16 "
            "have more than float16)."
        )


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """What a model, or several together, say of examples.

    Attributes:
        task: theirs.
        answers: to the examples of one split.
        measures: empty where the examples do not tell what is right.
        members: the measures of each model alone.
    """

    task: Task
    answers: Answers
    measures: dict[str, float]
    members: list[dict[str, float]]

    def table(self) -> Table | None:
        """Returns the measures of each label, or part, if there are any."""
        if not self.measures:
            return None
        return self.task.kind.table(self.answers)

    def predictions(self) -> list[Prediction]:
        """Returns what is said of each example, for people."""
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
    say: Callable[[str], None] = print,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TaskEvaluation:
    """Returns what models say of a split, and how right they are together.

    Of several models the scores are averaged (an ensemble).

    Raises:
        UserError: when a model is of another kind than the task, models have
            different labels, or an example has a label that they do not know.
    """
    kind = task.kind
    examples = task.read(data_dir, split, say)
    told = _are_told(kind, examples)
    members: list[Answers] = []
    labels: list[str] = []
    for model_dir in model_dirs:
        loaded = load_model_directory(model_dir)
        loaded.require_head(
            kind.head, model_dir, f"fine-tune one for {task.name} first."
        )
        found = loaded.labels or [] if kind.labelled else []
        _check_labels(task, model_dir, found, labels)
        labels = labels or found
        config = loaded.features
        if null_threshold is not None:
            config = override(config, {"null_threshold": null_threshold})
        builder = FeatureBuilder(
            kind, loaded.tokenizer, config, labels, workers, cache_dir, say
        )
        trainer = Trainer(
            loaded.model,
            HeadObjective(kind.head),
            strategy=tf.distribute.get_strategy(),
        )
        evaluated = EvaluatedExamples.made(
            builder,
            examples,
            batch_size=batch_size,
            widths=bucket_widths(config.max_seq_length),
        )
        if loaded.task and loaded.task.task != task.name:
            say(
                f"{model_dir} was fine-tuned for {loaded.task.task}, and now "
                f"answers {task.name}."
            )
        _, scores = scores_of(trainer, kind, evaluated, config, progress)
        members.append(Answers(examples, scores, config, labels))
    together = _averaged(kind, members) if len(members) > 1 else members[0]
    measured: list[dict[str, float]] = []
    if told:
        measured = [
            kind.compute_metrics(answers, task.metrics)
            for answers in (*members, together)
        ]
    *of_members, measures = measured or [{}]
    return TaskEvaluation(task, together, measures, of_members)


def _averaged(kind: Kind, members: Sequence[Answers]) -> Answers:
    """Returns what several models say together, by their mean threshold."""
    thresholds = [answers.config.null_threshold for answers in members]
    return dataclasses.replace(
        members[0],
        scores=kind.ensemble([answers.scores for answers in members]),
        config=override(
            members[0].config, {"null_threshold": float(np.mean(thresholds))}
        ),
    )


def _are_told(kind: Kind, examples: Sequence[Any]) -> bool:
    """Returns whether all examples tell their answers.

    Raises:
        UserError: when some do and some do not.
    """
    told = [kind.has_label(example) for example in examples]
    if any(told) and not all(told):
        raise UserError(
            f"{examples[told.index(False)].location} has no answer, though "
            "others have; a split tells all or none."
        )
    return all(told)


def _check_labels(
    task: Task, model_dir: str, found: list[str], others: list[str]
) -> None:
    """Raises UserError unless a model has the task's and the others' labels."""
    for source, wanted in (
        (task.name, list(task.labels)),
        ("the models before it", others),
    ):
        if task.kind.labelled and wanted and found != wanted:
            raise UserError(
                f"{model_dir} has the labels {', '.join(found)}; "
                f"{source} {'has' if source == task.name else 'have'} "
                f"{', '.join(wanted)}."
            )
