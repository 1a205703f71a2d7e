"""Where gold answers stand in their paragraphs, offsets that err put right."""

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
    """Where the first answer of each question stands.

    Attributes:
        spans: first character and the one after the last, by the question's
            id; of every answer that was found.
        moved: the places of questions whose answer stands elsewhere than the
            file says.
        respelled: the same for answers whose text stands in the paragraph in
            other case, with other accents, or with other spaces only.
        missing: the same for answers that are not in the paragraph.
    """

    spans: Mapping[str, _Span]
    moved: tuple[str, ...]
    respelled: tuple[str, ...]
    missing: tuple[str, ...]

    def warnings(self) -> list[str]:
        """Returns a line for each sort of error, with the first few places."""
        return [
            f"{len(places)} questions have an answer that {what}: "
            f"{_some(places)}."
            for places, what in (
                (
                    self.moved,
                    "does not stand at its answer_start; the nearest place "
                    "where it does is taken",
                ),
                (
                    self.respelled,
                    "stands in the paragraph in another spelling only; that "
                    "is taken",
                ),
                (self.missing, "does not stand in the paragraph at all"),
            )
            if places
        ]

    def refuse_missing(self) -> None:
        """Raises UserError, with the first few places, if any is missing."""
        if self.missing:
            raise UserError(
                f"The answers of {len(self.missing)} questions do not stand "
                f"in their paragraphs: {_some(self.missing)}; correct these "
                "answers or "
                "remove the questions, training would teach wrong ones."
            )


def _some(places: Sequence[str]) -> str:
    named = "; ".join(places[:_NAMED])
    return f"{named}, and others" if len(places) > _NAMED else named


def check_answers(questions: Sequence[Question]) -> AnswerCheck:
    """Returns where each question's first answer stands.

    An answer that is not where the file says is where the same text stands
    nearest to it, or else the same text but for case, accents and spaces.
    """
    spans: dict[str, _Span] = {}
    places: dict[str, list[str]] = collections.defaultdict(list)
    for question in questions:
        if not question.answers:
            continue
        how, span = _found(question.answers[0], question.context)
        places[how].append(question.location)
        if span is not None:
            spans[question.id] = span
    moved, respelled, missing = (
        tuple(places[how]) for how in ("moved", "respelled", "missing")
    )
    return AnswerCheck(spans, moved, respelled, missing)


def _found(answer: Answer, context: str) -> tuple[str, _Span | None]:
    """Returns how the answer was found, and its characters."""
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


def _nearest(wanted: str, text: str, place: int) -> int | None:
    """Returns where `wanted` begins nearest to a place, the first of two."""
    place = max(place, 0)
    after = text.find(wanted, place)
    head = text[: place + len(wanted) - 1]
    # Turned around, for str.rfind is not linear.
    turned = head[::-1].find(wanted[::-1])
    before = len(head) - len(wanted) - turned
    found = [before] * (turned >= 0) + [after] * (after >= 0)
    return min(found, key=lambda start: abs(start - place), default=None)


def _respelled(answer: Answer, context: str) -> _Span | None:
    text, places = _simplified(context)
    wanted = _simplified(answer.text)[0].strip()
    if not wanted:
        return None
    place = bisect.bisect_left(places, answer.start)
    start = _nearest(wanted, text, place)
    if start is None:
        return None
    return places[start], places[start + len(wanted) - 1] + 1


def _simplified(text: str) -> tuple[str, list[int]]:
    """Returns a text without case, accents and superfluous spaces.

    And of which character of the text each of its characters is.
    """
    characters: list[str] = []
    places = []
    for place, character in enumerate(text):
        for part in _simple(character):
            if part == " " and characters and characters[-1] == " ":
                continue
            characters.append(part)
            places.append(place)
    return "".join(characters), places


@functools.lru_cache(maxsize=4096)
def _simple(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character).casefold()
    return "".join(
        " " if part.isspace() else part
        for part in unicodedata.normalize("NFKD", parts)
        if not unicodedata.category(part).startswith("M")
    )
