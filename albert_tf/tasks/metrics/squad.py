"""Exact match and F1 of SQuAD answers, as the official scripts compute them.

Equal to the last digit: sums run in the order of the questions, as in each
script. A question without a prediction scores 0, as in the script of
version 1.1; that of version 2.0 stops there.
"""

import collections
import re
import string
from collections.abc import Mapping, Sequence

from albert_tf.config import UserError
from albert_tf.tasks.examples import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Returns the answer in lower case, without ASCII punctuation, articles
    and superfluous spaces."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(gold: str, prediction: str) -> int:
    """Returns 1 if the normalised answers are equal, else 0."""
    return int(normalize_answer(gold) == normalize_answer(prediction))


def token_f1(gold: str, prediction: str) -> float:
    """Returns F1 over the words of the normalised answers.

    0 where either has no words (version 1.1). That is an int, as in the
    scripts: from Python 3.12 on sums of floats are rounded differently.
    """
    gold_words = normalize_answer(gold).split()
    words = normalize_answer(prediction).split()
    common = collections.Counter(gold_words) & collections.Counter(words)
    same = sum(common.values())
    if not same:
        return 0
    precision, recall = same / len(words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def scores_v1(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns `exact_match` and `f1` in percent, of the best gold answer.

    `predictions` are answers by the questions' ids. Raises UserError for a
    question that has no gold answer.
    """
    exact = f1 = 0.0
    for question in questions:
        if not question.answers:
            raise UserError(
                f"{question.location} has no answer; score such files with "
                "--task=SQuAD2.0."
            )
        if question.id not in predictions:
            continue
        prediction = predictions[question.id]
        golds = [answer.text for answer in question.answers]
        # One by one, as the script does: `sum` rounds differently.
        exact += max(exact_match(gold, prediction) for gold in golds)
        f1 += max(token_f1(gold, prediction) for gold in golds)
    return {
        "exact_match": 100.0 * exact / len(questions),
        "f1": 100.0 * f1 / len(questions),
    }


def answer_scores(question: Question, prediction: str) -> tuple[float, float]:
    """Returns exact match and F1 of an answer, "" for none (version 2.0).

    Of the best gold answer; those that normalise to nothing do not count.
    """
    golds = [
        answer.text
        for answer in question.answers or ()
        if normalize_answer(answer.text)
    ] or [""]
    exact = [exact_match(gold, prediction) for gold in golds]
    f1 = [token_f1(gold, prediction) for gold in golds]
    # F1 is 1 where neither has words; version 1.1 has 0 there.
    return max(exact), max(a or b for a, b in zip(f1, exact, strict=True))


def scores_v2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """Returns the official metrics in percent, in the script's order.

    `exact`, `f1` and `total`, those of the questions with (`HasAns_`) and
    without an answer (`NoAns_`), and, with null_odds, the best metrics of any
    threshold with that threshold (`best_`): not a result, since it is chosen
    on these very questions.

    `predictions` are answers by the question's id, "" for none; `null_odds`
    scores of there being no answer, by id. Above `threshold` an answer counts
    as none. Raises UserError for a prediction whose null odds are missing.
    """
    odds = dict.fromkeys(predictions, 0.0) if null_odds is None else null_odds
    has_answer = {q.id: bool(q.answers) for q in questions}
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    for question in questions:
        prediction = predictions.get(question.id)
        if prediction is None:
            exact[question.id], f1[question.id] = 0, 0
            continue
        if question.id not in odds:
            raise UserError(
                f"{question.location} has a prediction and no null odds; give "
                "files of one model's answers."
            )
        exact[question.id], f1[question.id] = answer_scores(
            question, prediction
        )

    def decided(scores: Mapping[str, float]) -> dict[str, float]:
        return {
            id_: float(not has_answer[id_])
            if id_ in predictions and odds[id_] > threshold
            else score
            for id_, score in scores.items()
        }

    rows = {"exact": decided(exact), "f1": decided(f1)}
    result: dict[str, float] = {}
    for prefix, kept in (
        ("", (True, False)),
        ("HasAns_", (True,)),
        ("NoAns_", (False,)),
    ):
        ids = [id_ for id_, has in has_answer.items() if has in kept]
        if ids:
            for name, scores in rows.items():
                total = sum(scores[id_] for id_ in ids)
                result[f"{prefix}{name}"] = 100.0 * total / len(ids)
            result[f"{prefix}total"] = len(ids)
    if null_odds is not None:
        for name, scores in (("exact", exact), ("f1", f1)):
            best, at = _best(scores, predictions, null_odds, has_answer)
            result |= {f"best_{name}": best, f"best_{name}_thresh": at}
    return result


def _best(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    has_answer: Mapping[str, bool],
) -> tuple[float, float]:
    """Returns the best mean in percent of any threshold, and the threshold."""
    score = best = float(
        sum(not has_answer[id_] for id_ in predictions if id_ in has_answer)
    )
    best_threshold = 0.0
    for id_ in sorted(null_odds, key=lambda id_: null_odds[id_]):
        if id_ not in scores:
            continue
        # From here on this question is answered.
        if has_answer[id_]:
            score += scores[id_]
        elif predictions.get(id_):
            score -= 1
        if score > best:
            best, best_threshold = score, null_odds[id_]
    return 100.0 * best / len(scores), best_threshold
