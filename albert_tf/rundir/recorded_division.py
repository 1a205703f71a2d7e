"""Which examples a model was trained on, as its fine-tuning run recorded."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

from albert_tf.config import UserError
from albert_tf.io import files, hub
from albert_tf.io.json_files import read_json
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.splits import DEV, TRAIN, HeldOut


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

    def warning(
        self, task: Task, examples: Sequence[Any], split: str, data_dir: str
    ) -> str:
        """Returns a warning on examples that the model may have learned.

        Empty where nothing is recorded, or where the run held these out.
        """
        if not self.held_out:
            return ""
        if split == DEV and task.division(data_dir) == self.held_out:
            if examples_digest(examples) in self.dev_examples:
                return ""
            return (
                "These dev examples are not those that the run of "
                f"{self.model_dir} held out: the data, or its columns, are "
                "others. Metrics are too high where the model was trained on "
                "some of them; --split=test evaluates all examples of other "
                "data."
            )
        learned = self._locations_of_training(task, data_dir)
        number = sum(example.location in learned for example in examples)
        if not number:
            return ""
        return (
            f"{self.model_dir} was trained on {number} of these "
            f"{len(examples)} examples, so that its metrics are too high here. "
            "Without --split, --dev_fraction and --split_seed those are "
            "evaluated that its run held out."
        )

    def _locations_of_training(self, task: Task, data_dir: str) -> set[str]:
        """Returns the locations of the run's training examples.

        Empty for other data than those of the run.
        """
        if not isinstance(task.reader, HeldOut):
            return set()
        reader = task.reader.divided_as(self.held_out)
        try:
            train, dev = (
                reader.read(data_dir, name, lambda line: None)
                for name in (TRAIN, DEV)
            )
        except UserError:
            # The run could not have read these data.
            return set()
        if examples_digest(dev) not in self.dev_examples:
            return set()
        return {example.location for example in train}


def divided_as_in_training(
    task: Task, divisions: Sequence[RecordedDivision], data_dir: str
) -> Task:
    """Returns the task with dev examples as all the runs held them out."""
    held_out = divisions[0].held_out
    if (
        held_out
        and all(division.held_out == held_out for division in divisions)
        and isinstance(task.reader, HeldOut)
        and task.reader.leaves_open(data_dir)
    ):
        reader = task.reader.divided_as(held_out)
        return dataclasses.replace(task, reader=reader)
    return task
