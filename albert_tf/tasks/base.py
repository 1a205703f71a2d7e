"""A task is a row: a reader, a kind, metrics and settings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from albert_tf.config import Log, UserError, require
from albert_tf.tasks.kinds.base import Kind, Metric


class Reader(Protocol):
    """Reads a task's files."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits."""

    def read(self, data_dir: str, split: str, log: Log) -> Sequence[Any]:
        """Returns the examples of one of its splits.

        `log` takes one line, for example on skipped rows. Raises UserError
        with the location of what cannot be read.
        """


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as data.

    Attributes:
        name: as in `--task`.
        kind: of its examples and predictions.
        reader: of its files.
        metrics: functions of gold and predicted label ids, or numbers, both
            `[examples]`.
        labels: in the order of their ids; empty: those of the training
            examples.
        paper_settings: the paper's, by name (Table 14), and the dropout; for
            models of its sizes.
        settings_v2: changes of `paper_settings` for the v2 models.
        settings: by name, for models of any size.
        evaluated: splits that are evaluated in training, by the suffix of
            their metrics' names.
        submissions: the benchmark's names for the predictions of splits.
        ordered: the label depends on the order of a pair's texts.
        columns: returns those of the training file in a directory, as
            `--columns` has them; none where these have no names.
        label_separator: stands between several labels in one text of its
            files; empty for tasks without such texts.
    """

    name: str
    kind: Kind
    reader: Reader
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    paper_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings_v2: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evaluated: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"": "dev"}
    )
    submissions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ordered: bool = False
    columns: Callable[[str], Sequence[str]] = lambda data_dir: ()
    label_separator: str = ""

    def division(self, data_dir: str) -> dict[str, Any] | None:
        """Returns how dev examples are held out of training ones, if so."""
        divide = getattr(self.reader, "division", lambda data_dir: None)
        return divide(data_dir)

    def read(
        self, data_dir: str, split: str, log: Log = print
    ) -> Sequence[Any]:
        """Returns the examples of a split (`Reader.read`).

        Raises:
            UserError: for an unknown split, and for errors in the files.
        """
        require(
            split in self.reader.splits,
            f"{self.name} has no split {split!r}; it has "
            f"{', '.join(self.reader.splits)}.",
        )
        return self.reader.read(data_dir, split, log)

    def read_labelled(
        self, data_dir: str, split: str, log: Log = print
    ) -> Sequence[Any]:
        """Returns the examples of a split, all of which have a label.

        Raises:
            UserError: for an example without one, and as `read` does.
        """
        examples = self.read(data_dir, split, log)
        for example in examples:
            if not self.kind.has_label(example):
                raise UserError(
                    f"{example.location} {self.kind.without_label}; {split} "
                    f"examples of {self.name} need one."
                )
        return examples


def recipe(
    learning_rate: float,
    train_batch_size: int,
    dropout: float,
    num_train_steps: int,
    num_warmup_steps: int,
    max_seq_length: int = 512,
) -> dict[str, float]:
    """Returns a row of the paper's Table 14, whose columns these are.

    `dropout` is that within the encoder; the classifier's is 0.1 everywhere.
    """
    return {
        "learning_rate": learning_rate,
        "train_batch_size": train_batch_size,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "classifier_dropout_prob": 0.1,
        "num_train_steps": num_train_steps,
        "num_warmup_steps": num_warmup_steps,
        "max_seq_length": max_seq_length,
    }
