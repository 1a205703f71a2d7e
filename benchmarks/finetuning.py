"""The stages that measure fine-tuning: features, and batches by length."""

import dataclasses
import functools
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import Stage, Turn
from benchmarks.workspace import Workspace
from bin import command_line

if TYPE_CHECKING:
    from albert_tf.inputs.length_buckets import TaskBatches
    from albert_tf.training.trainer import Trainer

# Steps of a turn, of all widths if by length: a window of training, and
# steps spread over an evaluation. Padded ones are all alike, and slow.
_MAX_STEPS = {"by length": 64, "padded": 8}


def _features(workspace: Workspace) -> dict[str, Turn]:
    os.sched_setaffinity(0, workspace.cores[:1])
    builder, made = workspace.feature_builder(), workspace.task_inputs
    # Makes what a builder makes once.
    builder.build(made.examples[:1], training=True)

    def turn(training: bool) -> dict[str, float]:
        begin = time.perf_counter()
        features = builder.build(made.examples, training=training)
        seconds = time.perf_counter() - begin
        return {
            "examples/s": len(made.examples) / seconds,
            "sequences/s": (len(features.offsets) - 1) / seconds,
        }

    return {
        "for training": functools.partial(turn, True),
        "for evaluation": functools.partial(turn, False),
    }


FEATURISATION = Stage(
    "features of the examples of a task, on one core; questions with their "
    "paragraphs become several sequences",
    _features,
    needs=("task_inputs", "tokenizer_dir"),
)


def _steps(workspace: Workspace) -> dict[str, Turn]:
    command_line.load_tensorflow()
    from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
    from albert_tf.modeling.models import model_class
    from albert_tf.training.training_loss import head_loss
    from benchmarks.training_probe import make_probe

    made, builder = workspace.task_inputs, workspace.feature_builder()
    work = dataclasses.replace(workspace.work, model=workspace.model_config())
    head = made.kind.head
    labels = {"labels": made.labels} if made.kind.labelled else {}
    trainer = make_probe(
        work,
        functools.partial(model_class(head), **labels),
        head_loss(head),
    )
    features = {
        training: builder.build(made.examples, training=training)
        for training in (True, False)
    }
    longest = workspace.features.max_seq_length
    sides: dict[str, Turn] = {}
    for padding, widths in (
        ("padded", (longest,)),
        ("by length", bucket_widths(longest)),
    ):
        batches = [
            TaskBatches(
                of_job,
                batch_size=work.batch_size,
                seed=work.training.seed,
                widths=widths,
                training=training,
            )
            for training, of_job in features.items()
        ]
        sides[padding] = functools.partial(
            _turn, trainer, batches, _MAX_STEPS[padding]
        )
        command_line.log(f"{padding}: every step is made before it is timed.")
        sides[padding]()
    return sides


def _turn(
    trainer: "Trainer", batches: "Sequence[TaskBatches]", max_steps: int
) -> dict[str, float]:
    """Returns the rates of training and evaluation, batches included."""
    found = {}
    for source in batches:
        rows, begin = 0, time.perf_counter()
        for number in timed_steps(source, max_steps):
            batch = source.batch(number)
            rows += int(batch["example_weights"].sum())
            if source.training:
                trainer.train_steps([batch])
            else:
                trainer.evaluation_step(batch, with_outputs=True)
        job = "training" if source.training else "evaluation"
        found[f"{job}, rows/s"] = rows / (time.perf_counter() - begin)
    return found


def timed_steps(batches: "TaskBatches", max_steps: int) -> Sequence[int]:
    """Returns the first steps of training, or steps of all lengths."""
    if batches.training:
        return range(min(max_steps, batches.num_steps))
    # An evaluation is sorted by length.
    steps = np.linspace(0, batches.num_steps - 1, max_steps)
    return np.unique(steps.astype(np.int64)).tolist()


FINETUNING = Stage(
    "training and evaluating on examples of a task, in batches padded to "
    "max_seq_length and in batches by length",
    _steps,
    needs=("task_inputs", "tokenizer_dir"),
)
