"""RACE's folders, and errors in them."""

import json

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.race import read_race

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


@pytest.fixture
def folders(write, tmp_path):
    """Writes the folders of a split."""

    def call(files):
        for name, articles in files.items():
            lines = [
                a if isinstance(a, str) else json.dumps(a) for a in articles
            ]
            write(name, "\n".join(lines))
        return str(tmp_path)

    return call


def test_an_example(folders):
    middle = article("middle7.txt", ["_ is _ .", "Which?"], "CB")
    files = {"middle/7.txt": [middle], "high/1.txt": [article()]}
    directory = folders(files)
    two, one, high = read_race(directory)
    assert two == ChoiceExample(
        "Text of middle7.txt.",
        ("red is red .", "blue is blue .", "old is old .", "new is new ."),
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
    assert read_race(directory, ("high", "middle")) == [high, two, one]


def test_files_in_the_order_of_their_numbers(folders):
    names = ["10", "9", "100", "2"]
    directory = folders(
        {f"high/{n}.txt": [article(f"high{n}.txt")] for n in names}
        | {"high/readme.md": ["not read"], "high/._9.txt": ["of macOS"]},
    )
    found = read_race(directory, ("high",))
    assert [e.id for e in found] == [f"high{n}.txt-0" for n in (2, 9, 10, 100)]


def test_all_txt_is_preferred(folders):
    lines = [article("high5.txt"), "", article("high3.txt")]
    directory = folders({"high/all.txt": lines, "high/1.txt": ["not read"]})
    found = read_race(directory, ("high",))
    assert [e.id for e in found] == ["high5.txt-0", "high3.txt-0"]
    assert "all.txt:3: questions[0] " in found[1].location


@pytest.mark.parametrize("answers", [..., ["", ""]])
def test_secret_answers(folders, answers):
    hidden = article(questions=["Which?", "What?"], answers=answers)
    directory = folders({"high/1.txt": [hidden]})
    found = read_race(directory, ("high",), labelled=False)
    assert [example.label for example in found] == [None, None]
    message = (
        "key 'answers'" if answers is ... else "expected an answer of A, B"
    )
    with pytest.raises(UserError, match=message):
        read_race(directory, ("high",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"article": ...}, "expected the key 'article'"),
        ({"answers": ["A", "B"]}, "expected as many .*, got 1, 1 and 2"),
        (
            {"answers": ["E"]},
            r"questions\[0\] \(id 'high1.txt-0'\): expected an answer of A, B, "
            'C, D, got "E"',
        ),
        ({"options": [["a", "b", "c"]], "answers": ["D"]}, 'A, B, C, got "D"'),
    ],
)
def test_articles_of_another_form(folders, changes, message):
    directory = folders({"high/1.txt": [article(**changes)]})
    message = rf"^{directory}/high/1\.txt: .*{message}"
    with pytest.raises(UserError, match=message):
        read_race(directory, ("high",))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"middle/1.txt": ["{}"]}, "high: No such file.*; the data directory"),
        ({"high/1.txt": [article(questions=(), answers="")]}, "no questions"),
    ],
)
def test_folders_of_another_form(folders, files, message):
    with pytest.raises(UserError, match=message):
        read_race(folders(files), ("high",))
