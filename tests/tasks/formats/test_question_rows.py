"""Questions in columns: JSON lines, Parquet, and errors in them."""

import dataclasses
import json

import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.config import UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Answer, Question

SQUAD = TASKS["SQuAD2.0"]


NONE = {"text": [], "answer_start": []}


def row(id_="a", **changes):
    return {
        "id": id_,
        "title": "Ulm",
        "context": "Made up in Käse.",
        "question": "Where?",
        "answers": {"text": ["Käse", "in Käse"], "answer_start": [11, 8]},
        **changes,
    }


# The forms of `datasets` and of SQuAD's files.
FORMS = [
    row(is_impossible=False),
    row("b", answers=NONE, is_impossible=True),
    row("c", is_impossible=None),
]
# Numbers, as other programs write true and false.
NUMBERS = [
    row(is_impossible=0),
    row("b", answers=NONE, is_impossible=1),
    row("c", is_impossible=0.0),
]


def questions_at(path):
    answers = (Answer("Käse", 11), Answer("in Käse", 8))
    return [
        Question(id_, "Where?", "Made up in Käse.", golds, f"{path}:{number}")
        for number, (id_, golds) in enumerate(
            {"a": answers, "b": (), "c": answers}.items(), 1
        )
    ]


def test_lines_of_json(write, tmp_path):
    listed = [
        {"text": "Käse", "answer_start": 11},
        {"text": "in Käse", "answer_start": 8},
    ]
    rows = [*FORMS[:2], row("c", answers=listed)]
    path = write("dev.jsonl", "\n".join(map(json.dumps, rows)))
    assert SQUAD.read(str(tmp_path), "dev", str) == questions_at(path)


@pytest.mark.parametrize("rows", [FORMS, NUMBERS])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array(write, tmp_path, indent, rows):
    path = write("dev.json", json.dumps(rows, indent=indent))
    found = SQUAD.read(str(tmp_path), "dev", str)
    assert [dataclasses.replace(q, location="") for q in found] == [
        dataclasses.replace(q, location="") for q in questions_at(path)
    ]


def test_lines_in_a_file_with_the_name_of_squads_own(write, tmp_path):
    path = write("dev.json", "\n" + "\n".join(map(json.dumps, FORMS[:1])))
    (found,) = SQUAD.read(str(tmp_path), "dev", str)
    (expected, *_) = questions_at(path)
    assert found == dataclasses.replace(expected, location=f"{path}:2")


def test_parquet(tmp_path):
    path = tmp_path / "validation.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(FORMS), path)
    assert SQUAD.read(str(tmp_path), "dev", str) == questions_at(path)


def test_without_ids_and_answers(write, tmp_path):
    rows = [{"context": "Up.", "question": "Where?"}] * 2
    path = write("test.jsonl", "\n".join(map(json.dumps, rows)))
    assert SQUAD.read(str(tmp_path), "test", str) == [
        Question(number, "Where?", "Up.", None, f"{path}:{number}")
        for number in ("1", "2")
    ]


def test_rows_without_ids_on_one_line(write, tmp_path):
    rows = [{n: v for n, v in row().items() if n != "id"}] * 2
    write("dev.json", json.dumps(rows))
    found = SQUAD.read(str(tmp_path), "dev", str)
    assert [question.id for question in found] == ["1", "2"]


def test_rows_without_ids_in_two_parts(tmp_path):
    table = pyarrow.Table.from_pylist([row()]).drop_columns("id")
    for name in ("dev-00000-of-00002", "dev-00001-of-00002"):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    found = SQUAD.read(str(tmp_path), "dev", str)
    assert [question.id for question in found] == ["1", "2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": "Käse"},
            "expected as many strings as whole numbers in {'text'",
        ),
        ({"answers": {"text": ["a"]}}, "as 'answers', got "),
        ({"answers": {"text": ["a"], "answer_start": []}}, "as 'answers', got"),
        ({"answers": None}, "as 'answers', got null"),
        ({"answers": {"text": "42", "answer_start": [1, 2]}}, "as 'answers'"),
        ({"answers": {"text": ["4", "2"], "answer_start": "12"}}, "'answers'"),
        ({"answers": {"text": [None], "answer_start": [1]}}, "as 'answers'"),
        ({"context": ["a"]}, "expected a string as context"),
        ({"context": None, "answers": NONE}, "the context is empty"),
        ({"is_impossible": True}, "is_impossible is true with 2 answers"),
        ({"answers": ""}, "in .*'text': .* as 'answers', got \"\""),
    ],
)
def test_bad_rows(write, tmp_path, changes, message):
    write("dev.jsonl", json.dumps(row(**changes)))
    with pytest.raises(UserError, match=rf"dev\.jsonl:1: .*{message}"):
        SQUAD.read(str(tmp_path), "dev", str)


def test_no_flag_skips_a_bad_row(write, tmp_path):
    rows = [row(), row("b", context=" ", answers=NONE)]
    path = write("dev.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError) as caught:
        SQUAD.read(str(tmp_path), "dev", str)
    assert str(caught.value) == f"{path}:2: the context is empty."


def test_ids_are_distinct(write, tmp_path):
    write("dev.jsonl", "\n".join(map(json.dumps, [row(), row()])))
    with pytest.raises(UserError, match="dev.jsonl:2: duplicate id; expected"):
        SQUAD.read(str(tmp_path), "dev", str)


def test_missing_columns(write, tmp_path):
    write("dev.jsonl", '{"context": "a", "query": "b"}')
    message = (
        "expected the column 'answers', got context, query; rename the file's "
        "columns.$"
    )
    with pytest.raises(UserError, match=message):
        SQUAD.read(str(tmp_path), "dev", str)
