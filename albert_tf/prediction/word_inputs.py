"""Files with a word in each line, CoNLL's, as inputs of predictions.

Main entry: `read_sentences`.
"""

import re
from collections.abc import Iterator, Sequence

from albert_tf.config import Log, UserError, require
from albert_tf.prediction.forms import Form, Input
from albert_tf.prediction.input_columns import words_input
from albert_tf.prediction.inputs import Inputs
from albert_tf.tasks.formats.conll import (
    first_columns,
    is_conllu,
    read_untagged,
)

# Lines by which a file of words is recognised, and the fewest that suffice.
HEAD, _FEW_WORDS = 200, 5


def read_sentences(
    path: str, columns: Sequence[str] = (), log: Log = print
) -> Inputs:
    """Returns the sentences of a file in CoNLL's format, without its tags.

    Words are in the column that `columns` (as `word=1`) or else the model's
    task names; where neither does, in the first. A line says which, unless
    it is named, the first in fine-tuning, or that of CoNLL-U.
    """
    chosen = _word_column(columns)

    def inputs(form: Form, of_model: Sequence[str] = ()) -> Iterator[Input]:
        word = int(chosen or _column_of_model(path, of_model, log))
        for text, found in read_untagged(path, word, log):
            if isinstance(found, UserError):
                yield Input((text,), found)
                continue
            try:
                yield words_input(found.words, found.location, form)
            except UserError as error:
                yield Input((" ".join(found.words),), error)

    return Inputs(inputs)


def _column_of_model(path: str, of_model: Sequence[str], log: Log) -> str:
    """Returns the column of the words where --columns names none."""
    roles = dict(column.split("=", 1) for column in of_model)
    word, tag = roles.get("word", ""), roles.get("tag", "-1")
    if word == "0" or is_conllu(path):
        return word or "0"
    fields = first_columns(path)
    if len(fields) < 2:
        return word or "0"
    reason = "as in fine-tuning"
    if not word:
        word, reason = "0", "as the model has no record of another"
    elif word == "1" and int(tag) >= len(fields) and fields[0] != "1":
        # Words of CoNLL-U stand behind their numbers.
        word, reason = "0", "as it has other columns than in fine-tuning"
    log(
        f"{path}: the words are read from column {word} of {len(fields)}, "
        f"{reason}; --columns=word={int(word == '0')} reads another."
    )
    return word


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
