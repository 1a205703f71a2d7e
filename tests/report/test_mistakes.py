"""Which mistakes a report has, and in which order."""

from albert_tf.report.mistakes import mistakes_section, worst_and_right
from albert_tf.tasks.kinds.base import Prediction


def prediction(gold, yes, text="t"):
    answer = "yes" if yes > 0.5 else "no"
    probabilities = {"yes": yes, "no": 1 - yes}
    fields = {
        "text": text,
        "label": gold,
        "prediction": answer,
        "probabilities": probabilities,
    }
    error = max(probabilities.values()) - probabilities[gold]
    return Prediction(fields, f"d/dev.tsv:{text}", error)


FOUND = [
    prediction("yes", 0.9, "a"),
    prediction("yes", 0.3, "b"),
    prediction("no", 0.95, "c"),
    prediction("no", 0.2, "d"),
    prediction("no", 0.6, "e" * 400),
]


def test_the_highest_loss_comes_first():
    (table,) = mistakes_section(FOUND).parts
    assert [row[0][:9] for row in table.rows] == [
        "dev.tsv:c",
        "dev.tsv:b",
        "dev.tsv:e",
    ]
    assert table.rows[0][2:] == ["no", "yes", "95.0%", "5.0%"]
    assert table.caption == (
        "The wrong answers with the highest loss, of 3 in 5 dev examples."
    )
    assert table.rows[2][1] == "e" * 299 + "…"


def test_no_mistakes():
    (paragraph,) = mistakes_section(FOUND[:1]).parts
    assert paragraph.text == "There are none."


def test_mistakes_and_right_answers_in_turn():
    assert worst_and_right(FOUND, 4) == [2, 0, 1, 3]


def test_numbers_are_never_right():
    rated = [
        Prediction({"text": "t", "label": "1", "prediction": n}, "", abs(n - 1))
        for n in (1.5, 4.0, 1.1, 3.0)
    ]
    assert worst_and_right(rated, 4) == [1, 2, 3, 0]


def test_tags_that_are_wrong():
    fields = {
        "words": ["Ada", "in", "Rome"],
        "label": ["B-PER", "O", "B-LOC"],
        "prediction": ["B-PER", "O", "O"],
        "probabilities": [0.9, 0.9, 0.6],
    }
    (table,) = mistakes_section([Prediction(fields, "f:1", 0.3)]).parts
    assert table.rows == [["f:1", "Ada in Rome", "Rome: B-LOC", "Rome: O"]]


def test_an_answer_to_a_question():
    fields = {
        "question": "Who?",
        "context": "Ada.",
        "answers": ["Ada", "Ada", "she"],
        "prediction": "",
        "probability": 0.75,
    }
    (table,) = mistakes_section([Prediction(fields, "f:1", 0.3)]).parts
    assert table.columns == ["where", "text", "label", "answer", "p(answer)"]
    row = ["f:1", "Who? ‖ Ada.", "Ada | she", "none", "75.0%"]
    assert table.rows == [row]


def test_choices():
    fields = {
        "context": "He met Ada.",
        "choices": ["Ada", "Bob"],
        "label": "A",
        "prediction": "B",
        "probabilities": [0.4, 0.6],
    }
    (table,) = mistakes_section([Prediction(fields, "f:1", 0.2)]).parts
    assert table.rows == [["f:1", "He met Ada. ‖ Ada ‖ Bob", "A", "B"]]


def test_several_labels():
    fields = {
        "text": "t",
        "label": ["a", "c"],
        "prediction": [],
        "probabilities": {"a": 0.2, "b": 0.1, "c": 0.4},
    }
    (table,) = mistakes_section([Prediction(fields, "f:1", 0.6)]).parts
    assert table.rows == [["f:1", "t", "a | c", "none"]]
