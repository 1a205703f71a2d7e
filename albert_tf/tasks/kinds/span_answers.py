"""Answers to questions: from scores of spans to predictions and metrics."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.examples import Question
from albert_tf.tasks.metrics.squad import answer_scores, scores_v1, scores_v2

Span = tuple[int, int, float]


@dataclasses.dataclass(frozen=True)
class QuestionScores:
    """Scores of the answers to one question.

    Attributes:
        spans: first character of the paragraph, the one after the last, and a
            score; best first, no two of the same characters.
        no_answer: score of there being no answer; None in SQuAD 1.1.
    """

    spans: tuple[Span, ...]
    no_answer: float | None


def best_spans(
    starts: np.ndarray, ends: np.ndarray, scores: np.ndarray, count: int
) -> tuple[Span, ...]:
    """Returns the best spans, each with its best score.

    Ties are ordered by start, then by end. Arrays are `[spans]`: first
    characters, those after the last, and scores.
    """
    order = np.lexsort((ends, starts, -scores))
    spans: dict[tuple[int, int], float] = {}
    rows = (values[order].tolist() for values in (starts, ends, scores))
    for start, end, score in zip(*rows, strict=True):
        spans.setdefault((start, end), score)
        if len(spans) == count:
            break
    return tuple((*span, score) for span, score in spans.items())


def ensemble_scores(members: Sequence[QuestionScores]) -> QuestionScores:
    """Returns the mean scores of several models for one question.

    A span that a model lacks is scored there like its worst one; models
    without spans are left out of the mean. The result has as many spans as
    the member with the most.
    """
    tables = [
        {(start, end): score for start, end, score in member.spans}
        for member in members
        if member.spans
    ]
    means = [
        (*span, float(np.mean([t.get(span, min(t.values())) for t in tables])))
        for span in {span for table in tables for span in table}
    ]
    means.sort(key=lambda span: (-span[2], span))
    most = max(map(len, tables), default=0)
    no_answer = None
    if members[0].no_answer is not None:
        no_answer = float(np.mean([member.no_answer for member in members]))
    return QuestionScores(tuple(means[:most]), no_answer)


def is_unanswered(scores: QuestionScores, null_threshold: float) -> bool:
    """Returns whether the prediction is that there is no answer.

    At the threshold itself a question is answered, as in the official script.
    """
    none = scores.no_answer
    return not scores.spans or (none is not None and none > null_threshold)


def answer(
    question: Question, scores: QuestionScores, null_threshold: float
) -> str:
    """Returns the answer; "" for none.

    Also where the model has no span in version 1.1, for which
    google-research/albert writes "empty".
    """
    if is_unanswered(scores, null_threshold):
        return ""
    start, end, _ = scores.spans[0]
    return question.context[start:end]


def predictions(
    questions: Sequence[Question],
    scores: Sequence[QuestionScores],
    null_threshold: float = 0.0,
) -> dict[str, str]:
    """Returns the answers by the questions' ids: predictions.json."""
    return {
        question.id: answer(question, row, null_threshold)
        for question, row in zip(questions, scores, strict=True)
    }


def prediction_fields(
    question: Question, answer: str, probability: float
) -> dict[str, Any]:
    """Returns a question's line in predictions.jsonl, without its golds."""
    return {
        "id": question.id,
        "question": question.question,
        "context": question.context,
        "prediction": answer,
        "probability": probability,
    }


def nbest(question: Question, scores: QuestionScores) -> list[dict[str, Any]]:
    """Returns a question's entry in nbest_predictions.json.

    `text`, `probability` and `score` of distinct answers, best first; the
    probabilities add up to 1. In version 2.0 they are multiplied by the
    probability of there being an answer, and "" comes last, with the null
    odds as its score and their sigmoid as its probability (1 without spans),
    whatever the null threshold decides.
    """
    texts: dict[str, float] = {}
    for start, end, score in scores.spans:
        texts.setdefault(question.context[start:end], score)
    none = 0.0
    if scores.no_answer is not None:
        # The sigmoid, without overflow.
        none = 0.5 * (1.0 + math.tanh(0.5 * scores.no_answer))
        none = none if texts else 1.0
    highest = max(texts.values(), default=0.0)
    powers = [math.exp(score - highest) for score in texts.values()]
    total = sum(powers)
    entries = [
        {
            "text": text,
            "probability": (1 - none) * power / total,
            "score": score,
        }
        for (text, score), power in zip(texts.items(), powers, strict=True)
    ]
    if scores.no_answer is not None:
        entries.append(
            {"text": "", "probability": none, "score": scores.no_answer}
        )
    return entries


def compute_metrics(
    questions: Sequence[Question],
    scores: Sequence[QuestionScores],
    null_threshold: float = 0.0,
) -> dict[str, float]:
    """Returns the official metrics of the answers, in percent.

    Version 1.1: `scores_v1`. Version 2.0: `scores_v2`, and `best_f1` with its
    threshold, `best_f1_thresh`: with it `predictions` has exactly this F1.
    (The official script's threshold does not reproduce its best F1 where null
    odds tie, or where answering nothing is best.) `majority_class_exact` and
    `_f1` are those of never answering.
    """
    found = predictions(questions, scores, null_threshold)
    if scores[0].no_answer is None:
        return scores_v1(questions, found)
    threshold = best_threshold(questions, scores)
    best = scores_v2(questions, predictions(questions, scores, threshold))
    guess = scores_v2(questions, dict.fromkeys(found, ""))
    return scores_v2(questions, found) | {
        "best_f1": best["f1"],
        "best_f1_thresh": threshold,
        "majority_class_exact": guess["exact"],
        "majority_class_f1": guess["f1"],
    }


def scores_of_each(
    questions: Sequence[Question],
    scores: Sequence[QuestionScores],
    null_threshold: float = 0.0,
) -> dict[str, np.ndarray]:
    """Returns exact match and F1 of each question, in percent, by name."""
    found = predictions(questions, scores, null_threshold)
    is_first = scores[0].no_answer is None
    names = ("exact_match" if is_first else "exact", "f1")
    official = scores_v1 if is_first else scores_v2
    rows = [official([question], found) for question in questions]
    return {name: np.array([row[name] for row in rows]) for name in names}


def best_threshold(
    questions: Sequence[Question], scores: Sequence[QuestionScores]
) -> float:
    """Returns the lowest of the null thresholds whose F1 is the best.

    Midway between two questions: computed elsewhere, or in other batches, the
    last digits of their odds differ.
    """
    odds = np.array([row.no_answer for row in scores])
    # The F1 that each answer adds to that of none.
    gains = []
    for question, row in zip(questions, scores, strict=True):
        text = answer(question, row, math.inf)
        gains.append(
            100.0 * answer_scores(question, text)[1]
            - 100.0 * answer_scores(question, "")[1]
        )
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
