"""Tables as the benchmarks write them.

One tab between fields, quotes mean nothing, a line ends with LF or CRLF.
"""

import codecs
import dataclasses
from collections.abc import Iterator

from albert_tf import files
from albert_tf.config import UserError
from albert_tf.text.encoding import refuse_utf16


@dataclasses.dataclass(frozen=True)
class Row:
    """A line's fields, and where it stands.

    Attributes:
        fields: as they are, not stripped.
        number: of the line, from 1.
        path: of its file.
    """

    fields: list[str]
    number: int
    path: str

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.path}, line {self.number}"


def read_lines(path: str, advice: str) -> Iterator[tuple[int, str]]:
    """Yields the number and the text of each line of a UTF-8 file.

    Args:
        path: of the file.
        advice: what to do when it cannot be read.

    Raises:
        UserError: naming file and line, for a file that is missing or empty,
            one that is UTF-16 or whose lines end with CR alone, or a line
            that is not UTF-8.
    """
    try:
        with files.open(path) as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {advice}") from None
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise UserError(f"{path} is empty; {advice}")
    refuse_utf16(path, content)
    if b"\n" not in content and b"\r" in content.rstrip(b"\r"):
        # As old programs of the Mac write them.
        raise UserError(
            f"{path}: its lines end with CR alone; convert the file, for "
            "example with tr '\\r' '\\n'."
        )
    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: byte {error.start} "
                f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, "
                "for example with iconv -f latin1 -t utf-8."
            ) from None
        yield number, text.rstrip("\r")


def read_table(path: str, advice: str) -> list[Row]:
    """Returns the rows of a tab-separated file, its header among them.

    Raises:
        UserError: see `read_lines`.
    """
    return [
        Row(text.split("\t"), number, path)
        for number, text in read_lines(path, advice)
    ]
