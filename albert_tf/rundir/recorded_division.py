"""Which examples a model was trained on, as its fine-tuning run recorded."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from albert_tf.config import Log, UserError, listed, require, silent
from albert_tf.io import files, hub
from albert_tf.io.json_files import read_json
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.splits import (
    DEV,
    TRAIN,
    HeldOut,
    as_flags,
    divided_as,
)

# A setting of a division into folds.
_FOLDS = "folds"


@dataclasses.dataclass(frozen=True)
class RecordedDivision:
    """How the run of a model held out its dev examples.

    Attributes:
        model_dir: of the model.
        held_out: the settings of the division; empty where none is recorded.
        dev_examples: digests of the examples of each evaluated split.
    """

    model_dir: str
    held_out: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dev_examples: Sequence[str] = ()

    @classmethod
    def of_run(cls, model_dir: str, config: Mapping[str, Any]) -> Self:
        """Returns the division in the config.json of a run."""
        held_out = config.get("held_out") or {}
        return cls(model_dir, held_out, config.get("dev_examples", ()))

    @classmethod
    def of_model(cls, model_dir: str) -> Self:
        """Returns the division of a model's run, found beside the model."""
        if hub.is_on_hub(model_dir):
            return cls(model_dir)
        directory = model_dir.rstrip("/")
        for run_dir in (directory, os.path.dirname(directory)):
            path = os.path.join(run_dir, CONFIG)
            config = read_json(path) if files.isfile(path) else {}
            # The config.json of a model has no job.
            if config.get("job") == "finetune":
                return cls.of_run(model_dir, config)
        return cls(model_dir)

    def has_held_out(self, task: Task, data_dir: str) -> bool:
        """Returns whether a task's dev examples are those of the run."""
        try:
            dev = task.read(data_dir, DEV, silent)
        except UserError:
            # The run could not have read these data.
            return False
        return examples_digest(dev) in self.dev_examples

    def learned(self, task: Task, data_dir: str) -> set[str]:
        """Returns the locations of the run's training examples.

        Empty for other data than those of the run.
        """
        if not (isinstance(task.reader, HeldOut) or _FOLDS in self.held_out):
            return set()
        divided = divided_as(task, self.held_out)
        if not self.has_held_out(divided, data_dir):
            return set()
        train = divided.read(data_dir, TRAIN, silent)
        return {example.location for example in train}


def divided_as_in_training(
    task: Task,
    divisions: Sequence[RecordedDivision],
    data_dir: str,
    log: Log,
    split: str = "",
) -> Task:
    """Returns the task with dev examples as all the runs held them out.

    That of the files, or of a division by flags, stays; but where no `split`
    is named, a fold of the run counts before a dev file.

    Raises:
        UserError: where each model has learned what others' runs held out,
            and there are no other dev examples.
    """
    found = [division for division in divisions if division.held_out]
    if not found:
        return task
    is_open = isinstance(task.reader, HeldOut) and task.reader.leaves_open(
        data_dir
    )
    if not _are_alike(found):
        require(
            not is_open or split not in ("", DEV),
            f"{listed([d.model_dir for d in found], longest=None)}: each of "
            "these models has learned examples that the run of another one "
            f"held out, so that {data_dir} has no dev examples for them "
            "together; evaluate them with --split=test on a file that none of "
            "them was trained on.",
        )
        return task
    first = found[0]
    if is_open:
        return divided_as(task, first.held_out)
    by_flags = isinstance(task.reader, HeldOut) and task.reader.is_by_flags
    # A model without a division may have learned all training examples.
    of_all = len(found) == len(divisions)
    if split or by_flags or not of_all or _FOLDS not in first.held_out:
        return task
    of_fold = divided_as(task, first.held_out)
    if first.has_held_out(of_fold, data_dir):
        log(
            f"{first.model_dir} is evaluated on the fold that its run held "
            f"out; a dev file in {data_dir} is not read."
        )
        return of_fold
    log(
        f"{first.model_dir} was trained on a fold of other examples than those "
        f"of {data_dir}, whose own dev examples are evaluated."
    )
    return task


def learned_examples(
    divisions: Sequence[RecordedDivision],
    task: Task,
    examples: Sequence[Any],
    split: str,
    data_dir: str,
) -> list[str]:
    """Returns warnings on examples that the models may have learned.

    None where the runs held these out, and of a file where nothing is recorded.
    """
    lines = []
    learned = {}
    for division in divisions:
        model_dir = division.model_dir
        of_task = task.division(data_dir) if split == DEV else None
        if not division.held_out:
            if of_task:
                lines.append(
                    "It is not recorded which of these examples "
                    f"{model_dir} was trained on: metrics are too high where "
                    "it was on some of the dev examples; --split=test "
                    "evaluates all examples of other data."
                )
            continue
        if of_task == division.held_out:
            if examples_digest(examples) not in division.dev_examples:
                lines.append(
                    "These dev examples are not those that the run of "
                    f"{model_dir} held out: the data, or its columns, are "
                    "others. Metrics are too high where the model was trained "
                    "on some of them; --split=test evaluates all examples of "
                    "other data."
                )
            continue
        locations = division.learned(task, data_dir)
        number = sum(example.location in locations for example in examples)
        if number:
            learned[model_dir] = number
    if learned:
        (name, number), *others = learned.items()
        advice = (
            "Without --split, --dev_fraction and --split_seed those are "
            "evaluated that its run held out."
            if _are_alike(divisions)
            else "What the run of one of these models held out others have "
            "learned; evaluate them on a file that none was trained on."
        )
        lines.append(
            f"{name} was trained on {number} of these {len(examples)} examples"
            f"{''.join(f', {name} on {n}' for name, n in others)}, so that "
            f"metrics are too high here. {advice}"
        )
    return lines


def learned_before(
    division: RecordedDivision, task: Task, dev: Sequence[Any], data_dir: str
) -> str:
    """Returns a warning on dev examples that initial weights have learned.

    Empty where the run of the weights, if there was one, held them out.
    """
    if division.held_out == (task.division(data_dir) or {}):
        return ""
    locations = division.learned(task, data_dir)
    number = sum(example.location in locations for example in dev)
    if not number:
        return ""
    return (
        f"{division.model_dir} was fine-tuned on {number} of these {len(dev)} "
        "dev examples, so that metrics will be too high; divide the data as "
        f"its run did ({as_flags(division.held_out) or 'by files'}), or begin "
        "with other weights."
    )


def _are_alike(divisions: Sequence[RecordedDivision]) -> bool:
    """Returns whether all runs with a division have the same."""
    found = [d.held_out for d in divisions if d.held_out]
    return all(held_out == found[0] for held_out in found)
