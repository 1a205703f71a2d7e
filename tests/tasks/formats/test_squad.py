"""SQuAD's format, and errors in it."""

import json

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.formats.squad import read_squad


def dataset(*questions, context="Made up in Käse."):
    paragraph = {"context": context, "qas": list(questions)}
    return {"version": "v2.0", "data": [{"paragraphs": [paragraph]}]}


def row(id_="a", **changes):
    return {
        "id": id_,
        "question": "Where?",
        "answers": [{"text": "Käse", "answer_start": 11}],
        **changes,
    }


@pytest.fixture
def dump(write):
    return lambda content: write("squad.json", json.dumps(content))


def test_questions_in_their_order(dump):
    text = "Made up in Käse."
    none = {"answers": [], "is_impossible": True, "plausible_answers": []}
    hidden = row("c")
    del hidden["answers"]
    told = row("b", is_impossible=False)
    # An id may be a number.
    path = dump(dataset(told, row(5, **none), hidden))
    answers = {"b": (Answer("Käse", 11),), "5": (), "c": None}
    assert read_squad(path) == [
        Question(
            id_,
            "Where?",
            text,
            golds,
            f'{path}: data[0].paragraphs[0].qas[{number}] (id "{id_}")',
        )
        for number, (id_, golds) in enumerate(answers.items())
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, " has no questions"),
        (
            {"data": [{"paragraphs": [{}]}]},
            r": data\[0\].paragraphs\[0\]: expected the key 'context'",
        ),
        (dataset(row(id_=5.0)), r"qas\[0\].id: expected .*string, got 5.0"),
        (dataset(row(5), row("5")), r'qas\[1\] \(id "5"\): duplicate id'),
        (
            dataset(row("a"), row("b", is_impossible=True)),
            r"qas\[1\]: is_impossible is true with 1 answers; correct one",
        ),
    ],
)
def test_errors(dump, content, message):
    path = dump(content)
    with pytest.raises(UserError, match=f"^{path}.*{message}"):
        read_squad(path)
