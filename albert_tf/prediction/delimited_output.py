"""Rows of tables with more cells, as .csv and .tsv."""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Table
from albert_tf.prediction.outputs import quoted
from albert_tf.prediction.row_values import cell_text, values_of
from albert_tf.tasks.formats.tables import DELIMITERS, Row


class DelimitedWriter:
    """Writes a header and rows; where the form stays the same, with their text.

    `columns` are those of the table, `added` the others. The `ending` is that
    of the form, and a `separator` stands between several labels in a cell.
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
        if not isinstance(row, Row):
            values = values_of(item, self._columns)
            start = self._joined(
                [cell_text(values.get(name)) for name in self._columns]
            )
        elif self._is_kept and len(row.fields) == width:
            start, _ = _divided(row.text)
        else:
            # A bad row: its error has how many fields it had.
            missing = [""] * (width - len(row.fields))
            start = self._joined([*row.fields, *missing][:width])
        texts = (cell_text(cell, self._separator) for cell in cells.values())
        self._write_line(start, texts)

    def _write_line(self, start: str, added: Iterable[str]) -> None:
        line = f"{start}{self._delimiter}{self._joined(list(added))}"
        line += self._line_end
        self._file.write(line.encode("utf-8", "backslashreplace"))

    def _joined(self, cells: Sequence[str]) -> str:
        if self._is_literal:
            return self._delimiter.join(map(self._literal, cells))
        return self._delimiter.join(quoted(c, self._delimiter) for c in cells)

    def _literal(self, cell: str) -> str:
        """Returns a cell without what a table without quotes cannot hold."""
        for special in (self._delimiter, "\r", "\n"):
            cell = cell.replace(special, " ")
        return cell


def _divided(text: str) -> tuple[str, str]:
    """Returns a line's text and its end."""
    start = text.rstrip("\r\n")
    return start, text[len(start) :]
