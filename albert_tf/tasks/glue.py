"""GLUE's tasks as rows: files as they are downloaded, labels, settings."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.config import UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.formats.tables import Row, read_table
from albert_tf.tasks.kinds.base import Metric
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import (
    Regression,
    is_number,
    parse_number,
)
from albert_tf.tasks.metrics import scalar
from albert_tf.tasks.recipes import recipe

# Lines that a warning names.
_NAMED = 3
# Share of the lines that may be left out; QQP has some in 360,000.
_MOST_SHORT = 0.01


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
class GlueFiles:
    """The files of a task of GLUE, read as they are downloaded.

    Attributes:
        name: of the task.
        labels: in the order of their numbers; none: the label is a number.
        files: by split; "dev" is what a result is told of.
    """

    name: str
    labels: tuple[str, ...]
    files: Mapping[str, TableFile]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the task has."""
        return tuple(self.files)

    def read(
        self, data_dir: str, split: str, log: Callable[[str], None]
    ) -> list[Example]:
        """Returns the examples of a split.

        Lines that are not whole, where the benchmark has some, are left out;
        they are counted, and so are fields beyond those of the header.

        Raises:
            UserError: for a file that cannot be read, a line with too few
                fields and a label that the task has not; file and line are
                named.
        """
        file = self.files[split]
        return self._read(os.path.join(data_dir, file.name), file, log)

    def read_gold(self, path: str) -> list[Example]:
        """Returns the examples of a file with labels, laid out as dev's.

        Raises:
            UserError: see `read`; and for a task whose labels are GLUE's
                secret.
        """
        if "dev" not in self.files:
            raise UserError(f"{self.name} has no file that tells the labels.")
        return self._read(path, self.files["dev"], lambda line: None)

    def _read(
        self, path: str, file: TableFile, log: Callable[[str], None]
    ) -> list[Example]:
        rows = read_table(path, "download GLUE's own file.")
        if file.header:
            header = rows.pop(0)
            self._check_header(header, file)
            wide = [r for r in rows if len(r.fields) > len(header.fields)]
            taken = "are not read"
            if file.label == -1:
                taken = "are not read, but for the last, the label"
            _report(wide, f"more fields than the header; these {taken}", log)
        if not rows:
            raise UserError(f"{path} has no examples.")
        whole = [row for row in rows if _is_whole(row, file)]
        if len(whole) < len(rows):
            short = [row for row in rows if not _is_whole(row, file)]
            if len(short) > _MOST_SHORT * len(rows):
                raise UserError(
                    f"{path}: {len(short)} of {len(rows)} lines have too few "
                    f"fields, the first in line {short[0].number}; download "
                    "the file anew."
                )
            _report(short, "too few fields and are left out", log)
        return [self._example(row, file) for row in whole]

    def _check_header(self, header: Row, file: TableFile) -> None:
        """Raises UserError for a file whose first line is an example."""
        if file.label is None or len(header.fields) <= file.label:
            return
        label = header.fields[file.label].strip()
        if label in self.labels or (not self.labels and is_number(label)):
            raise UserError(
                f"{header.location} is an example, where the columns' names "
                "should be; download GLUE's own file."
            )

    def _example(self, row: Row, file: TableFile) -> Example:
        label = None
        if file.label is not None:
            label = row.fields[file.label].strip()
            self.label_number(label, row.location)
        return Example(
            tuple(row.fields[column] for column in file.texts),
            label,
            row.location,
        )

    def label_number(self, label: str, place: str) -> float:
        """Returns a label's number, or the number that it is.

        Raises:
            UserError: naming `place`, for a label that the task has not.
        """
        if not self.labels:
            return parse_number(label, place)
        if label not in self.labels:
            raise UserError(
                f"{place}: the label is {label[:60]!r}; {self.name} has "
                f"{', '.join(self.labels)}."
            )
        return self.labels.index(label)


def _report(rows: list[Row], what: str, log: Callable[[str], None]) -> None:
    if rows:
        numbers = ", ".join(str(row.number) for row in rows[:_NAMED])
        more = " and others" if len(rows) > _NAMED else ""
        log(f"{rows[0].path}: {len(rows)} lines have {what}: {numbers}{more}.")


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
        f"{row.location}: {len(row.fields)} tab-separated fields, where at "
        f"least {needed} are needed: {chr(9).join(row.fields)[:60]!r}."
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
        reader=GlueFiles(name, labels, files),
        metrics=metrics,
        labels=labels,
        settings=settings,
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
            _split_files((3, 4), 5, (1, 2), short_rows=True),
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
        _task(
            "QNLI",
            _ENTAILMENT,
            _SENTENCE_PAIR,
            _ACCURACY,
            recipe(1e-5, 32, 0.0, 33112, 1986),
            ordered=True,
        ),
        _task(
            "RTE",
            _ENTAILMENT,
            _SENTENCE_PAIR,
            _ACCURACY,
            recipe(3e-5, 32, 0.1, 800, 200),
            ordered=True,
        ),
        _task(
            "WNLI",
            _BINARY,
            _SENTENCE_PAIR,
            _ACCURACY,
            recipe(2e-5, 16, 0.1, 2000, 250),
            ordered=True,
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
