"""Your own classification task: `train.tsv` and `dev.tsv`, two columns."""

import os

from albert_tf import files
from albert_tf.config import UserError
from albert_tf.tasks import metrics
from albert_tf.tasks.base import Example, Task

LABEL_COLUMN = "label"


def read_tsv(path: str) -> list[Example]:
    """Returns the examples of a two-column file.

    The first line names the columns: `label`, and any other name for the
    text, in either order (so GLUE's SST-2 is read as it is). Fields are
    separated by one tab; quotes mean nothing.

    Raises:
        UserError: naming file and line, for a file that is missing, empty or
            not UTF-8, a header without `label`, a line without exactly two
            fields, or an empty label.
    """
    try:
        with files.open(path) as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; a classification task needs train.tsv "
            "and dev.tsv in its data directory."
        ) from None
    if lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty; its first line names the columns.")
    rows = [_fields(path, n, line) for n, line in enumerate(lines, start=1)]
    header = rows[0]
    if header.count(LABEL_COLUMN) != 1:
        raise UserError(
            f"{path}, line 1: the columns are {', '.join(header)}; one must "
            f"be called {LABEL_COLUMN!r} and the other holds the text."
        )
    label = header.index(LABEL_COLUMN)
    examples = []
    for number, row in enumerate(rows[1:], start=2):
        if not row[label].strip():
            raise UserError(f"{path}, line {number}: the label is empty.")
        examples.append(Example(text=row[1 - label], label=row[label].strip()))
    if not examples:
        raise UserError(f"{path} has a header but no examples.")
    return examples


def _fields(path: str, number: int, line: bytes) -> list[str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}, line {number}: byte {error.start} "
            f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, "
            "for example with iconv -f latin1 -t utf-8."
        ) from None
    fields = text.rstrip("\r").split("\t")
    if len(fields) != 2:
        raise UserError(
            f"{path}, line {number}: {len(fields)} tab-separated fields "
            f"where two are needed: {text[:60]!r}."
        )
    return fields


def _read_split(data_dir: str, split: str) -> list[Example]:
    return read_tsv(os.path.join(data_dir, f"{split}.tsv"))


CLASSIFICATION = Task(
    name="classification",
    read_examples=_read_split,
    metrics={"accuracy": metrics.accuracy},
    baselines={"majority_class_accuracy": metrics.majority_class_accuracy},
)

TASKS = {task.name: task for task in (CLASSIFICATION,)}
