"""RACE's folders, its answers, and what is said of mistakes."""

import json

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.race import (
    question_with_option,
    read_levels,
    read_race,
    read_race_answers,
    score_race,
)

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


def write(tmp_path, files, split="train"):
    """Writes what lies in the folders of a split; returns the data_dir."""
    for name, articles in files.items():
        path = tmp_path / split / name
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
    data_dir = write(tmp_path, files)
    two, one, high = read_race(data_dir, "train")
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
        f"{data_dir}/train/middle/7.txt, question 2 (id 'middle7.txt-1')"
    )
    assert (high.label, high.part) == (0, "high")
    assert read_race(data_dir, "train", levels=("high",)) == [high]
    assert read_race(data_dir, "train", ("high", "middle")) == [high, two, one]


def test_files_in_the_order_of_their_numbers(tmp_path):
    names = ["10", "9", "100", "2"]
    data_dir = write(
        tmp_path,
        {f"high/{n}.txt": [article(f"high{n}.txt")] for n in names}
        | {"high/readme.md": ["not read"]},
    )
    found = read_race(data_dir, "train", ("high",))
    assert [e.id for e in found] == [f"high{n}.txt-0" for n in (2, 9, 10, 100)]


def test_all_txt_goes_before_the_others(tmp_path):
    lines = [article("high5.txt"), "", article("high3.txt")]
    data_dir = write(
        tmp_path, {"high/all.txt": lines, "high/1.txt": ["not read"]}
    )
    found = read_race(data_dir, "train", ("high",))
    assert [e.id for e in found] == ["high5.txt-0", "high3.txt-0"]
    assert "all.txt, line 3, question 1 " in found[1].location


def test_only_test_may_keep_its_answers(tmp_path):
    hidden = article(answers=...)
    data_dir = write(tmp_path, {"high/1.txt": [hidden]}, "test")
    (example,) = read_race(data_dir, "test", ("high",))
    assert example.label is None
    with pytest.raises(UserError, match="no answer: a file that keeps them"):
        score_race([example], {})
    write(tmp_path, {"high/1.txt": [article(answers="D")]}, "test")
    assert read_race(data_dir, "test", ("high",))[0].label == 3
    write(tmp_path, {"high/1.txt": [hidden]}, "dev")
    with pytest.raises(UserError, match="1.txt has no 'answers'"):
        read_race(data_dir, "dev", ("high",))


def test_empty_answers_are_untold(tmp_path):
    hidden = article(questions=["Which?", "What?"], answers=["", ""])
    for split in ("test", "train"):
        data_dir = write(tmp_path, {"high/1.txt": [hidden]}, split)
    found = read_race(data_dir, "test", ("high",))
    assert [example.label for example in found] == [None, None]
    said = r"1.txt, question 1 \(id 'high1.txt-0'\): the answer is empty; on"
    with pytest.raises(UserError, match=said):
        read_race(data_dir, "train", ("high",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"article": ...}, "1.txt has no 'article'"),
        ({"id": 7}, "1.txt: id is 7, and must be a string"),
        ({"questions": "Which?"}, "questions is .*, and must be a list"),
        (
            {"answers": ["A", "B"]},
            "1.txt: 1 questions, 1 lists of options and 2 answers",
        ),
        ({"options": []}, "1 questions, 0 lists of options and 1 answers"),
        (
            {"answers": ["E"]},
            r"question 1 \(id 'high1.txt-0'\): the answer is \"E\"; it must "
            "be one of A, B, C, D",
        ),
        ({"answers": ["a"]}, 'the answer is "a"; it must be one of A, B'),
        ({"answers": ["AB"]}, 'the answer is "AB"; it must be one of A, B'),
        ({"answers": [[]]}, r"the answer is \[\]; it must be one of A, B"),
        (
            {"options": [["a", "b", "c"]], "answers": ["D"]},
            'the answer is "D"; it must be one of A, B, C',
        ),
        ({"options": [["a"]]}, "1 options; a choice is between two or more"),
        ({"options": [["a", 2]]}, "option 2 is 2, and must be a string"),
        ({"questions": [None]}, "question 1 .*: it is null, and must be a str"),
    ],
)
def test_articles_of_another_form(tmp_path, changes, said):
    data_dir = write(tmp_path, {"high/1.txt": [article(**changes)]})
    with pytest.raises(UserError, match=said) as raised:
        read_race(data_dir, "train", ("high",))
    assert str(raised.value).startswith(f"{data_dir}/train/high/1.txt")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"high/1.txt": ["{\n'"]}, "1.txt, line 2: it is not valid JSON"),
        (
            {"high/all.txt": [article(), "{"]},
            "all.txt, line 2: it is not valid JSON",
        ),
        ({"high/1.txt": ["[]"]}, r"1.txt is \[\], and no object"),
        ({"high/1.text": ["{}"]}, "high has no files .txt; the data directory"),
        ({"middle/1.txt": ["{}"]}, "high: No such file.*; the data directory"),
        (
            {"high/1.txt": [article(questions=(), answers="")]},
            "train has no questions",
        ),
        (
            {"high/all.txt": [article(), article()]},
            "line 2, question 1 .*: there was a question with this id before",
        ),
        (
            {
                "high/all.txt": [
                    article(),
                    article("high2.txt", options=[["a", "b"]]),
                ]
            },
            r"line 2, question 1 .*: 2 options, where the first .* has 4",
        ),
    ],
)
def test_folders_of_another_form(tmp_path, files, said):
    with pytest.raises(UserError, match=said):
        read_race(write(tmp_path, files), "train", ("high",))


def test_splits_and_levels_that_there_are_not(tmp_path):
    with pytest.raises(UserError, match="no split 'eval'; it has train, dev"):
        read_race(str(tmp_path), "eval")
    for levels in (("low",), ("high", "low"), ()):
        with pytest.raises(UserError, match="levels=.* has middle, high"):
            read_race(str(tmp_path), "train", levels)


def gold(tmp_path):
    middle = article("middle1.txt", ["a", "b", "c"], "ABA")
    high = article("high1.txt", ["a"], "D")
    files = {"middle/1.txt": [middle], "high/1.txt": [high]}
    return read_levels(f"{write(tmp_path, files)}/train")


def answers(tmp_path, values):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(values))
    return str(path)


def test_accuracy_of_all_and_of_each_level(tmp_path):
    examples = gold(tmp_path)
    path = answers(
        tmp_path,
        {
            "high1.txt-0": "D",
            "middle1.txt-0": "A",
            "middle1.txt-1": "A",
            # Of no question; and one question has no answer.
            "middle9.txt-0": "A",
        },
    )
    found = read_race_answers(path, examples)
    assert found["high1.txt-0"] == 3
    assert score_race(examples, found) == {
        "accuracy": 2 / 4,
        "accuracy_middle": 1 / 3,
        "accuracy_high": 1.0,
    }
    assert score_race(examples[:3], found) == {
        "accuracy": 1 / 3,
        "accuracy_middle": 1 / 3,
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["A"], r'is \["A"\], and must be an object that has a letter for'),
        ({"x": "E"}, "the value of 'x' is \"E\"; it must be one of A, B, C, D"),
        ({"x": 0}, "the value of 'x' is 0; it must be one of A, B, C, D"),
    ],
)
def test_answers_of_another_form(tmp_path, values, said):
    path = answers(tmp_path, values)
    with pytest.raises(UserError, match=said):
        read_race_answers(path, gold(tmp_path))
