"""A task is a row: a reader, a kind, metrics and settings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from albert_tf.config import UserError
from albert_tf.tasks.kinds.base import Kind, Metric


class Reader(Protocol):
    """What reads a task's files.

    Attributes:
        splits: that it knows.
    """

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits."""

    def read(
        self, data_dir: str, split: str, log: Callable[[str], None]
    ) -> Sequence[Any]:
        """Returns the examples of a split.

        Args:
            data_dir: where the files lie.
            split: one of `splits`.
            log: takes a line on what was left out.

        Raises:
            UserError: naming file and line.
        """


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as data.

    Attributes:
        name: as in `--task`.
        kind: what its examples and answers are.
        reader: of its files.
        metrics: of (label ids, or numbers, and predicted ones), both
            `[examples]`.
        labels: in the order of their numbers; empty: those that the training
            examples have.
        settings: the paper's, by name (Table 14), and those of the dropout.
        settings_v2: what differs for the second models.
        evaluated: what is evaluated in training: ending of a measure's name
            -> split.
        submissions: the benchmark's name for the predictions of a split.
        ordered: whether the label depends on which text of a pair is first.
    """

    name: str
    kind: Kind
    reader: Reader
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_v2: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluated: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"": "dev"}
    )
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ordered: bool = False

    def read(
        self,
        data_dir: str,
        split: str,
        log: Callable[[str], None] = print,
    ) -> Sequence[Any]:
        """Returns the examples of a split.

        Args:
            data_dir: where the files lie.
            split: train, dev or another that the reader has.
            log: takes a line on what was left out.

        Raises:
            UserError: for a split that the task has not, and for what is
                wrong in its files.
        """
        if split not in self.reader.splits:
            raise UserError(
                f"{self.name} has no split {split!r}; it has "
                f"{', '.join(self.reader.splits)}."
            )
        return self.reader.read(data_dir, split, log)
