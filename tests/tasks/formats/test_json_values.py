"""JSON files and their schemas."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.formats import json_values


def test_values_and_their_lines(write):
    # A line separator of Unicode ends no line.
    path = write("a.jsonl", '\ufeff{"a": "é\u2028"}\r\n\n \t\n\ufeff[1, 2.50]')
    assert list(json_values.read_json_lines(path, "")) == [
        (f"{path}:1", {"a": "é\u2028"}),
        (f"{path}:4", [1, 2.5]),
    ]
    assert json_values.parse_line("", "[1, 2.50]", str) == ["1", "2.50"]


def test_a_whole_file(write):
    path = write("a.jsonl", '\ufeff{"a":\r\n [1, "é"]}\n\n')
    assert json_values.read_large_json(path) == {"a": [1, "é"]}
    # A carriage return within a line is white space.
    path = write("a.jsonl", '{"a": 1,\r "b": 2}\n')
    assert json_values.read_large_json(path) == {"a": 1, "b": 2}


def test_a_missing_file(tmp_path):
    path = str(tmp_path / "a.json")
    message = f"^{path}: No such file or directory.$"
    with pytest.raises(UserError, match=message):
        json_values.read_large_json(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; do this"),
        ('{}\n{"a" 1}', "a.jsonl:2: expected JSON"),
        ("{}\n" + "7" * 5000, ":2: expected JSON .*limit"),
        ("{}\n" + "[" * 200_000, ":2: expected JSON .*recursion"),
        (
            '{}\n[{"a": 1, "b": {"c": 1, "d": 2, "d": 2}, "c": 3}]',
            ":2: expected JSON .*the key 'd' appears twice",
        ),
    ],
)
def test_lines_that_cannot_be_read(write, content, message):
    path = write("a.jsonl", content)
    with pytest.raises(UserError, match=message) as raised:
        list(json_values.read_json_lines(path, "do this."))
    assert str(raised.value).startswith(path)


SCHEMA = {"a": [{"b": int, "c?": (str, int)}]}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([1], "expected an object, got [1]"),
        ({"b": 1}, "expected the key 'a'"),
        ({"a": None}, "a: expected a list, got null"),
        ({"a": [{}]}, "a[0]: expected the key 'b'"),
        ({"a": [{"b": 1}, 7]}, "a[1]: expected an object, got 7"),
        # Python takes it for a whole number.
        ({"a": [{"b": True}]}, "a[0].b: expected a whole number, got true"),
        (
            {"a": [{"b": 1, "c": []}]},
            "a[0].c: expected a whole number or a string, got []",
        ),
        # Line ends, and what controls a terminal.
        ({"a": "é\u2028\x9b"}, r'a: expected a list, got "\u00e9\u2028\u009b"'),
        ({"a": "b" * 99}, f'a: expected a list, got "{"b" * 58}…'),
    ],
)
def test_schema(value, fault):
    with pytest.raises(UserError) as raised:
        json_values.check(value, SCHEMA, "f.json:3")
    assert str(raised.value) == f"f.json:3: {fault}."
