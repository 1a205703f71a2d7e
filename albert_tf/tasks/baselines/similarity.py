"""Answers and choices by their TF-IDF similarity with the question."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.examples import ChoiceExample, Question
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.question_answering import AnswerableSpans
from albert_tf.tasks.kinds.span_answers import QuestionScores, best_threshold
from albert_tf.text.terms import TERM

# A sentence with the mark that ends it: before a blank and no small letter, or
# of scripts without blanks.
_SENTENCE = re.compile(
    r"""\S.*?(?:[.!?]+["')\]”’]*(?=\s+[^\sa-z]|\s*$)|[。！？]+|(?=\s*$))""",
    re.DOTALL,
)


def choice_similarities(
    kind: Kind,
    train: Sequence[ChoiceExample],
    held_out: Sequence[ChoiceExample],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the similarity of choices and contexts, `[examples, choices]`."""
    weights = _weights(text for example in train for text in example.texts)
    contexts = weights.transform(example.context for example in held_out)
    columns = zip(*(example.choices for example in held_out), strict=True)
    similarities = [
        _similarity(contexts, weights.transform(column)) for column in columns
    ]
    return np.stack(similarities, axis=1)


def best_sentences(
    kind: Kind,
    train: Sequence[Question],
    held_out: Sequence[Question],
    labels: Sequence[str],
) -> np.ndarray:
    """Returns the sentence most like each question, `[questions, 3]`.

    Its first character, the one after its last, and a score of there being no
    answer: minus the similarity, moved so that 0 is the threshold of the best
    F1 of the training questions; NaN in SQuAD 1.1.
    """
    weights = _weights(
        text
        for example in train
        for text in (example.question, example.context)
    )
    found = _best_sentences(weights, held_out)
    if not isinstance(kind, AnswerableSpans):
        found[:, 2] = np.nan
        return found
    known = sentence_scores(train, _best_sentences(weights, train), labels)
    found[:, 2] -= best_threshold(train, known)
    return found


def sentence_scores(
    questions: Sequence[Question], found: np.ndarray, labels: Sequence[str]
) -> list[QuestionScores]:
    """Returns scores of the only answer to questions, `[questions, 3]`."""
    return [
        QuestionScores(
            ((int(start), int(end), 0.0),),
            None if np.isnan(no_answer) else float(no_answer),
        )
        for start, end, no_answer in found
    ]


def _weights(texts: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    # Paragraphs and articles have many questions.
    vectorizer = TfidfVectorizer(token_pattern=TERM, sublinear_tf=True)
    return vectorizer.fit(dict.fromkeys(texts))


def _similarity(first: Any, second: Any) -> np.ndarray:
    """Returns the cosine of two sparse matrices' rows, `[rows]`."""
    return np.asarray(first.multiply(second).sum(axis=1)).ravel()


def _best_sentences(weights: Any, questions: Sequence[Question]) -> np.ndarray:
    contexts = {question.context for question in questions}
    spans_of = {
        context: [m.span() for m in _SENTENCE.finditer(context)] or [(0, 0)]
        for context in contexts
    }
    spans = [spans_of[question.context] for question in questions]
    counts = [len(of_question) for of_question in spans]
    sentences = [
        question.context[start:end]
        for question, of_question in zip(questions, spans, strict=True)
        for start, end in of_question
    ]
    asked = weights.transform(question.question for question in questions)
    similarity = _similarity(
        asked[np.repeat(np.arange(len(questions)), counts)],
        weights.transform(sentences),
    )
    rows = np.split(similarity, np.cumsum(counts)[:-1])
    return np.array(
        [
            (*of_question[row.argmax()], -row.max())
            for of_question, row in zip(spans, rows, strict=True)
        ]
    )
