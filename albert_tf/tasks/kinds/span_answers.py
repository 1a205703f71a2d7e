"""From scores of spans to answers, files of them, and measures."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError
from albert_tf.tasks.examples import Question
from albert_tf.tasks.metrics.squad import scores_v1, scores_v2

Span = tuple[int, int, float]


@dataclasses.dataclass(frozen=True)
class QuestionScores:
    """What a model says of one question.

    Attributes:
        spans: first character of the paragraph, the one after the last, and a
            score; best first, no two of the same characters.
        no_answer: how much speaks for there being no answer; None where
            there always is one (SQuAD 1.1).
    """

    spans: tuple[Span, ...]
    no_answer: float | None


def best_spans(
    starts: np.ndarray, ends: np.ndarray, scores: np.ndarray, count: int
) -> tuple[Span, ...]:
    """Returns the best spans, each with its best score.

    Of equal scores, what starts and then what ends first goes first.

    Args:
        starts: first characters, `[spans]`.
        ends: characters after the last, `[spans]`.
        scores: `[spans]`.
        count: of spans at most.
    """
    order = np.lexsort((ends, starts, -scores))
    spans: dict[tuple[int, int], float] = {}
    for start, end, score in zip(
        starts[order].tolist(),
        ends[order].tolist(),
        scores[order].tolist(),
        strict=True,
    ):
        spans.setdefault((start, end), score)
        if len(spans) == count:
            break
    return tuple((*span, score) for span, score in spans.items())


def ensemble_scores(members: Sequence[QuestionScores]) -> QuestionScores:
    """Returns the mean of what several models say of one question.

    A span that a model does not have counts there as the worst one it has; a
    model without any has no say in spans. As many spans are kept as the model
    with most of them has.
    """
    tables = [
        {(start, end): score for start, end, score in member.spans}
        for member in members
        if member.spans
    ]
    means = {
        span: float(
            np.mean([table.get(span, min(table.values())) for table in tables])
        )
        for span in dict.fromkeys(span for table in tables for span in table)
    }
    best = sorted(means, key=lambda span: (-means[span], span))
    kept = best[: max(map(len, tables), default=0)]
    no_answer = None
    if members[0].no_answer is not None:
        no_answer = float(np.mean([member.no_answer for member in members]))
    return QuestionScores(
        tuple((*span, means[span]) for span in kept), no_answer
    )


def answer_text(question: Question, span: Span) -> str:
    """Returns the characters of the paragraph that a span is."""
    return question.context[span[0] : span[1]]


def is_unanswered(scores: QuestionScores, null_threshold: float) -> bool:
    """Returns whether the answer is that there is none.

    What is on the threshold is answered: the one rule, as in the official
    script. google-research/albert tunes with it, and leaves the question
    that the threshold came from unanswered when it writes.
    """
    none = scores.no_answer
    return not scores.spans or (none is not None and none > null_threshold)


def predictions(
    questions: Sequence[Question],
    scores: Sequence[QuestionScores],
    null_threshold: float = 0.0,
) -> dict[str, str]:
    """Returns the answers by the questions' ids: predictions.json.

    "" where there is no answer (version 2.0), and where the model has no
    span to offer, for which google-research/albert says "empty" in version
    1.1; no gold answer is either.
    """
    return {
        question.id: ""
        if is_unanswered(row, null_threshold)
        else answer_text(question, row.spans[0])
        for question, row in zip(questions, scores, strict=True)
    }


def null_odds(
    questions: Sequence[Question], scores: Sequence[QuestionScores]
) -> dict[str, float]:
    """Returns how much speaks for no answer, by id: null_odds.json.

    Of version 2.0 alone.
    """
    return {
        question.id: row.no_answer
        for question, row in zip(questions, scores, strict=True)
    }


def nbest(
    questions: Sequence[Question], scores: Sequence[QuestionScores]
) -> dict[str, list[dict[str, Any]]]:
    """Returns the likeliest answers by id: nbest_predictions.json.

    Each is `text`, `probability` and `score`, best first and no text twice.
    The probabilities add up to 1. In version 2.0 they are given that there is
    an answer times the probability of that; at the end stands "", whose
    score is the null odds and whose probability their sigmoid (1 where there
    is no span). Which of the two wins is the null threshold's to say.
    """
    return {
        question.id: likeliest(question, row)
        for question, row in zip(questions, scores, strict=True)
    }


def likeliest(
    question: Question, scores: QuestionScores
) -> list[dict[str, Any]]:
    """Returns the entries of `nbest` of one question."""
    texts: dict[str, float] = {}
    for span in scores.spans:
        texts.setdefault(answer_text(question, span), span[2])
    none = 0.0
    if scores.no_answer is not None:
        none = _sigmoid(scores.no_answer) if texts else 1.0
    highest = max(texts.values(), default=0.0)
    powers = [math.exp(score - highest) for score in texts.values()]
    total = sum(powers)
    entries = [
        {
            "text": text,
            "probability": (1.0 - none) * power / total,
            "score": score,
        }
        for (text, score), power in zip(texts.items(), powers, strict=True)
    ]
    if scores.no_answer is not None:
        entries.append(
            {"text": "", "probability": none, "score": scores.no_answer}
        )
    return entries


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(0.5 * x))


def compute_metrics(
    questions: Sequence[Question],
    scores: Sequence[QuestionScores],
    null_threshold: float = 0.0,
) -> dict[str, float]:
    """Returns the official measures of the answers, in percent.

    Version 1.1: those of `scores_v1`. Version 2.0: those of `scores_v2`;
    `best_f1`, what the best threshold for these very questions gives, and
    that threshold, `best_f1_thresh`: with it `predictions` has just this F1.
    The official script's own threshold does not where questions have equal
    odds, nor where nothing should be answered. `majority_class_exact` and
    `_f1` are those of never answering.

    Raises:
        UserError: for questions whose answers are not told.
    """
    for question in questions:
        if question.answers is None:
            raise UserError(
                f"{question.location} does not tell its answers; it can be "
                "answered, and not scored."
            )
    found = predictions(questions, scores, null_threshold)
    if scores[0].no_answer is None:
        return scores_v1(questions, found)
    threshold = _best_threshold(questions, scores)
    best = scores_v2(questions, predictions(questions, scores, threshold))
    guess = scores_v2(questions, dict.fromkeys(found, ""))
    return scores_v2(questions, found) | {
        "best_f1": best["f1"],
        "best_f1_thresh": threshold,
        "majority_class_exact": guess["exact"],
        "majority_class_f1": guess["f1"],
    }


def _best_threshold(
    questions: Sequence[Question], scores: Sequence[QuestionScores]
) -> float:
    """Returns the lowest of the null thresholds whose F1 is the best.

    Midway between two questions: computed elsewhere, or in other batches, the
    last digits of their odds differ.
    """
    odds = np.array([row.no_answer for row in scores])
    answers = predictions(questions, scores, math.inf)
    gains = np.array([_gain(q, answers[q.id]) for q in questions])
    # Questions of equal odds are answered together or not at all.
    thresholds, group = np.unique(odds, return_inverse=True)
    totals = np.cumsum(np.bincount(group, weights=gains))
    best = int(totals.argmax())
    if totals[best] <= 0:
        # Nothing is answered.
        return float(thresholds[0] - 1.0)
    if best + 1 == len(thresholds):
        return float(thresholds[best] + 1.0)
    low, high = thresholds[best : best + 2]
    middle = low + (high - low) / 2
    # They may be neighbours among the numbers that there are.
    return float(middle if middle < high else low)


def _gain(question: Question, answer: str) -> float:
    """Returns how much F1 an answer gives beyond that of none."""
    given, none = (
        scores_v2([question], {question.id: text})["f1"]
        for text in (answer, "")
    )
    return given - none
