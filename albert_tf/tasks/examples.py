"""Examples of tasks: one class for each form."""

import dataclasses

from albert_tf.config import UserError, shown


@dataclasses.dataclass(frozen=True)
class Example:
    """A text or a pair of texts with its label.

    `label` is the name of a class, or a number as it is written; None if
    unknown. `location` is file and line, for messages.
    """

    texts: tuple[str, ...]
    label: str | None
    location: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuses a string, whose characters would be used as texts."""
        _check_texts(self.texts)


@dataclasses.dataclass(frozen=True)
class MultiLabelExample:
    """A text or a pair of texts with any number of labels; None if unknown."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] | None
    location: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuses a string, whose characters would be used as texts."""
        _check_texts(self.texts)


def _check_texts(texts: tuple[str, ...]) -> None:
    if not isinstance(texts, tuple) or len(texts) not in (1, 2):
        raise UserError(
            f"An example's texts are {shown(texts)}; expected a "
            "tuple of one or two strings."
        )


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A context with two choices or more, of which one is right.

    `label` is the number of the right choice; None if unknown. `part` is the
    subset of the benchmark, which has metrics of its own: RACE's level.
    """

    context: str
    choices: tuple[str, ...]
    label: int | None
    location: str = dataclasses.field(default="", compare=False)
    id: str = ""
    part: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and the choices."""
        return (self.context, *self.choices)


@dataclasses.dataclass(frozen=True)
class WordsExample:
    """A sentence as a list of words, and a tag for each; None if unknown.

    `spans` are the first character of each word in `text`, and the one after
    its last; empty where the words are all that is known.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    location: str = dataclasses.field(default="", compare=False)
    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """A gold answer, and its offset according to the file."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question on a paragraph.

    `answers` are () where the paragraph has none (version 2.0); None if
    unknown.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None
    location: str
