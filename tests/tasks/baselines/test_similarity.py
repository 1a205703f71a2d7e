"""Answers and choices most like the question."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from albert_tf.tasks.baselines.table import baseline_scores
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Answer, ChoiceExample, Question
from albert_tf.tasks.kinds import span_answers

CONTEXT = (
    "The Normans came from Norway.  They met Rollo (a Viking!) there. Who "
    "knows? 诺曼人来自挪威。他们很强"
)


def asked(question, *answers, context=CONTEXT, id="1"):
    golds = tuple(Answer(text, context.index(text)) for text in answers)
    return Question(id, question, context, golds, f"line {id}")


def answers(task, train, questions):
    scored = baseline_scores(TASKS[task], train, questions)
    found = span_answers.predictions(questions, scored.scores)
    return scored, [found[question.id] for question in questions]


def test_the_sentence_most_like_the_question():
    train = [asked("Where is Norway?", "Norway")]
    questions = [
        asked("Where did Normans come from?", "Norway", id="a"),
        asked("Was Rollo a Viking?", "Viking", id="b"),
        asked("诺曼人来自挪威", "挪威", id="c"),
        asked("他们很强", "他们", id="d"),
    ]
    scored, found = answers("SQuAD1.1", train, questions)
    assert found == [
        "The Normans came from Norway.",
        "They met Rollo (a Viking!) there.",
        "诺曼人来自挪威。",
        "他们很强",
    ]
    metrics = TASKS["SQuAD1.1"].kind.compute_metrics(scored, {})
    # One word of four without the article; the rest by hand likewise.
    parts = [2 / 5, 2 / 6, 0, 0]
    assert metrics["f1"] == pytest.approx(100 * np.mean(parts))


def test_questions_below_the_best_similarity_of_training_have_no_answer():
    context = "Kings ruled England. Fish swim."
    train = [
        asked("Who ruled England", "Kings ruled England.", context=context),
        asked("When will cows fly", context=context, id="2"),
    ] * 2
    questions = [
        asked("Who ruled England", "Kings", context=context, id="a"),
        asked("Where is the moon", context=context, id="b"),
    ]
    scored, found = answers("SQuAD2.0", train, questions)
    assert found == ["Kings ruled England.", ""]
    first, second = (row.no_answer for row in scored.scores)
    assert first < 0 < second


def test_a_paragraph_without_words():
    question = Question("1", "Who?", " ", (Answer(" ", 0),), "line 1")
    train = [asked("Where is Norway?", "Norway")]
    assert answers("SQuAD1.1", train, [question])[1] == [""]


def test_choices_against_scikit_learn():
    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(30)]

    def text(count):
        return " ".join(rng.choice(words, count))

    examples = [
        ChoiceExample(text(20), (text(4), text(4), text(4)), 0)
        for _ in range(12)
    ]
    train, dev = examples[:8], examples[8:]
    texts = {text for example in train for text in example.texts}
    weights = TfidfVectorizer(sublinear_tf=True).fit(sorted(texts))
    scored = baseline_scores(TASKS["RACE"], train, dev)
    for example, row in zip(dev, scored.scores, strict=True):
        expected = cosine_similarity(
            weights.transform([example.context]),
            weights.transform(example.choices),
        )
        assert row == pytest.approx(expected[0])
