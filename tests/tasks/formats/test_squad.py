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


def write(tmp_path, content):
    path = tmp_path / "squad.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_questions_in_their_order(tmp_path):
    text = "Made up in Käse."
    none = {"answers": [], "is_impossible": True, "plausible_answers": []}
    hidden = row("c")
    del hidden["answers"]
    told = row("b", is_impossible=False)
    path = write(tmp_path, dataset(told, row("a", **none), hidden))
    location = f"{path}: data[0].paragraphs[0].qas"
    assert read_squad(path) == [
        Question(
            "b",
            "Where?",
            text,
            (Answer("Käse", 11),),
            f'{location}[0] (id "b")',
        ),
        Question("a", "Where?", text, (), f'{location}[1] (id "a")'),
        Question(
            "c", "Where?", "Made up in Käse.", None, f'{location}[2] (id "c")'
        ),
    ]


def test_numbers_as_ids_and_no_is_impossible(tmp_path):
    path = write(tmp_path, dataset(row(5), row("b", answers=[])))
    found = [(q.id, len(q.answers)) for q in read_squad(path)]
    assert found == [("5", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("is_impossible", "answers", "message"),
    [
        (True, 1, "is_impossible is true with 1 answers; correct one"),
        (False, 0, "is_impossible is false with 0 answers"),
        (None, 1, "is_impossible is null with 1 answers"),
        (1, 0, "is_impossible is 1 with 0 answers"),
    ],
)
def test_contradictions(tmp_path, is_impossible, answers, message):
    wrong = row("b", is_impossible=is_impossible)
    wrong["answers"] *= answers
    path = write(tmp_path, dataset(row("a"), wrong))
    with pytest.raises(UserError, match=rf"qas\[1\]: {message}"):
        read_squad(path)
    # Without answers any value is allowed.
    del wrong["answers"]
    assert read_squad(write(tmp_path, dataset(wrong)))[0].answers is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{\n'", ": expected JSON .* line 2"),
        ("[]", r": expected an object, got \[\]"),
        ({"data": []}, " has no questions"),
        (
            {"data": [{"paragraphs": [{}]}]},
            r": data\[0\].paragraphs\[0\]: expected the key 'context'",
        ),
        (dataset(row(id_=5.0)), r"qas\[0\].id: expected .*string, got 5.0"),
        (dataset(row(5), row("5")), r'qas\[1\] \(id "5"\): duplicate id'),
    ],
)
def test_errors(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=f"^{path}.*{message}") as raised:
        read_squad(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b'{"data": "\xff"}', r"1: byte 10 \(0xff\) is not UTF-8"),
        ('{"data": []}'.encode("utf-16"), "UTF-16, expected"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"a\.json.*{message}"):
        read_squad(str(path))
