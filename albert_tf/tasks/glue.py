"""GLUE's tasks, one row each, and their files as they are downloaded."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.config import Log, require
from albert_tf.tasks.bad_rows import BadRows, RowError
from albert_tf.tasks.base import Task, recipe
from albert_tf.tasks.examples import Example
from albert_tf.tasks.formats.tables import Row, read_table
from albert_tf.tasks.kinds.base import Metric
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.metrics import scalar
from albert_tf.tasks.number_labels import is_number


@dataclasses.dataclass(frozen=True)
class TableFile:
    """A file of a task, with its columns (from 0; -1: the last).

    Attributes:
        name: in the task's folder.
        texts: one column, or the two of a pair.
        label: None for a file without labels.
        header: whether its first line names the columns.
        max_short: share of lines with too few fields that may be skipped.
    """

    name: str
    texts: tuple[int, ...]
    label: int | None = None
    header: bool = True
    max_short: float = 0.0


@dataclasses.dataclass(frozen=True)
class GlueFiles:
    """The files of a task of GLUE by split, read as they are downloaded.

    `labels` are the class names of the task; empty: labels are numbers.
    """

    labels: tuple[str, ...]
    files: Mapping[str, TableFile]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the task has."""
        return tuple(self.files)

    def read(self, data_dir: str, split: str, log: Log) -> list[Example]:
        """Returns the examples of a split (`read_file`)."""
        path = os.path.join(data_dir, self.files[split].name)
        return self.read_file(path, split, log)

    def read_file(self, path: str, split: str, log: Log) -> list[Example]:
        """Returns the examples of a file in the format of a split's.

        Logs the number of lines that are skipped, where the benchmark has
        truncated ones, and of those with more fields than the header. Raises
        UserError for other lines with too few fields.
        """
        file = self.files[split]
        rows = read_table(path, "download GLUE's own file.")
        if file.header:
            header = rows.pop(0)
            # Without a label column, examples begin with a number: the index.
            column = 0 if file.label is None else file.label
            name = "".join(header.fields[column:][:1]).strip()
            require(
                name not in self.labels and not is_number(name),
                f"{header.location}: expected the columns' names, got an "
                "example; download GLUE's own file.",
            )
            wide = [r for r in rows if len(r.fields) > len(header.fields)]
            if wide:
                log(
                    f"{wide[0].location}: this and {len(wide) - 1} other lines "
                    "have more fields than the header; these are ignored, but "
                    "for a label at the end."
                )
        require(bool(rows), f"{path} has no examples.")
        needed = max(*file.texts, file.label or 0, 0) + 1
        # Otherwise the last text would be read as the label.
        needed += file.label == -1

        def example(row: Row) -> Example:
            if len(row.fields) < needed:
                raise RowError(
                    row.location,
                    f"expected at least {needed} tab-separated fields, as in "
                    "GLUE's own file",
                    f", got {len(row.fields)}",
                )
            return Example(
                tuple(row.fields[column] for column in file.texts),
                None if file.label is None else row.fields[file.label].strip(),
                row.location,
            )

        bad = BadRows()
        examples = bad.apply(example, rows)
        if len(rows) - len(examples) > file.max_short * len(rows):
            bad.refuse(len(examples))
        bad.settle(len(examples), skip=True, log=log)
        return examples


def _split_files(
    texts: tuple[int, ...],
    label: int,
    test_texts: tuple[int, ...],
    **options: Any,
) -> dict[str, TableFile]:
    return {
        "train": TableFile("train.tsv", texts, label, **options),
        "dev": TableFile("dev.tsv", texts, label, **options),
        "test": TableFile("test.tsv", test_texts),
    }


_ACCURACY = {"accuracy": scalar.accuracy}
_ACCURACY_AND_F1 = _ACCURACY | {"f1": scalar.f1}
_MATTHEWS = {"matthews_correlation": scalar.matthews_correlation}
_CORRELATIONS = {"pearson": scalar.pearson, "spearman": scalar.spearman}
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")


def _task(
    name: str,
    labels: tuple[str, ...],
    files: Mapping[str, TableFile],
    metrics: Mapping[str, Metric],
    settings: Mapping[str, float],
    **options: Any,
) -> Task:
    return Task(
        name=name,
        kind=Classification() if labels else Regression(),
        reader=GlueFiles(labels, files),
        metrics=metrics,
        labels=labels,
        paper_settings=settings,
        # The second models were pretrained without dropout, too.
        settings_v2={
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        **{"submissions": {"test": name}, **options},
    )


_MNLI_FILES = {
    "train": TableFile("train.tsv", (8, 9), -1),
    "dev": TableFile("dev_matched.tsv", (8, 9), -1),
    "dev_mismatched": TableFile("dev_mismatched.tsv", (8, 9), -1),
    "test": TableFile("test_matched.tsv", (8, 9)),
    "test_mismatched": TableFile("test_mismatched.tsv", (8, 9)),
}
_SENTENCE_PAIR = _split_files((1, 2), -1, (1, 2))

GLUE_TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _task(
            "CoLA",
            _BINARY,
            _split_files((3,), 1, (1,), header=False),
            _MATTHEWS,
            recipe(1e-5, 16, 0.0, 5336, 320),
        ),
        _task(
            "SST-2",
            _BINARY,
            _split_files((0,), 1, (1,)),
            _ACCURACY,
            recipe(1e-5, 32, 0.0, 20935, 1256),
        ),
        _task(
            "MRPC",
            _BINARY,
            _split_files((3, 4), 0, (3, 4)),
            _ACCURACY_AND_F1,
            recipe(2e-5, 32, 0.0, 800, 200),
        ),
        _task(
            "STS-B",
            (),
            _split_files((7, 8), -1, (7, 8)),
            _CORRELATIONS,
            recipe(2e-5, 16, 0.0, 3598, 214),
        ),
        _task(
            "QQP",
            _BINARY,
            # One in 5,000 of its lines is truncated.
            _split_files((3, 4), 5, (1, 2), max_short=0.01),
            _ACCURACY_AND_F1,
            recipe(5e-5, 128, 0.1, 14000, 1000),
        ),
        _task(
            "MNLI",
            _INFERENCE,
            _MNLI_FILES,
            _ACCURACY,
            recipe(3e-5, 128, 0.0, 10000, 1000),
            evaluated={"": "dev", "_mismatched": "dev_mismatched"},
            submissions={"test": "MNLI-m", "test_mismatched": "MNLI-mm"},
            ordered=True,
        ),
        *(
            _task(
                name, labels, _SENTENCE_PAIR, _ACCURACY, settings, ordered=True
            )
            for name, labels, settings in (
                ("QNLI", _ENTAILMENT, recipe(1e-5, 32, 0.0, 33112, 1986)),
                ("RTE", _ENTAILMENT, recipe(3e-5, 32, 0.1, 800, 200)),
                ("WNLI", _BINARY, recipe(2e-5, 16, 0.1, 2000, 250)),
            )
        ),
        # A model of MNLI answers it; GLUE keeps the labels.
        _task(
            "AX",
            _INFERENCE,
            {"test": TableFile("diagnostic.tsv", (1, 2))},
            _MATTHEWS,
            {},
        ),
    )
}
