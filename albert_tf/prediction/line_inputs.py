"""Lines of text as inputs of predictions.

Main entry: `read_lines`. A line that is no text has its error, and the others
are read; a table or a file of words that was taken for lines is refused.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import UserError, listed, require, shown
from albert_tf.io.encoding import refuse_other_than_text
from albert_tf.prediction.forms import CHOICES, PAIR, QUESTION, Form, Input
from albert_tf.prediction.input_columns import UNREAD_ROLES
from albert_tf.prediction.inputs import Inputs
from albert_tf.prediction.word_inputs import HEAD, refuse_words, width_of_words
from albert_tf.tasks.formats.rows import EXTENSIONS
from albert_tf.tasks.formats.tables import (
    END_OF_FILE,
    JSON_START,
    refuse_line_ends,
)

# Names of columns by which the header of a table is recognised.
_NAMES = {n for f in (PAIR, QUESTION, CHOICES) for n in f.columns} | {
    *("label", "sentence", "sentence1", "sentence2")
}
# The form of a column's name.
_NAME = re.compile(r"[^\W\d][\w.-]*")


def decoded(
    lines: Iterable[bytes], source: str
) -> Iterator[tuple[str, str, UserError | None]]:
    """Yields the location and text of each line, and what is wrong with it.

    A byte-order mark at the start of any line is left out, for files that begin
    with one may have been joined.
    Raises UserError for text in UTF-16 or UTF-32.
    """
    for number, line in enumerate(lines, start=1):
        location = f"{source}, line {number}"
        if number == 1:
            refuse_other_than_text(source, line)
        line = line.removeprefix(codecs.BOM_UTF8).removesuffix(END_OF_FILE)
        if not line:
            continue
        error = None
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as fault:
            text = line.decode("utf-8", "replace")
            error = UserError(
                f"{location}: byte {fault.start} is not UTF-8; convert it "
                "first."
            )
        yield location, text.rstrip("\n").rstrip("\r"), error


def read_lines(
    lines: Iterable[bytes], source: str, *, may_have_header: bool
) -> Inputs:
    """Returns the inputs in lines of text.

    The first line is read at once. Raises UserError where there is none, where
    it is in UTF-16, where lines end with CR alone, where it is JSON or the
    header of a table, and where a model of such files gets a file of words.
    """
    lines = iter(lines)
    head = next(lines, None)
    if head is None:
        raise UserError(f"{source} is empty.")
    found = decoded(itertools.chain([head], lines), source)
    first = next(found, (source, "", None))
    if may_have_header:
        refuse_line_ends(source, head.decode("utf-8", "replace"))
        require(
            not JSON_START.match(first[1]),
            f"{source}, line 1: {shown(first[1])} is JSON, and no text; end "
            "the file's name with .jsonl, or give --input_format=jsonl, to "
            "read its values; --input_format=text reads each line as a text.",
        )
        _refuse_header(first[1], source, ())

    def inputs(form: Form, columns: Sequence[str] = ()) -> Iterator[Input]:
        head = [first]
        if may_have_header:
            _refuse_header(first[1], source, columns)
            if source != "-" and (width := width_of_words(columns)):
                head += itertools.islice(found, HEAD - 1)
                refuse_words([line[1] for line in head], source, width)
        for location, text, error in itertools.chain(head, found):
            texts = tuple(text.split("\t", form.tabs)) if form.tabs else (text,)
            if error:
                yield Input(texts, error)
            else:
                yield form.checked(texts, location)

    return Inputs(inputs)


def _refuse_header(line: str, source: str, columns: Sequence[str]) -> None:
    """Raises UserError for a line that names columns.

    It names nothing but known columns; or several, among them a known one in
    letters of any case; or those of the model's texts, which are among
    `columns`.
    """
    names = [n.strip(' "') for n in re.split(r"[\t,;]", line)]
    pairs = [column.partition("=")[::2] for column in columns]
    of_model = {name for role, name in pairs if role not in UNREAD_ROLES}
    is_header = _NAMES.issuperset(names)
    is_header |= bool(of_model) and of_model.issubset(names)
    if len(names) > 1 and all(map(_NAME.fullmatch, names)):
        is_header |= not _NAMES.isdisjoint(map(str.lower, names))
    require(
        not is_header,
        f"{source}, line 1: {listed(names, 12)} is the header of a table, and "
        f"no text; end the file's name with {' or '.join(EXTENSIONS)}, or "
        "give --input_format, to read its columns; --input_format=text reads "
        "the line as a text.",
    )
