"""Inputs of predictions: lines or rows that are read when they are due."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from albert_tf.prediction.forms import Form, Input
from albert_tf.tasks.formats.rows import Opened, Reading


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of inputs: what is needed to write its rows again.

    Attributes:
        path: of the file.
        ending: of its name, which says its form; "" for a directory.
        opened: its columns and rows.
        quoting: of its fields, a name of tables.QUOTING.
        has_mark: whether it begins with the byte-order mark of UTF-8.
        columns: name and type of each column of any row: string, and int64,
            double or bool where all values in lines of JSON are such. Those of
            lines on standard input are not known.
        usual: the names that most rows have.
    """

    path: str
    ending: str
    opened: Opened
    quoting: str = Reading.quoting
    has_mark: bool = False
    columns: Sequence[tuple[str, str]] = ()
    usual: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Lines or rows to predict for.

    Attributes:
        read: yields them in a form, each read when it is due; takes this, and
            the columns of the model's task, as `--columns` has them.
        num: of them, if it is known.
        table: that has them, if any.
    """

    read: Callable[[Form, Sequence[str]], Iterator[Input]]
    num: int | None = None
    table: Table | None = None
