"""Your own classification task: `train.tsv` and `dev.tsv`, two columns."""

import os

from albert_tf.config import UserError
from albert_tf.tasks import metrics
from albert_tf.tasks.base import Example, Task
from albert_tf.tasks.tables import Row, read_table

LABEL_COLUMN = "label"
_ADVICE = (
    "a classification task needs train.tsv and dev.tsv in its data directory, "
    "and their first lines name the columns."
)


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
    header, *rows = map(_with_two_fields, read_table(path, _ADVICE))
    columns = header.fields
    if columns.count(LABEL_COLUMN) != 1:
        raise UserError(
            f"{header.place}: the columns are {', '.join(columns)}; one must "
            f"be called {LABEL_COLUMN!r} and the other holds the text."
        )
    label = columns.index(LABEL_COLUMN)
    examples = []
    for row in rows:
        name = row.fields[label].strip()
        if not name:
            raise UserError(f"{row.place}: the label is empty.")
        examples.append(Example((row.fields[1 - label],), name, row.place))
    if not examples:
        raise UserError(f"{path} has a header but no examples.")
    return examples


def _with_two_fields(row: Row) -> Row:
    if len(row.fields) != 2:
        raise UserError(
            f"{row.place}: {len(row.fields)} tab-separated fields "
            f"where two are needed: {chr(9).join(row.fields)[:60]!r}."
        )
    return row


def _read_split(data_dir: str, split: str) -> list[Example]:
    return read_tsv(os.path.join(data_dir, f"{split}.tsv"))


CLASSIFICATION = Task(
    name="classification",
    read_examples=_read_split,
    metrics={"accuracy": metrics.accuracy},
    baselines={"majority_class_accuracy": metrics.majority_class_accuracy},
)

TASKS = {task.name: task for task in (CLASSIFICATION,)}
