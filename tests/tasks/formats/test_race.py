"""RACE's folders, and errors in them."""

import json

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.race import question_with_option, read_race

OPTIONS = ["red", "blue", "old", "new"]


def article(id_="high1.txt", questions=("Which?",), answers="A", **changes):
    values = {
        "id": id_,
        "article": f"Text of {id_}.",
        "questions": questions,
        "options": [OPTIONS] * len(questions),
        "answers": list(answers) if isinstance(answers, str) else answers,
        **changes,
    }
    return {name: value for name, value in values.items() if value is not ...}


def write(tmp_path, files):
    """Writes the folders of a split."""
    for name, articles in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [a if isinstance(a, str) else json.dumps(a) for a in articles]
        path.write_text("\n".join(lines))
    return str(tmp_path)


def test_the_option_stands_in_every_gap_or_after_the_question():
    assert question_with_option("_ and _?", "two") == "two and two?"
    assert question_with_option("Which one?", "two") == "Which one? two"


def test_an_example(tmp_path):
    middle = article("middle7.txt", ["It is _ .", "Which?"], "CB")
    files = {"middle/7.txt": [middle], "high/1.txt": [article()]}
    directory = write(tmp_path, files)
    two, one, high = read_race(directory)
    assert two == ChoiceExample(
        "Text of middle7.txt.",
        ("It is red .", "It is blue .", "It is old .", "It is new ."),
        2,
        id="middle7.txt-0",
        part="middle",
    )
    assert one.choices[3] == "Which? new"
    assert (one.label, one.id) == (1, "middle7.txt-1")
    assert one.location == (
        f"{directory}/middle/7.txt: questions[1] (id 'middle7.txt-1')"
    )
    assert (high.label, high.part) == (0, "high")
    assert read_race(directory, ("high",)) == [high]
    assert read_race(directory, ("high", "middle")) == [high, two, one]


def test_files_in_the_order_of_their_numbers(tmp_path):
    names = ["10", "9", "100", "2"]
    directory = write(
        tmp_path,
        {f"high/{n}.txt": [article(f"high{n}.txt")] for n in names}
        | {"high/readme.md": ["not read"]},
    )
    found = read_race(directory, ("high",))
    assert [e.id for e in found] == [f"high{n}.txt-0" for n in (2, 9, 10, 100)]


def test_all_txt_is_preferred(tmp_path):
    lines = [article("high5.txt"), "", article("high3.txt")]
    directory = write(
        tmp_path, {"high/all.txt": lines, "high/1.txt": ["not read"]}
    )
    found = read_race(directory, ("high",))
    assert [e.id for e in found] == ["high5.txt-0", "high3.txt-0"]
    assert "all.txt:3: questions[0] " in found[1].location


@pytest.mark.parametrize("answers", [..., ["", ""]])
def test_secret_answers(tmp_path, answers):
    hidden = article(questions=["Which?", "What?"], answers=answers)
    directory = write(tmp_path, {"high/1.txt": [hidden]})
    found = read_race(directory, ("high",), labelled=False)
    assert [example.label for example in found] == [None, None]
    message = (
        "key 'answers'" if answers is ... else "expected an answer of A, B"
    )
    with pytest.raises(UserError, match=message):
        read_race(directory, ("high",))


def test_answers_that_are_not_required_are_read(tmp_path):
    directory = write(tmp_path, {"high/1.txt": [article(answers="D")]})
    assert read_race(directory, ("high",), labelled=False)[0].label == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"article": ...}, "expected the key 'article'"),
        ({"questions": [None]}, r"questions\[0\]: expected a string, got null"),
        ({"options": [["a", 2]]}, r"options\[0\]\[1\]: expected a string"),
        ({"answers": ["A", "B"]}, "expected as many .*, got 1, 1 and 2"),
        (
            {"answers": ["E"]},
            r"questions\[0\] \(id 'high1.txt-0'\): expected an answer of A, B, "
            'C, D, got "E"',
        ),
        ({"answers": ["a"]}, 'of A, B, C, D, got "a"'),
        ({"answers": [[]]}, r"of A, B, C, D, got \[\]"),
        ({"options": [["a", "b", "c"]], "answers": ["D"]}, 'A, B, C, got "D"'),
    ],
)
def test_articles_of_another_form(tmp_path, changes, message):
    directory = write(tmp_path, {"high/1.txt": [article(**changes)]})
    message = rf"^{directory}/high/1\.txt: .*{message}"
    with pytest.raises(UserError, match=message):
        read_race(directory, ("high",))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"high/1.txt": ["{\n'"]}, "1.txt: expected JSON .* line 2"),
        ({"high/all.txt": [article(), "{"]}, "all.txt:2: expected JSON"),
        ({"high/1.text": ["{}"]}, "has no questions; the data directory"),
        ({"middle/1.txt": ["{}"]}, "high: No such file.*; the data directory"),
        ({"high/1.txt": [article(questions=(), answers="")]}, "no questions"),
    ],
)
def test_folders_of_another_form(tmp_path, files, message):
    with pytest.raises(UserError, match=message):
        read_race(write(tmp_path, files), ("high",))
