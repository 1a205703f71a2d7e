"""Where gold answers stand in their paragraphs, offsets that err put right."""

import bisect
import collections
import dataclasses
import functools
import unicodedata
from collections.abc import Mapping, Sequence

from albert_tf.config import UserError
from albert_tf.tasks.squad import Answer, Question

_NAMED = 3
_Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class AnswerCheck:
    """Where the first answer of each question stands.

    Attributes:
        spans: first character and the one after the last, by the question's
            id; of every answer that was found.
        moved: answers that stand elsewhere than the file says.
        respelled: answers whose text stands in the paragraph in other case,
            with other accents, or with other spaces only.
        missing: the places of questions whose answer is not in the paragraph.
    """

    spans: Mapping[str, _Span]
    moved: int
    respelled: int
    missing: tuple[str, ...]

    def refuse_missing(self) -> None:
        """Raises UserError, with the first few places, if any is missing."""
        if self.missing:
            named = "; ".join(self.missing[:_NAMED])
            more = ", and others" if len(self.missing) > _NAMED else ""
            raise UserError(
                f"The answers of {len(self.missing)} questions do not stand "
                f"in their paragraphs: {named}{more}; correct these answers or "
                "remove the questions, training would teach wrong ones."
            )


def check_answers(questions: Sequence[Question]) -> AnswerCheck:
    """Returns where each question's first answer stands.

    An answer that is not where the file says is where the same text stands
    nearest to it, or else the same text but for case, accents and spaces.
    """
    spans: dict[str, _Span] = {}
    missing = []
    counts: collections.Counter[str] = collections.Counter()
    for question in questions:
        if not question.answers:
            continue
        how, span = _found(question.answers[0], question.context)
        counts[how] += 1
        if span is None:
            missing.append(question.place)
        else:
            spans[question.id] = span
    return AnswerCheck(
        spans, counts["moved"], counts["respelled"], tuple(missing)
    )


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
