"""Offsets of answers, right and wrong ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.kinds.answer_offsets import check_answers

CONTEXT = "An Été in Paris. The été of\u00a0 São Paulo, the été; straße ½."


def question(text, start, context=CONTEXT, id_="q"):
    answers = (Answer(text, start), Answer("nowhere", 0))
    return Question(id_, "?", context, answers, f"place {id_}")


def found(text, start, context=CONTEXT):
    check = check_answers([question(text, start, context)])
    span = check.spans.get("q")
    how = tuple(
        len(places) for places in (check.moved, check.respelled, check.missing)
    )
    return span and context[slice(*span)], span and span[0], how


EXACT, MOVED, RESPELLED, MISSING = (
    (0, 0, 0),
    (1, 0, 0),
    (0, 1, 0),
    (0, 0, 1),
)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("An", 0, ("An", 0, EXACT)),
        ("½.", len(CONTEXT) - 2, ("½.", len(CONTEXT) - 2, EXACT)),
        # At its answer_start, though there is another before it.
        ("été", 44, ("été", 44, EXACT)),
        # Nearest before and after.
        ("été", 33, ("été", 44, MOVED)),
        ("été", 30, ("été", 21, MOVED)),
        ("été", 32, ("été", 21, MOVED)),
        ("été", -3, ("été", 21, MOVED)),
        ("été", 999, ("été", 44, MOVED)),
        # From the end Python would count negative ones.
        (".", -1, (".", 15, MOVED)),
        # Case, accents, spaces, other forms of one letter.
        ("E\u0301TE\u0301", 48, ("été", 44, RESPELLED)),
        ("ete", 4, ("Été", 3, RESPELLED)),
        ("of Sao paulo ", 0, ("of\u00a0 São Paulo", 25, RESPELLED)),
        ("STRASSE", 0, ("straße", 49, RESPELLED)),
        ("in\tparis", 0, ("in Paris", 7, RESPELLED)),
        ("1⁄2", 0, ("½", 56, RESPELLED)),
        ("Pariser", 10, (None, None, MISSING)),
        (" \n", 2, (None, None, MISSING)),
        ("", 2, (None, None, MISSING)),
        ("\u0301", 2, (None, None, MISSING)),
    ],
)
def test_one_answer(text, start, expected):
    assert found(text, start) == expected


def test_of_two_equally_near_the_first():
    assert found("a", 1, "aba") == ("a", 0, MOVED)


@given(
    text=st.text("ab", min_size=1, max_size=4),
    context=st.text("ab", max_size=20),
    start=st.integers(-5, 30),
)
def test_the_nearest_is_found(text, context, start):
    places = [
        i
        for i in range(len(context) - len(text) + 1)
        if context[i : i + len(text)] == text
    ]
    wanted = min(
        places, key=lambda i: (abs(i - max(start, 0)), i), default=None
    )
    assert found(text, start, context)[1] == wanted


def test_a_file():
    missing = [question("six", 0, id_=str(number)) for number in range(5)]
    none = Question("none", "?", CONTEXT, (), "place none")
    unlabelled = Question("unlabelled", "?", CONTEXT, None, "place unlabelled")
    right = question("An", 0, id_="right")
    check = check_answers([none, unlabelled, right, *missing])
    assert check.spans == {"right": (0, 2)}
    assert check.missing == tuple(f"place {number}" for number in range(5))
    with pytest.raises(
        UserError,
        match="of 5 questions are not .*: place 0; place 1; place 2, and oth",
    ):
        check.refuse_missing()
    check_answers([none, unlabelled, right]).refuse_missing()


def test_warnings_name_the_first_locations():
    asked = [
        question("Paris", 10, id_="right"),
        *(question("Paris", 0, id_=f"moved {n}") for n in range(4)),
        question("paris", 10, id_="respelled"),
        question("Rome", 10, id_="missing"),
    ]
    assert check_answers(asked).warnings() == [
        "4 questions have an answer that is not at its answer_start; its "
        "nearest occurrence is used: place moved 0; place moved 1; place moved "
        "2, and others.",
        "1 questions have an answer that is in the paragraph only with other "
        "case, accents or spaces; that is used: place respelled.",
        "1 questions have an answer that is not in the paragraph: place "
        "missing.",
    ]
    assert check_answers(asked[:1]).warnings() == []
