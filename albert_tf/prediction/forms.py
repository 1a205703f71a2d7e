"""The texts that a prediction is made for: rows of a form, `Form`."""

import dataclasses
import sys
from typing import Any

from albert_tf.config import UserError
from albert_tf.tasks.bad_rows import EMPTY, RowError
from albert_tf.tasks.examples import WordsExample


@dataclasses.dataclass(frozen=True)
class Input:
    """The texts of a line or row; those of an error as far as they are known.

    `error` says why there can be no prediction, if so. `row` is that of a
    table, in its form. Texts without an error have their `location`. `words`
    are those of a text that is divided already.
    """

    texts: tuple[str, ...]
    error: UserError | None = None
    row: Any = dataclasses.field(default=None, compare=False)
    location: str = dataclasses.field(default="", compare=False)
    words: WordsExample | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class Form:
    """The texts that a prediction is made for.

    Attributes:
        columns: their names, in a table that is written, and by default in
            one that is read.
        counts: numbers of them.
        tabs: the most tabs between them on a line; -1: any number.
        expected: description of them, for messages.
        roles: of columns in --columns, in the order of the texts.
        optional: those of them that may be left out.
        needs_each: whether no text may be empty; else one may be.
    """

    columns: tuple[str, ...]
    counts: range
    tabs: int
    expected: str
    roles: tuple[str, ...] = ("text",)
    optional: tuple[str, ...] = ()
    needs_each: bool = False

    def checked(self, texts: tuple[str, ...], location: str) -> Input:
        """Returns the texts; with an error if empty or of another number."""
        is_enough = all if self.needs_each else any
        if not is_enough(map(str.strip, texts)):
            return Input(texts, RowError(location, EMPTY))
        if len(texts) in self.counts:
            return Input(texts, location=location)
        error = f"{location}: expected {self.expected}, got {len(texts)}."
        return Input(texts, UserError(error))


SINGLE = Form(("text",), range(1, 2), 0, "one text")
# Words that are divided already are a text as well.
WORDS = Form(
    ("text",),
    range(1, 2),
    0,
    "a text or a list of words",
    ("text", "words"),
    ("text", "words"),
)
PAIR = Form(
    ("text", "text_pair"),
    range(2, 3),
    -1,
    "a pair of texts with a tab between them",
)
# The form of a model whose task is not known.
SINGLE_OR_PAIR = Form(("text", "text_pair"), range(1, 3), 1, "a text or a pair")
# A paragraph may have tabs of its own.
QUESTION = Form(
    ("question", "context"),
    range(2, 3),
    1,
    "a question and its paragraph with a tab between them",
    ("question", "context"),
    needs_each=True,
)
CHOICES = Form(
    ("context", "choices"),
    range(3, sys.maxsize),
    -1,
    "a text and two choices or more with tabs between them",
    ("context", "question", "choice"),
    ("question",),
)
