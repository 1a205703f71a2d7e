"""TASKS: every task by its name, one row each."""

import dataclasses
import os

from albert_tf.config import Log
from albert_tf.tasks.base import Task, recipe
from albert_tf.tasks.custom import CLASSIFICATION, ENTITIES, MULTI_LABEL
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.question_rows import QUESTION_ROWS, read_questions
from albert_tf.tasks.formats.race import LEVELS, read_race
from albert_tf.tasks.glue import GLUE_TASKS
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.metrics import scalar
from albert_tf.tasks.split_files import SplitFiles


@dataclasses.dataclass(frozen=True)
class RaceFiles:
    """RACE's files as they are downloaded; `levels` are those to read."""

    levels: tuple[str, ...] = LEVELS
    splits: tuple[str, ...] = ("train", "dev", "test")

    def read(self, data_dir: str, split: str, log: Log) -> list[ChoiceExample]:
        """Returns the questions of a split; see `read_race`."""
        directory = os.path.join(data_dir, split)
        return read_race(directory, self.levels, labelled=split != "test")


def _squad(version: str, kind: Kind, settings: dict) -> Task:
    return Task(
        name=f"SQuAD{version}",
        kind=kind,
        # The downloaded files, or a user's own in their format or as rows.
        reader=SplitFiles(
            read_questions, (f"-v{version}.json", ".json", *QUESTION_ROWS)
        ),
        paper_settings=settings,
    )


def _race(name: str, levels: tuple[str, ...]) -> Task:
    return Task(
        name=name,
        kind=MultipleChoice(),
        reader=RaceFiles(levels),
        metrics={"accuracy": scalar.accuracy},
        paper_settings=recipe(2e-5, 32, 0.1, 12000, 1000),
        # With 2e-5 and dropout the large second models diverge.
        settings_v2=recipe(1e-5, 32, 0.0, 12000, 1000),
    )


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *GLUE_TASKS.values(),
        _squad("1.1", Spans(), recipe(5e-5, 48, 0.0, 3649, 365, 384)),
        _squad("2.0", AnswerableSpans(), recipe(3e-5, 48, 0.0, 8144, 814)),
        _race("RACE", LEVELS),
        _race("RACE-middle", ("middle",)),
        _race("RACE-high", ("high",)),
        CLASSIFICATION,
        MULTI_LABEL,
        ENTITIES,
    )
}
