"""SQuAD's format, and what is said of files that are not in it."""

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
    place = f"{path}, article 1, paragraph 1, question"
    assert read_squad(path) == [
        Question(
            "b",
            "Where?",
            text,
            (Answer("Käse", 11),),
            f'{place} 1 (id "b")',
        ),
        Question("a", "Where?", text, (), f'{place} 2 (id "a")'),
        Question(
            "c", "Where?", "Made up in Käse.", None, f'{place} 3 (id "c")'
        ),
    ]


def test_ids_that_are_numbers(tmp_path):
    path = write(tmp_path, dataset(row(5), row("x")))
    assert [q.id for q in read_squad(path)] == ["5", "x"]


def test_what_is_impossible_need_not_be_said(tmp_path):
    path = write(tmp_path, dataset(row("a"), row("b", answers=[])))
    assert [len(q.answers) for q in read_squad(path)] == [1, 0]


@pytest.mark.parametrize("said", [True, False, None])
def test_a_file_that_hides_its_answers_may_say_anything(tmp_path, said):
    hidden = row(is_impossible=said)
    del hidden["answers"]
    (question,) = read_squad(write(tmp_path, dataset(hidden)))
    assert question.answers is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"is_impossible": True}, "is true, and the number of answers 1"),
        (
            {"is_impossible": False, "answers": []},
            "is false, and the number of answers 0",
        ),
        # Neither says yes or no.
        ({"is_impossible": None}, "is null, and the number of answers 1"),
        (
            {"is_impossible": 1, "answers": []},
            "is 1, and the number of answers 0",
        ),
        (
            {"is_impossible": "false"},
            'is "false", and the number of answers 1',
        ),
    ],
)
def test_answers_that_contradict_what_is_said(tmp_path, changes, said):
    path = write(tmp_path, dataset(row("a"), row("b", **changes)))
    with pytest.raises(UserError) as raised:
        read_squad(path)
    assert str(raised.value) == (
        f"{path}, article 1, paragraph 1, question 2: is_impossible {said}; "
        "correct one or the other."
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{\n'", "line 2: it is not valid JSON"),
        ("[]", r"squad.json is \[\], and no object"),
        ({"version": "1"}, "squad.json has no 'data'"),
        ({"data": {}}, r"squad.json: data is \{\}, and must be a list"),
        ({"data": []}, "has no questions"),
        ({"data": [7]}, "article 1 is 7, and no object"),
        ({"data": [{"paragraphs": [{}]}]}, "paragraph 1 has no 'context'"),
        (dataset(row(id_=5.0)), "question 1: id is 5.0, and must be a string"),
        (dataset(row(id_=True)), "question 1: id is true, and must be a str"),
        (
            dataset(row(5), row("5")),
            r'question 2 \(id "5"\): there was .* this id before',
        ),
        (dataset(row(question=None)), "question is null, and must be a string"),
        (
            dataset(row(answers=[{"text": "a", "answer_start": True}])),
            "question 1, answer 1: answer_start is true, and must be a whole",
        ),
        (
            dataset(row(answers=[{"text": ["a"] * 99, "answer_start": 1}])),
            r"text is \[\"a\", .{,60}…, and must be a string",
        ),
        (
            dataset(row(), row()),
            r'question 2 \(id "a"\): there was .* this id before',
        ),
    ],
)
def test_mistakes(tmp_path, content, said):
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=said) as raised:
        read_squad(path)
    assert str(raised.value).startswith(path)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match=r"none\.json: No such file"):
        read_squad(str(tmp_path / "none.json"))
    (tmp_path / "latin.json").write_bytes(b'{"data": "\xff"}')
    with pytest.raises(UserError, match="byte 10 is not UTF-8"):
        read_squad(str(tmp_path / "latin.json"))
    (tmp_path / "wide.json").write_bytes('{"data": []}'.encode("utf-16"))
    with pytest.raises(UserError, match=r"wide\.json is UTF-16, expected"):
        read_squad(str(tmp_path / "wide.json"))
    (tmp_path / "long.json").write_text("7" * 5000)
    with pytest.raises(UserError, match="a number with too many digits"):
        read_squad(str(tmp_path / "long.json"))
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(UserError, match="nested too deep"):
        read_squad(str(tmp_path / "deep.json"))
