"""GLUE's tasks as rows: files as they are downloaded, labels, metrics."""

import dataclasses
import math
import os
import re
from collections.abc import Mapping

from albert_tf.config import UserError
from albert_tf.tasks import metrics
from albert_tf.tasks.base import Example, Metric
from albert_tf.tasks.tables import Row, read_table

# As files have them; Python would also take 1_0.
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclasses.dataclass(frozen=True)
class TableFile:
    """A file of a task, and what stands in which column (from 0; -1: last).

    Attributes:
        name: in the task's folder.
        texts: one column, or the two of a pair.
        label: None where the file tells none.
        header: whether its first line names the columns.
        short_rows: whether lines with too few fields are left out (QQP has
            some), and not a mistake.
    """

    name: str
    texts: tuple[int, ...]
    label: int | None = None
    header: bool = True
    short_rows: bool = False


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A task of GLUE as data.

    Attributes:
        name: as GLUE calls it.
        labels: in the order of their numbers; none: the label is a number.
        files: by split; "dev" is what a result is told of.
        metrics: of label ids (or numbers) and predicted ones, `[examples]`.
        best_metric: what the best checkpoint is chosen by.
    """

    name: str
    labels: tuple[str, ...]
    files: Mapping[str, TableFile]
    metrics: Mapping[str, Metric]
    best_metric: str

    def read_examples(self, data_dir: str, split: str) -> list[Example]:
        """Returns the examples of a split.

        Raises:
            UserError: for a split that the task does not have, a file that
                cannot be read, a line with too few fields and a label that
                the task has not; file and line are named.
        """
        if split not in self.files:
            raise UserError(
                f"{self.name} has no split {split!r}; it has "
                f"{', '.join(self.files)}."
            )
        file = self.files[split]
        return self._read(os.path.join(data_dir, file.name), file)

    def read_gold(self, path: str) -> list[Example]:
        """Returns the examples of a file with labels, laid out as dev's.

        Raises:
            UserError: see `read_examples`; and for a task whose labels are
                GLUE's secret.
        """
        if "dev" not in self.files:
            raise UserError(f"{self.name} has no file that tells the labels.")
        return self._read(path, self.files["dev"])

    def _read(self, path: str, file: TableFile) -> list[Example]:
        rows = read_table(path, "download GLUE's own file.")[file.header :]
        examples = [
            self._example(row, file) for row in rows if _is_whole(row, file)
        ]
        if not examples:
            raise UserError(f"{path} has no examples.")
        return examples

    def _example(self, row: Row, file: TableFile) -> Example:
        label = None
        if file.label is not None:
            label = row.fields[file.label].strip()
            self.label_number(label, row.place)
        return Example(
            tuple(row.fields[column] for column in file.texts),
            label,
            row.place,
        )

    def label_number(self, label: str, place: str) -> float:
        """Returns a label's number, or the number that it is.

        Raises:
            UserError: naming `place`, for a label that the task has not.
        """
        if self.labels:
            if label not in self.labels:
                raise UserError(
                    f"{place}: the label is {label[:60]!r}; {self.name} has "
                    f"{', '.join(self.labels)}."
                )
            return self.labels.index(label)
        number = float(label) if _NUMBER.fullmatch(label) else math.inf
        if not math.isfinite(number):
            raise UserError(
                f"{place}: the label is {label[:60]!r}; {self.name} has "
                "numbers."
            )
        return number


def _is_whole(row: Row, file: TableFile) -> bool:
    """Returns whether a line has its fields, where it may lack some.

    Raises:
        UserError: where it may not.
    """
    needed = max(*file.texts, file.label or 0, 0) + 1
    if file.label == -1:
        # Or the last text would be taken for the label.
        needed += 1
    if len(row.fields) >= needed:
        return True
    if file.short_rows:
        return False
    raise UserError(
        f"{row.place}: {len(row.fields)} tab-separated fields, where at least "
        f"{needed} are needed: {chr(9).join(row.fields)[:60]!r}."
    )


def _split_files(
    texts: tuple[int, ...],
    label: int,
    test_texts: tuple[int, ...],
    **options: bool,
) -> dict[str, TableFile]:
    return {
        "train": TableFile("train.tsv", texts, label, **options),
        "dev": TableFile("dev.tsv", texts, label, **options),
        "test": TableFile("test.tsv", test_texts),
    }


_ACCURACY = {"accuracy": metrics.accuracy}
_ACCURACY_AND_F1 = _ACCURACY | {"f1": metrics.f1}
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")

GLUE_TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            "CoLA",
            _BINARY,
            _split_files((3,), 1, (1,), header=False),
            {"matthews_correlation": metrics.matthews_correlation},
            "matthews_correlation",
        ),
        GlueTask(
            "SST-2", _BINARY, _split_files((0,), 1, (1,)), _ACCURACY, "accuracy"
        ),
        GlueTask(
            "MRPC",
            _BINARY,
            _split_files((3, 4), 0, (3, 4)),
            _ACCURACY_AND_F1,
            "accuracy",
        ),
        GlueTask(
            "STS-B",
            (),
            _split_files((7, 8), -1, (7, 8)),
            {"pearson": metrics.pearson, "spearman": metrics.spearman},
            "pearson",
        ),
        GlueTask(
            "QQP",
            _BINARY,
            _split_files((3, 4), 5, (1, 2), short_rows=True),
            _ACCURACY_AND_F1,
            "accuracy",
        ),
        GlueTask(
            "MNLI",
            _INFERENCE,
            {
                "train": TableFile("train.tsv", (8, 9), -1),
                "dev": TableFile("dev_matched.tsv", (8, 9), -1),
                "dev_mismatched": TableFile("dev_mismatched.tsv", (8, 9), -1),
                "test": TableFile("test_matched.tsv", (8, 9)),
                "test_mismatched": TableFile("test_mismatched.tsv", (8, 9)),
            },
            _ACCURACY,
            "accuracy",
        ),
        GlueTask(
            "QNLI",
            _ENTAILMENT,
            _split_files((1, 2), -1, (1, 2)),
            _ACCURACY,
            "accuracy",
        ),
        GlueTask(
            "RTE",
            _ENTAILMENT,
            _split_files((1, 2), -1, (1, 2)),
            _ACCURACY,
            "accuracy",
        ),
        GlueTask(
            "WNLI",
            _BINARY,
            _split_files((1, 2), -1, (1, 2)),
            _ACCURACY,
            "accuracy",
        ),
        # A model of MNLI answers it; GLUE keeps the labels.
        GlueTask(
            "AX",
            _INFERENCE,
            {"test": TableFile("diagnostic.tsv", (1, 2))},
            {"matthews_correlation": metrics.matthews_correlation},
            "matthews_correlation",
        ),
    )
}
