"""The stages that measure fine-tuning: features, and bucketing by length."""

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bin import command_line
from bin.benchmarking.harness import CEILING, Measurement, Stage, Turns

if TYPE_CHECKING:
    from albert_tf.inputs.length_buckets import TaskBatches

JOBS = ("training", "evaluation")
PADDINGS = ("by length", "padded")

# Steps of a turn, of all widths if by length: a window of training, and
# steps spread over an evaluation. Padded ones are all alike, and slow.
_MAX_STEPS = {"by length": 64, "padded": 8}


class Featurisation(Stage):
    """Features of all examples, for training and for evaluation."""

    name = "featurisation"
    description = (
        "features of the examples of a task, on one core; questions with "
        "their paragraphs become several sequences"
    )
    needs = ("task_inputs",)
    max_cores = 1

    def sides(self) -> dict[Any, Callable[[], Any]]:
        made = self.workspace.task_inputs
        # Makes what a builder makes once.
        made.builder.build(made.examples[:1], training=True)

        def turn(job: str) -> list[Measurement]:
            begin = time.perf_counter()
            training = job == "training"
            features = made.builder.build(made.examples, training=training)
            seconds = time.perf_counter() - begin
            name, rate = f"features for {job}", len(made.examples) / seconds
            return [
                (name, "examples/s", rate),
                (name, "sequences/s", (len(features.offsets) - 1) / seconds),
                (f"{name}, of 10,000 examples", "s", 10_000 / rate),
            ]

        return {job: functools.partial(turn, job) for job in JOBS}


class Turn(NamedTuple):
    """The cost of some steps."""

    num_rows: int  # examples, or windows of questions
    seconds: float  # of all steps
    flops: int  # of the model at the widths of the batches
    padding: float  # share of the tokens


class Finetuning(Stage):
    """Training and evaluation with bucketing by length, and padded."""

    name = "finetuning"
    description = (
        "training and evaluating on examples of a task, in batches by length "
        "and in batches padded to max_seq_length, by turns; ratios above 1: "
        "those by length are faster"
    )
    needs = ("task_inputs",)

    def sides(self) -> dict[Any, Callable[[], Any]]:
        self._make_trainer_and_batches()
        command_line.log("Every step is made once before it is timed.")
        sides = {
            pair: functools.partial(self.turn, *pair)
            for pair in itertools.product(JOBS, PADDINGS)
        }
        for turn in sides.values():
            turn()
        return {**self.ceiling(), **sides}

    def measurements(self, turns: Turns) -> Iterator[Measurement]:
        ceiling = turns[CEILING]
        yield CEILING, "GFLOP/s", ceiling / 1e9
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

    def _make_trainer_and_batches(self) -> None:
        from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
        from albert_tf.jobs.training_probe import make_probe
        from albert_tf.modeling.models import model_class
        from albert_tf.training.training_loss import head_loss

        made = self.workspace.task_inputs
        head = made.kind.head
        labels = {"labels": made.labels} if made.kind.labelled else {}
        self._trainer = make_probe(
            made.work,
            functools.partial(model_class(head), **labels),
            head_loss(head),
        )
        longest = self.workspace.features.max_seq_length
        widths = {"by length": bucket_widths(longest), "padded": (longest,)}
        self.batches = {}
        for job in JOBS:
            training = job == "training"
            features = made.builder.build(made.examples, training=training)
            for padding in PADDINGS:
                self.batches[job, padding] = TaskBatches(
                    features,
                    batch_size=made.work.batch_size,
                    seed=made.work.training.seed,
                    widths=widths[padding],
                    training=training,
                )

    def turn(self, job: str, padding: str) -> Turn:
        """Returns the cost of a job's steps, making the batches included."""
        batches = self.batches[job, padding]
        num_rows = num_tokens = num_real = flops = 0
        begin = time.perf_counter()
        for number in timed_steps(batches, _MAX_STEPS[padding]):
            batch = batches.batch(number)
            widths = self.step(job, batch)
            num_rows += int(batch["example_weights"].sum())
            mask = batch["input_mask"]
            rows = mask.size // mask.shape[-1]
            num_tokens += rows * sum(widths) // len(widths)
            num_real += int(mask.sum())
            flops += self._flops(job, batches.features.choices, widths)
        seconds = time.perf_counter() - begin
        return Turn(num_rows, seconds, flops, 1 - num_real / num_tokens)

    def step(self, job: str, batch: dict[str, np.ndarray]) -> tuple[int, ...]:
        """Trains or evaluates on a batch; returns the widths of its parts."""
        if job == "training":
            self._trainer.train_step(batch)
            return self._trainer.part_widths(batch)
        self._trainer.evaluation_step(batch, with_outputs=True)
        return (batch["input_ids"].shape[-1],)

    def _flops(self, job: str, choices: int, widths: Sequence[int]) -> int:
        from albert_tf.modeling.accounting import encoder_flops, training_flops

        count = encoder_flops
        if job == "training":
            count = functools.partial(training_flops, num_predictions=0)
        work = self.workspace.task_inputs.work
        rows = work.batch_size * max(choices, 1)
        return sum(
            count(
                work.model,
                batch_size=rows // len(widths),
                seq_length=width,
                read_positions_only=self._trainer.model.reads_positions_only(),
            )
            for width in widths
        )


def timed_steps(batches: "TaskBatches", max_steps: int) -> Sequence[int]:
    if batches.training:
        return range(min(max_steps, batches.num_steps))
    # An evaluation is sorted: steps of all lengths.
    steps = np.linspace(0, batches.num_steps - 1, max_steps)
    return np.unique(steps.astype(np.int64)).tolist()
