"""Offsets of gold answers in their paragraphs, checked and corrected."""

import bisect
import collections
import dataclasses
import functools
import unicodedata
from collections.abc import Mapping, Sequence

from albert_tf.config import UserError
from albert_tf.tasks.examples import Answer, Question

_NAMED = 3
_Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class AnswerCheck:
    """The offsets of the first answer of each question.

    Attributes:
        spans: first character and the one after the last, by the question's
            id; of every answer that was found.
        moved: locations of questions whose answer is not at its answer_start.
        respelled: of those whose answer is in the paragraph only with other
            case, accents or spaces.
        missing: of those whose answer is not in the paragraph.
    """

    spans: Mapping[str, _Span]
    moved: tuple[str, ...]
    respelled: tuple[str, ...]
    missing: tuple[str, ...]

    def warnings(self) -> list[str]:
        """Returns a line for each kind of error, with the first locations."""
        return [
            f"{len(locations)} questions have an answer that {what}: "
            f"{_first(locations)}."
            for locations, what in (
                (
                    self.moved,
                    "is not at its answer_start; its nearest occurrence is "
                    "used",
                ),
                (
                    self.respelled,
                    "is in the paragraph only with other case, accents or "
                    "spaces; that is used",
                ),
                (self.missing, "is not in the paragraph"),
            )
            if locations
        ]

    def refuse_missing(self) -> None:
        """Raises UserError, with the first locations, if any is missing."""
        if self.missing:
            raise UserError(
                f"The answers of {len(self.missing)} questions are not in "
                f"their paragraphs: {_first(self.missing)}; correct these "
                "answers or remove the questions before training."
            )


def _first(locations: Sequence[str]) -> str:
    named = "; ".join(locations[:_NAMED])
    return f"{named}, and others" if len(locations) > _NAMED else named


def check_answers(questions: Sequence[Question]) -> AnswerCheck:
    """Returns the offsets of each question's first answer.

    Where the file is wrong, those of the nearest occurrence of the text, or
    else of the text with other case, accents and spaces.
    """
    spans: dict[str, _Span] = {}
    locations: dict[str, list[str]] = collections.defaultdict(list)
    for question in questions:
        if not question.answers:
            continue
        how, span = _found(question.answers[0], question.context)
        locations[how].append(question.location)
        if span is not None:
            spans[question.id] = span
    moved, respelled, missing = (
        tuple(locations[how]) for how in ("moved", "respelled", "missing")
    )
    return AnswerCheck(spans, moved, respelled, missing)


def _found(answer: Answer, context: str) -> tuple[str, _Span | None]:
    """Returns the kind of match, and its characters."""
    text = answer.text
    if not text.strip():
        return "missing", None
    # A negative start would count from the end.
    if answer.start >= 0 and context.startswith(text, answer.start):
        return "exact", (answer.start, answer.start + len(text))
    start = _nearest(text, context, answer.start)
    if start is not None:
        return "moved", (start, start + len(text))
    span = _respelled(answer, context)
    return "missing" if span is None else "respelled", span


def _nearest(wanted: str, text: str, start: int) -> int | None:
    """Returns the occurrence of `wanted` nearest to `start`."""
    start = max(start, 0)
    after = text.find(wanted, start)
    head = text[: start + len(wanted) - 1]
    # Reversed, for str.rfind is not linear.
    from_end = head[::-1].find(wanted[::-1])
    before = len(head) - len(wanted) - from_end
    found = [before] * (from_end >= 0) + [after] * (after >= 0)
    return min(found, key=lambda place: abs(place - start), default=None)


def _respelled(answer: Answer, context: str) -> _Span | None:
    text, offsets = _simplified(context)
    wanted = _simplified(answer.text)[0].strip()
    if not wanted:
        return None
    start = _nearest(wanted, text, bisect.bisect_left(offsets, answer.start))
    if start is None:
        return None
    return offsets[start], offsets[start + len(wanted) - 1] + 1


def _simplified(text: str) -> tuple[str, list[int]]:
    """Returns a text without case, accents and superfluous spaces, and the
    offset of each of its characters in the text."""
    characters: list[str] = []
    offsets = []
    for offset, character in enumerate(text):
        for part in _simple(character):
            if part == " " and characters and characters[-1] == " ":
                continue
            characters.append(part)
            offsets.append(offset)
    return "".join(characters), offsets


@functools.lru_cache(maxsize=4096)
def _simple(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character).casefold()
    return "".join(
        " " if part.isspace() else part
        for part in unicodedata.normalize("NFKD", parts)
        if not unicodedata.category(part).startswith("M")
    )
