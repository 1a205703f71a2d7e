"""The stages that measure fine-tuning: features, and bucketing by length."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from albert_tf.config import FeatureConfig, RuntimeConfig, override
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.tokenizer_base import Tokenizer
from bin.benchmarking.harness import Measurement, Stage, Turns, log
from bin.benchmarking.workspace import Workspace

if TYPE_CHECKING:
    from albert_tf.inputs.length_buckets import TaskBatches

JOBS = ("training", "evaluation")
PADDINGS = ("by length", "padded")

_CEILING = "matrix multiplication"
_PER_EXAMPLES = 10_000
# Steps of a turn, of all widths if by length: a window of training, and
# steps spread over an evaluation. Padded ones are all alike, and slow.
_MAX_STEPS = {"by length": 64, "padded": 8}


@dataclasses.dataclass
class _TaskStage(Stage):
    work: Workload
    kind: Kind
    labels: Sequence[str]
    examples: Sequence[Any]
    tokenizer: Tokenizer
    features: FeatureConfig

    @classmethod
    def prepare(cls, workspace: Workspace) -> Self:
        return cls(**workspace.task_inputs)

    def builder(self) -> FeatureBuilder:
        """Returns a builder of features in this process, without a cache."""
        return FeatureBuilder(
            self.kind, self.tokenizer, self.features, self.labels, log=log
        )


class FeatureTimes(NamedTuple):
    """The cost of making features."""

    num_examples: int
    num_sequences: int
    seconds: float


class Featurisation(_TaskStage):
    """Features of all examples, for training and for evaluation."""

    name = "featurisation"
    description = (
        "features of the examples of a task, on one core; questions with "
        "their paragraphs become several sequences"
    )
    max_cores = 1

    def sides(self) -> dict[str, Callable[[], FeatureTimes]]:
        builder = self.builder()
        # Makes what a builder makes once.
        builder.build(self.examples[:1], training=True)

        def turn(job: str) -> FeatureTimes:
            begin = time.perf_counter()
            features = builder.build(self.examples, training=job == "training")
            seconds = time.perf_counter() - begin
            num_sequences = len(features.offsets) - 1
            return FeatureTimes(len(self.examples), num_sequences, seconds)

        return {job: functools.partial(turn, job) for job in JOBS}

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        for job, times in turns.items():
            name = f"features for {job}"
            rate = times.num_examples / times.seconds
            yield name, "examples/s", rate
            yield name, "sequences/s", times.num_sequences / times.seconds
            of_many = f"{name}, of {_PER_EXAMPLES:,} examples"
            yield of_many, "s", _PER_EXAMPLES / rate


class Turn(NamedTuple):
    """The cost of some steps.

    Attributes:
        num_rows: examples, or windows of questions.
        seconds: of all steps.
        flops: of the model at the widths of the batches.
        padding: share of the tokens.
    """

    num_rows: int
    seconds: float
    flops: int
    padding: float


class Finetuning(_TaskStage):
    """Training and evaluation with bucketing by length, and padded."""

    name = "finetuning"
    description = (
        "training and evaluating on examples of a task, in batches by length "
        "and in batches padded to max_seq_length, by turns; ratios above 1: "
        "those by length are faster"
    )

    def sides(self) -> dict[Any, Callable[[], Any]]:
        from albert_tf.cluster.matmul_rate import matmul_rate

        model = TaskModel(self)
        log("Every width is compiled, and run once, before it is timed.")
        pairs = list(itertools.product(JOBS, PADDINGS))
        for pair in pairs:
            model.warm_up(*pair)
        rate = functools.partial(matmul_rate, self.work.training.precision)
        return {
            _CEILING: rate,
            **{pair: functools.partial(model.turn, *pair) for pair in pairs},
        }

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        ceiling = turns[_CEILING]
        yield _CEILING, "GFLOP/s", ceiling / 1e9
        for job in JOBS:
            rates = {}
            for padding in PADDINGS:
                turn, name = turns[job, padding], f"{job}, {padding}"
                rates[padding] = turn.num_rows / turn.seconds
                yield name, "rows/s", rates[padding]
                yield f"{name}, tokens of padding", "%", 100 * turn.padding
                share = 100 * turn.flops / turn.seconds / ceiling
                yield name, "% of the ceiling", share
            ratio = rates["by length"] / rates["padded"]
            yield f"{job}, by length to padded", "times", ratio


class TaskModel:
    """A model that is trained and evaluated, and its batches."""

    def __init__(self, stage: _TaskStage) -> None:
        import keras

        from albert_tf.cluster.distribution import make_strategy
        from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
        from albert_tf.modeling.models import model_class
        from albert_tf.training.objectives import head_objective
        from albert_tf.training.trainer import DTYPE_POLICIES, Trainer

        self._work = work = stage.work
        training = override(
            work.training, {"train_batch_size": work.batch_size}
        )
        labels = {"labels": stage.labels} if stage.kind.labelled else {}
        strategy = make_strategy(RuntimeConfig())
        with strategy.scope():
            keras.utils.set_random_seed(training.seed)
            self._model = model_class(stage.kind.head)(
                work.model,
                **labels,
                remat=training.remat,
                dtype=DTYPE_POLICIES[training.precision],
            )
            self._trainer = Trainer(
                self._model,
                head_objective(stage.kind.head),
                strategy=strategy,
                optimizer_config=work.optimizer,
                training_config=training,
            )
        builder = stage.builder()
        longest = stage.features.max_seq_length
        widths = {"by length": bucket_widths(longest), "padded": (longest,)}
        self.batches = {
            (job, padding): TaskBatches(
                features,
                batch_size=work.batch_size,
                seed=training.seed,
                widths=widths[padding],
                training=job == "training",
            )
            for job in JOBS
            for features in [
                builder.build(stage.examples, training=job == "training")
            ]
            for padding in PADDINGS
        }

    def warm_up(self, job: str, padding: str) -> None:
        """Makes a step of every shape that `turn` meets."""
        batches = self.batches[job, padding]
        seen = set()
        for number in timed_steps(batches, _MAX_STEPS[padding]):
            batch = batches.batch(number)
            widths = self._widths(job, batch)
            if widths not in seen:
                self.step(job, batch)
            seen.add(widths)

    def turn(self, job: str, padding: str) -> Turn:
        """Returns the cost of a job's steps, making the batches included."""
        batches = self.batches[job, padding]
        num_rows = num_tokens = num_real = flops = 0
        begin = time.perf_counter()
        for number in timed_steps(batches, _MAX_STEPS[padding]):
            batch = batches.batch(number)
            self.step(job, batch)
            num_rows += int(batch["example_weights"].sum())
            mask, widths = batch["input_mask"], self._widths(job, batch)
            rows = mask.size // mask.shape[-1]
            num_tokens += rows * sum(widths) // len(widths)
            num_real += int(mask.sum())
            flops += self._flops(job, batches.features.choices, widths)
        seconds = time.perf_counter() - begin
        return Turn(num_rows, seconds, flops, 1 - num_real / num_tokens)

    def step(self, job: str, batch: dict[str, np.ndarray]) -> None:
        """Trains or evaluates on a batch."""
        if job == "training":
            self._trainer.train_step(batch)
        else:
            self._trainer.prediction_step(batch)

    def _widths(
        self, job: str, batch: dict[str, np.ndarray]
    ) -> tuple[int, ...]:
        """Returns the widths of the parts that a batch is computed in."""
        if job == "training":
            return self._trainer.part_widths(batch)
        return (batch["input_ids"].shape[-1],)

    def _flops(self, job: str, choices: int, widths: Sequence[int]) -> int:
        from albert_tf.modeling.accounting import encoder_flops, training_flops

        count = encoder_flops
        if job == "training":
            count = functools.partial(training_flops, num_predictions=0)
        rows = self._work.batch_size * max(choices, 1)
        return sum(
            count(
                self._work.model,
                batch_size=rows // len(widths),
                seq_length=width,
                read_positions_only=self._model.reads_positions_only(),
            )
            for width in widths
        )


def timed_steps(batches: "TaskBatches", max_steps: int) -> Sequence[int]:
    """Returns the steps of a turn."""
    if batches.training:
        return range(min(max_steps, batches.num_steps))
    # An evaluation is sorted: steps of all lengths.
    steps = np.linspace(0, batches.num_steps - 1, max_steps)
    return np.unique(steps.astype(np.int64)).tolist()
