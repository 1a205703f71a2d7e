"""Files with a word in each line, CoNLL's, as inputs of predictions.

Main entry: `read_sentences`.
"""

import re
from collections.abc import Iterator, Sequence

from albert_tf.config import Log, UserError, require
from albert_tf.io.compression import plain_name
from albert_tf.prediction.forms import Form, Input
from albert_tf.prediction.input_columns import joined_words
from albert_tf.prediction.inputs import Inputs
from albert_tf.tasks.formats.conll import (
    CONLLU,
    count_columns,
    read_untagged,
)

# Lines by which a file of words is recognised, and the fewest that suffice.
HEAD, _FEW_WORDS = 200, 5


def read_sentences(
    path: str, columns: Sequence[str] = (), log: Log = print
) -> Inputs:
    """Returns the sentences of a file in CoNLL's format, without its tags.

    Words are in the column that `columns` (as `word=1`) or else the model's
    task names; where neither does, in the first, and a line says so.
    """
    chosen = _word_column(columns)

    def inputs(form: Form, of_model: Sequence[str] = ()) -> Iterator[Input]:
        roles = dict(column.split("=", 1) for column in of_model)
        word = chosen or roles.get("word")
        if word is None and not plain_name(path).lower().endswith(CONLLU):
            number = count_columns(path)
            if number > 1:
                log(
                    f"{path}: the words are read from column 0 of {number}, "
                    "as the model has no record of another; --columns=word=1 "
                    "reads the next."
                )
        for text, found in read_untagged(path, int(word or 0), log):
            if isinstance(found, UserError):
                yield Input((text,), found)
                continue
            try:
                text = joined_words(found.words, found.location)
            except UserError as error:
                yield Input((" ".join(found.words),), error)
            else:
                yield form.checked((text,), found.location)

    return Inputs(inputs)


def _word_column(columns: Sequence[str]) -> str | None:
    """Returns the number in `word=1`, None where no column is named."""
    word = None
    for column in columns:
        role, _, name = map(str.strip, column.partition("="))
        require(
            role in ("word", "tag")
            and re.fullmatch(r"-?[0-9]{1,3}", name) is not None,
            "--columns: expected word=N with the number of the words' column, "
            f"got {column!r}.",
        )
        if role == "word":
            word = name
    return word


def width_of_words(columns: Sequence[str]) -> int:
    """Returns the fewest columns of a task's files of words; 0: it has none."""
    roles = dict(column.split("=", 1) for column in columns)
    if "word" not in roles:
        return 0
    return max(2, *(int(number) + 1 for number in roles.values()))


def refuse_words(head: Sequence[str], source: str, width: int) -> None:
    """Raises UserError where all of the first lines have as many columns.

    At least `width`, with blank lines between sentences; lines of text have now
    more words and now fewer.
    """
    lines = [line for line in head if line.strip() and line[0] != "#"]
    number, *others = {len(line.split()) for line in lines} or {0}
    # Blank lines at both ends divide nothing.
    is_divided = "\n\n" in "\n".join(map(str.strip, head)).strip()
    if (
        len(lines) >= _FEW_WORDS
        and is_divided
        and not others
        and number >= width
    ):
        raise UserError(
            f"{source}: its first lines have {number} columns each, as in a "
            "file of words; --input_format=conll tags its words, and "
            "--input_format=text reads each line as a text."
        )
