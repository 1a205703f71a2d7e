"""Rows of tables with more cells, as .csv and .tsv."""

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from albert_tf.config import UserError, shown
from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Table
from albert_tf.prediction.outputs import quoted
from albert_tf.prediction.row_values import cell_text, values_of
from albert_tf.tasks.formats.tables import DELIMITERS, Row


class DelimitedWriter:
    """Writes a header and rows; where the form stays the same, with their text.

    `columns` are those of the table, `added` the others. The `ending` is that
    of the form, and a `separator` stands between several labels in a cell.
    Raises UserError for an added cell that a table without quotes cannot hold.
    """

    def __init__(
        self,
        file: IO[bytes],
        ending: str,
        table: Table,
        columns: Sequence[str],
        added: Iterable[str],
        separator: str,
    ) -> None:
        self._file, self._columns, self._separator = file, columns, separator
        self._delimiter = DELIMITERS[ending]
        self._is_kept = table.ending == ending
        self._is_literal = self._is_kept and table.quoting == "none"
        self._line_end = "\n"
        # Before any prediction is made.
        self._joined([separator])
        header = table.opened.header
        if header and self._is_kept:
            start, line_end = _divided(header.text)
            self._line_end = line_end or "\n"
            if table.has_mark:
                self._file.write(codecs.BOM_UTF8)
        else:
            start = self._joined(columns)
        self._write_line(start, added)

    def write(self, item: Input, cells: Mapping[str, Any]) -> None:
        """Writes a row, with the values of the added columns."""
        row, width = item.row, len(self._columns)
        *values, error = cells.values()
        if not isinstance(row, Row):
            own = values_of(item, self._columns)
            start = self._joined(
                [cell_text(own.get(name)) for name in self._columns]
            )
        elif self._is_kept and len(row.fields) == width:
            start, _ = _divided(row.text)
        else:
            # A bad row: its error has how many fields it had. Those of a
            # literal row fit into another.
            missing = [""] * (width - len(row.fields))
            join = self._delimiter.join if self._is_literal else self._joined
            start = join([*row.fields, *missing][:width])
        texts = [cell_text(value, self._separator) for value in values]
        self._write_line(start, [*texts, self._message(cell_text(error))])

    def _write_line(self, start: str, added: Iterable[str]) -> None:
        line = f"{start}{self._delimiter}{self._joined(list(added))}"
        line += self._line_end
        self._file.write(line.encode("utf-8", "backslashreplace"))

    def _joined(self, cells: Sequence[str]) -> str:
        if not self._is_literal:
            cells = [quoted(cell, self._delimiter) for cell in cells]
        elif bad := next(filter(self._has_special, cells), None):
            raise UserError(
                f"--quoting=none: {shown(bad)} has what separates cells or "
                "lines, and a table without quotes cannot hold it; name a "
                ".jsonl or .parquet as --output, or leave out --quoting."
            )
        return self._delimiter.join(cells)

    def _has_special(self, cell: str) -> bool:
        return not {self._delimiter, "\r", "\n"}.isdisjoint(cell)

    def _message(self, text: str) -> str:
        """Returns an error in a cell, in a literal one with blanks."""
        if self._is_literal and self._has_special(text):
            return re.sub(f"[{self._delimiter}\r\n]", " ", text)
        return text


def _divided(text: str) -> tuple[str, str]:
    """Returns a line's text and its end."""
    start = text.rstrip("\r\n")
    return start, text[len(start) :]
