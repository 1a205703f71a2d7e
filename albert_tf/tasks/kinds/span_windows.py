"""Long paragraphs as overlapping windows: [CLS] question [SEP] part [SEP]."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, require
from albert_tf.tasks.examples import Question
from albert_tf.tasks.features import Features, flat
from albert_tf.tasks.metrics.squad import normalize_answer
from albert_tf.text.normalization import normalize, normalized_offsets
from albert_tf.text.tokenizer_base import Tokenizer

# [CLS] and two [SEP].
SPECIAL_TOKENS = 3
# The shortest window of a paragraph.
_MIN_PARAGRAPH_TOKENS = 8

_DECODING = ("char_starts", "char_ends", "max_context")
# The normalization of uncased models.
_UNCASED = {"do_lower_case": True, "keep_accents": False}


def check_lengths(config: FeatureConfig) -> None:
    """Raises UserError when max_seq_length has no room for a paragraph."""
    needed = config.max_query_length + SPECIAL_TOKENS + _MIN_PARAGRAPH_TOKENS
    require(
        config.max_seq_length >= needed,
        f"max_seq_length={config.max_seq_length} has no room for a question of "
        f"max_query_length={config.max_query_length} tokens and "
        f"{_MIN_PARAGRAPH_TOKENS} of a paragraph; set it to {needed} or more.",
    )


def find_answers(
    questions: Sequence[Question],
) -> tuple[dict[str, tuple[int, int]], list[str], list[str]]:
    """Returns the offsets of each question's first answer.

    First character and the one after the last, by the question's id; then
    the locations of questions whose answer is not at its answer_start, for
    which the nearest occurrence is returned (of the text, or else of the text
    with other case, accents and spaces), and of those whose answer is not in
    the paragraph.
    """
    spans: dict[str, tuple[int, int]] = {}
    moved, missing = [], []
    for question in questions:
        if not question.answers:
            continue
        text, start = question.answers[0].text, question.answers[0].start
        # A negative start would count from the end.
        is_there = start >= 0 and question.context.startswith(text, start)
        if is_there and text.strip():
            spans[question.id] = (start, start + len(text))
        elif places := _places(text.strip(), question.context):
            spans[question.id] = min(places, key=lambda p: abs(p[0] - start))
            moved.append(question.location)
        else:
            missing.append(question.location)
    return spans, moved, missing


def _places(text: str, context: str) -> list[tuple[int, int]]:
    """Returns the characters of a text's occurrences, as it is or similar."""
    if found := _occurrences(text, context):
        return [(start, start + len(text)) for start in found]
    text, plain = (normalize(t, **_UNCASED) for t in (text, context))
    starts, ends = normalized_offsets(context, **_UNCASED)
    places = []
    for start in _occurrences(text, plain):
        first, last = (
            at - plain.count(" ", 0, at)
            for at in (start, start + len(text) - 1)
        )
        places.append((starts[first], ends[last]))
    return places


def _occurrences(text: str, context: str) -> list[int]:
    """Returns where a text begins in another; nowhere if it is empty."""
    found: list[int] = []
    start = -1
    while text and (start := context.find(text, start + 1)) >= 0:
        found.append(start)
    return found


def window_features(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    config: FeatureConfig,
    spans: Mapping[str, tuple[int, int]],
    *,
    inputs: Sequence[str],
    targets: Sequence[str],
    decoding: bool,
) -> Features:
    """Returns a row for each window of each question, in order.

    The windows are those of google-research/albert's run_squad: as long as
    the question and max_seq_length allow, doc_stride apart; one at least,
    even on an empty paragraph. `spans` are the characters of each answer.

    Args:
        inputs: of `input_ids`, `segment_ids`, and `p_mask`, 1 where no answer
            can be: at the question, [SEP] and padding.
        targets: of `start_positions` and `end_positions` of the answer's
            tokens, and `is_impossible`; a window without all of them points
            at [CLS] and is `is_impossible`.
        decoding: add what predictions are made from: `char_starts` and
            `char_ends`, a token's characters without white space at either
            end, -1 outside of the paragraph; `max_context`, 1 in the window
            with the most context around the token.
    """
    check_lengths(config)
    queries = tokenizer.encode_batch([q.question for q in questions])
    # Many questions are on one paragraph.
    paragraphs = {
        context: _paragraph(context, tokenizer)
        for context in dict.fromkeys(q.context for q in questions)
    }
    rows: list[dict[str, Any]] = []
    numbers, truncated, answer_lengths = [], [], []
    for number, question in enumerate(questions):
        paragraph = paragraphs[question.context]
        query = queries[number][: config.max_query_length]
        span = spans.get(question.id)
        answer = paragraph.tokens(span)
        windows = list(_windows(len(paragraph.ids), len(query), config))
        answer_lengths.append(_answer_length(question, paragraph, windows))
        of_question = [
            _row(query, paragraph, window, answer, tokenizer)
            for window in windows
        ]
        rows += of_question
        numbers += [number] * len(windows)
        # An answer longer than every window, or of characters that the
        # tokenizer drops, is in none of them.
        lost = span is not None and all(
            row["is_impossible"] for row in of_question
        )
        if lost or len(queries[number]) > len(query):
            truncated.append(number)

    def tokens(names: Sequence[str]) -> dict[str, np.ndarray]:
        return {name: flat([row[name] for row in rows])[0] for name in names}

    return Features(
        sequences=tokens(inputs),
        offsets=flat([row["input_ids"] for row in rows])[1],
        scalars={
            name: np.array([row[name] for row in rows], np.int32)
            for name in targets
        },
        padding={"input_ids": tokenizer.pad_id, "p_mask": 1},
        example_numbers=np.array(numbers, np.int64),
        decoding=tokens(_DECODING) if decoding else {},
        truncated=truncated,
        answer_lengths=answer_lengths,
    )


@dataclasses.dataclass(frozen=True)
class _Paragraph:
    """A paragraph's tokens with their characters.

    `starts` and `ends` `[tokens]` leave out white space at either end; a
    token of nothing else ends before it starts, or where it does.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def tokens(self, span: tuple[int, int] | None) -> tuple[int, int] | None:
        """Returns the first and the last token of characters, if any."""
        if span is None:
            return None
        touched = np.flatnonzero(
            np.maximum(self.starts, span[0]) < np.minimum(self.ends, span[1])
        )
        return (touched[0], touched[-1]) if len(touched) else None


def _paragraph(context: str, tokenizer: Tokenizer) -> _Paragraph:
    encoding = tokenizer.encode_with_offsets(context)
    visible = np.flatnonzero([not c.isspace() for c in context])
    # The visible characters before each offset, and what follows them.
    starts = np.searchsorted(visible, encoding.starts)
    ends = np.searchsorted(visible, encoding.ends)
    return _Paragraph(
        np.array(encoding.ids, np.int32),
        np.append(visible, len(context))[starts],
        np.insert(visible + 1, 0, 0)[ends],
    )


@dataclasses.dataclass(frozen=True)
class _Window:
    """A part of a paragraph's tokens.

    `max_context` marks those with no more context in another window.
    """

    tokens: slice
    max_context: np.ndarray


def _windows(
    length: int, query_length: int, config: FeatureConfig
) -> Iterator[_Window]:
    """Yields the windows of a paragraph of `length` tokens."""
    room = config.max_seq_length - SPECIAL_TOKENS - query_length
    step = min(room, config.doc_stride)
    parts = [
        slice(begin, min(begin + room, length))
        for begin in range(0, max(length - room, 0) + step, step)
    ]
    best = np.full(length, -1.0)
    owner = np.zeros(length, np.int32)
    for number, part in enumerate(parts):
        left = np.arange(part.stop - part.start)
        context = np.minimum(left, left[::-1]) + 0.01 * len(left)
        # Ties go to the first window.
        better = context > best[part]
        best[part][better] = context[better]
        owner[part][better] = number
    for number, part in enumerate(parts):
        yield _Window(part, owner[part] == number)


def _answer_length(
    question: Question, paragraph: _Paragraph, windows: Sequence[_Window]
) -> int:
    """Returns the length of the shortest span that matches a gold answer.

    In tokens, of the spans that can be predicted; -1 if none can be, 0 without
    an answer.
    """
    if not question.answers:
        return 0
    # End of the window in which each token may begin an answer.
    limits = np.zeros(len(paragraph.ids), np.int64)
    for window in windows:
        limits[window.tokens][window.max_context] = window.tokens.stop
    lengths = [
        int(last - first + 1)
        for text in {answer.text.strip() for answer in question.answers}
        for place in _places(text, question.context)
        for first, last in _matches(
            text, paragraph.tokens(place), question.context, paragraph
        )
        if last < limits[first]
    ]
    return min(lengths, default=-1)


def _matches(
    text: str,
    tokens: tuple[int, int] | None,
    context: str,
    paragraph: _Paragraph,
) -> Iterator[tuple[int, int]]:
    """Yields the first and last tokens of exact matches of a gold answer.

    Its own `tokens`, and shorter matches within them: exact match disregards
    articles and punctuation.
    """
    wanted = normalize_answer(text)

    def matches(first: int, last: int) -> bool:
        start, end = paragraph.starts[first], paragraph.ends[last]
        return start < end and normalize_answer(context[start:end]) == wanted

    if tokens is None or not matches(*tokens):
        return
    first, last = tokens
    while first < last and matches(first, last - 1):
        last -= 1
    while first <= last and matches(first, last):
        yield first, last
        first += 1


def _row(
    query: list[int],
    paragraph: _Paragraph,
    window: _Window,
    answer: tuple[int, int] | None,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    front = [tokenizer.cls_id, *query, tokenizer.sep_id]
    part = paragraph.ids[window.tokens]
    input_ids = np.concatenate([front, part, [tokenizer.sep_id]])

    def of_paragraph(values: np.ndarray | int, outside: int) -> np.ndarray:
        everywhere = np.full(len(input_ids), outside, np.int32)
        everywhere[len(front) : -1] = values
        return everywhere

    p_mask = of_paragraph(0, 1)
    p_mask[0] = 0
    first = last = 0
    begin, end = window.tokens.start, window.tokens.stop
    is_inside = answer and begin <= answer[0] and answer[1] < end
    if answer and is_inside:
        first, last = (n + len(front) - begin for n in answer)
    return {
        "input_ids": input_ids,
        "segment_ids": np.arange(len(input_ids)) >= len(front),
        "p_mask": p_mask,
        "char_starts": of_paragraph(paragraph.starts[window.tokens], -1),
        "char_ends": of_paragraph(paragraph.ends[window.tokens], -1),
        "max_context": of_paragraph(window.max_context, 0),
        "start_positions": first,
        "end_positions": last,
        "is_impossible": not is_inside,
    }
