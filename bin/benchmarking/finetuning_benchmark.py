"""Times fine-tuning: making features, and batches by length or padded."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import keras
import numpy as np

from albert_tf.cluster.distribution import make_strategy
from albert_tf.cluster.matmul_rate import matmul_rate
from albert_tf.config import RuntimeConfig, override
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.modeling.accounting import encoder_flops, training_flops
from albert_tf.modeling.models import model_class
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.features import Features
from albert_tf.training.objectives import HeadObjective
from albert_tf.training.trainer import DTYPE_POLICIES, Trainer
from bin.benchmarking.workload import TaskWork

# Of batches by length so many are timed, of all widths: a window of training,
# and every so many of an evaluation.
_STEPS = 64
# Padded ones are all alike, and slow.
_PADDED_STEPS = 8

JOBS = ("training", "evaluation")
PADDINGS = ("by length", "padded")


class FeatureTimes(NamedTuple):
    """What making features took, in one process."""

    num_examples: int
    num_sequences: int
    seconds: float


class Turn(NamedTuple):
    """What some steps took.

    Attributes:
        num_rows: examples, or windows of questions.
        seconds: of all steps.
        flops: of the model at the widths of the batches.
        padding: share of the tokens that are none.
    """

    num_rows: int
    seconds: float
    flops: int
    padding: float


class Round(NamedTuple):
    """One turn of every job and padding, and what the machine could do.

    Attributes:
        ceiling: operations per second.
        turns: by job (of JOBS) and padding (of PADDINGS).
    """

    ceiling: float
    turns: dict[str, dict[str, Turn]]


def _builder(task: TaskWork, say: Callable[[str], None]) -> FeatureBuilder:
    """Returns what makes features in this process, and keeps none."""
    return FeatureBuilder(
        task.kind, task.tokenizer, task.features, task.labels, log=say
    )


def measure_features(
    task: TaskWork, say: Callable[[str], None] = print
) -> dict[str, FeatureTimes]:
    """Returns what the features of all examples took, by job.

    Raises:
        UserError: for examples that no features can be made of.
    """
    builder = _builder(task, say)
    # What is made when it is first asked for.
    builder.build(task.examples[:1], training=True)
    times = {}
    for job in JOBS:
        begin = time.perf_counter()
        features = builder.build(task.examples, training=job == "training")
        seconds = time.perf_counter() - begin
        times[job] = FeatureTimes(
            len(task.examples), len(features.offsets) - 1, seconds
        )
    return times


def measure_batches(
    task: TaskWork, repeats: int, say: Callable[[str], None] = print
) -> Iterator[Round]:
    """Yields rounds of training and evaluation, by length and padded.

    Raises:
        UserError: for examples that no features can be made of.
    """
    side = _Side(task, say)
    say("Every width is compiled, and done once, before it is timed.")
    for job in JOBS:
        for padding in PADDINGS:
            side.warm_up(job, padding)
    for number in range(repeats):
        order = PADDINGS if number % 2 == 0 else PADDINGS[::-1]
        yield Round(
            matmul_rate(task.work.training.precision),
            {
                job: {padding: side.turn(job, padding) for padding in order}
                for job in JOBS
            },
        )


class _Side:
    """A model that is trained and asked, and its batches."""

    def __init__(self, task: TaskWork, say: Callable[[str], None]) -> None:
        self._work = task.work
        training = override(
            task.work.training, {"train_batch_size": task.work.batch_size}
        )
        strategy = make_strategy(RuntimeConfig())
        with strategy.scope():
            keras.utils.set_random_seed(training.seed)
            self._model = model_class(task.kind.head)(
                task.work.model,
                **({"labels": task.labels} if task.kind.labelled else {}),
                remat=training.remat,
                dtype=DTYPE_POLICIES[training.precision],
            )
            self._trainer = Trainer(
                self._model,
                HeadObjective(task.kind.head),
                strategy=strategy,
                optimizer_config=task.work.optimizer,
                training_config=training,
            )
        builder = _builder(task, say)
        longest = task.features.max_seq_length
        self._batches = {
            (job, padding): TaskBatches(
                features,
                batch_size=task.work.batch_size,
                seed=training.seed,
                widths=widths,
                training=job == "training",
            )
            for job in JOBS
            for features in [
                builder.build(task.examples, training=job == "training")
            ]
            for padding, widths in (
                ("by length", bucket_widths(longest)),
                ("padded", (longest,)),
            )
        }

    def warm_up(self, job: str, padding: str) -> None:
        """Does a step of every shape that `turn` meets."""
        batches = self._batches[job, padding]
        seen = set()
        for number in _steps(batches, padding):
            batch = batches.batch(number)
            widths = self._widths(job, batch)
            if widths not in seen:
                self._do(job, batch)
            seen.add(widths)

    def turn(self, job: str, padding: str) -> Turn:
        """Returns what the steps of a job take, the making of batches too."""
        batches = self._batches[job, padding]
        steps = _steps(batches, padding)
        num_rows = num_tokens = num_real = flops = 0
        begin = time.perf_counter()
        for number in steps:
            batch = batches.batch(number)
            self._do(job, batch)
            num_rows += int(batch["example_weights"].sum())
            widths = self._widths(job, batch)
            num_tokens += (
                batch["input_mask"].size
                * sum(widths)
                // (len(widths) * batch["input_mask"].shape[-1])
            )
            num_real += int(batch["input_mask"].sum())
            flops += self._flops(job, batches.features, batch)
        seconds = time.perf_counter() - begin
        return Turn(num_rows, seconds, flops, 1 - num_real / num_tokens)

    def _do(self, job: str, batch: Batch) -> None:
        if job == "training":
            self._trainer.train_step(batch)
        else:
            self._trainer.prediction_step(batch)

    def _widths(self, job: str, batch: Batch) -> tuple[int, ...]:
        if job == "training":
            return self._trainer.part_widths(batch)
        return (batch["input_ids"].shape[-1],)

    def _flops(self, job: str, features: Features, batch: Batch) -> int:
        widths = self._widths(job, batch)
        rows = self._work.batch_size * max(features.choices, 1)
        count = encoder_flops
        if job == "training":
            count = functools.partial(training_flops, num_predictions=0)
        return sum(
            count(
                self._work.model,
                batch_size=rows // len(widths),
                seq_length=width,
                read_positions_only=self._model.reads_positions_only(),
            )
            for width in widths
        )


def _steps(batches: TaskBatches, padding: str) -> Sequence[int]:
    """Returns the steps that are timed."""
    most = _PADDED_STEPS if padding == "padded" else _STEPS
    if batches.training:
        return range(min(most, batches.num_steps))
    # They are sorted; of all lengths some.
    places = np.linspace(0, batches.num_steps - 1, most)
    return np.unique(places.astype(np.int64)).tolist()
