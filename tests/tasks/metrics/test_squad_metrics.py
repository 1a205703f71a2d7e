"""Scores of answers, with numbers worked out by hand."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.metrics.squad import (
    answer_scores,
    normalize_answer,
    scores_v1,
    scores_v2,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat's, a-b.", "cats ab"),
        ("AN apple\tfor the theatre", "apple for theatre"),
        # ASCII punctuation alone; the word boundary knows other letters.
        ("«a» – naïve", "« » – naïve"),
        ("aé the", "aé"),
        ("the.", ""),
        (" ", ""),
    ],
)
def test_normalisation(text, normal):
    assert normalize_answer(text) == normal


def question(id_, *answers):
    return Question(
        id_, "?", "text", tuple(Answer(a, 0) for a in answers), f"place {id_}"
    )


@pytest.mark.parametrize(
    ("gold", "prediction", "exact", "f1", "f1_or_none"),
    [
        ("the cat", "Cat!", 1, 1.0, 1.0),
        # 2 words of 3 given and of 4 wanted: 2 · 2/3 · 1/2 / (2/3 + 1/2).
        ("b c d e", "b c x", 0, 4 / 7, 4 / 7),
        # A word counts as often as it is on both sides.
        ("x x y", "x x x", 0, 2 / 3, 2 / 3),
        ("b", "c", 0, 0.0, 0.0),
        ("", "the", 1, 0.0, 1.0),
        ("b", "", 0, 0.0, 0.0),
    ],
)
def test_one_answer(gold, prediction, exact, f1, f1_or_none):
    assert token_f1(gold, prediction) == pytest.approx(f1)
    found = answer_scores(question("", gold), prediction)
    assert found == (exact, pytest.approx(f1_or_none))
    # Or from Python 3.12 on sums differ from the script's in a last digit.
    assert type(found[1]) is (float if f1 else int)


def test_version_1():
    """The best of several answers; what is missing scores 0."""
    questions = [
        question("two", "red", "dark red wine"),
        question("empty", "red"),
        question("missing", "red"),
        question("right", "the sea"),
    ]
    found = scores_v1(
        questions,
        {"two": "dark wine", "empty": "", "right": "Sea"}
        | {f"extra {n}": "red" for n in range(3)},
    )
    assert list(found) == ["exact_match", "f1"]
    assert found["exact_match"] == 25.0
    # 2 words of 2 and of 3: 4/5.
    assert found["f1"] == pytest.approx(100 * (4 / 5 + 1) / 4)
    with pytest.raises(UserError, match=r"place n has no .* --task=SQuAD2\.0"):
        scores_v1([question("n")], {})


QUESTIONS = [
    question("right", "red"),
    question("wrong", "red", "blue"),
    question("none", *[]),
    question("asked", *[]),
    # What normalises to nothing is no answer to score by.
    question("dot", ".", "blue"),
]
ANSWERS = {
    "right": "red",
    "wrong": "sea",
    "none": "",
    "asked": "sea",
    "dot": "",
}


def test_version_2():
    found = scores_v2(QUESTIONS, ANSWERS)
    assert found == pytest.approx(
        {
            "exact": 40.0,
            "f1": 40.0,
            "total": 5,
            "HasAns_exact": 100 / 3,
            "HasAns_f1": 100 / 3,
            "HasAns_total": 3,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
            "NoAns_total": 2,
        }
    )
    assert list(found)[2:7] == [
        *("total", "HasAns_exact", "HasAns_f1", "HasAns_total", "NoAns_exact")
    ]
    assert "NoAns_total" not in scores_v2(QUESTIONS[:2], ANSWERS)
    assert "HasAns_total" not in scores_v2(QUESTIONS[2:4], ANSWERS)


def test_a_threshold_and_the_best_one():
    odds = {"right": -2.0, "wrong": 3.0, "none": 5.0, "asked": 3.0, "dot": 9.0}
    found = scores_v2(QUESTIONS, ANSWERS, odds, threshold=2.5)
    # Above 2.5 there is no answer: right for `none` and `asked` alone.
    assert found["exact"] == 60.0
    assert found["NoAns_exact"] == 100.0
    # Answering `right` alone would do: 2 questions have no answer.
    assert list(found)[-4:] == [
        *("best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh")
    ]
    assert (found["best_exact"], found["best_exact_thresh"]) == (60.0, -2.0)
    # At the threshold itself a question is answered.
    at = scores_v2(QUESTIONS, ANSWERS, odds, threshold=3.0)
    assert at["exact"] == scores_v2(QUESTIONS, ANSWERS)["exact"]
    del odds["asked"]
    with pytest.raises(UserError, match="place asked has a prediction and no"):
        scores_v2(QUESTIONS, ANSWERS, odds)


@pytest.mark.parametrize(
    ("order", "best"),
    [
        # Answering `right` before `none`, as if a threshold lay between.
        (("x", "right", "none"), (100.0, 2)),
        # Nothing exceeds leaving both unanswered, the threshold of which is 0.
        (("x", "none", "right"), (50.0, 0.0)),
    ],
)
def test_equal_odds_count_in_the_order_of_their_file(order, best):
    questions = [question("right", "red"), question("none")]
    answers = {"x": "extra", "right": "red", "none": "sea"}
    found = scores_v2(questions, answers, dict.fromkeys(order, 2))
    assert (found["best_f1"], found["best_f1_thresh"]) == best
    assert found["total"] == 2


def test_version_2_with_missing_predictions():
    some = {"right": "red", "none": ""}
    found = scores_v2(QUESTIONS, some, {"right": -2.0, "none": 5.0})
    assert (found["exact"], found["total"]) == (40.0, 5)
    # `asked` has none; an empty one would be right.
    assert found["NoAns_exact"] == 50.0
    assert (found["best_exact"], found["best_exact_thresh"]) == (40.0, -2.0)
