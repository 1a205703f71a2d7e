"""JSON lines, and what is said of values that are of another form."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.formats import json_values


def write(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return str(path)


def test_a_line_may_hold_a_carriage_return(tmp_path):
    path = write(tmp_path, '{"a": 1,\r "b": 2}\n')
    assert list(json_values.read_json_lines(path, "")) == [
        (f"{path}, line 1", {"a": 1, "b": 2})
    ]


def test_values_and_their_lines(tmp_path):
    # A line separator of Unicode ends no line.
    path = write(tmp_path, '\ufeff{"a": "é\u2028"}\r\n\n \t\n[1, 2.50]')
    assert list(json_values.read_json_lines(path, "")) == [
        (f"{path}, line 1", {"a": "é\u2028"}),
        (f"{path}, line 4", [1, 2.5]),
    ]
    found = json_values.read_json_lines(path, "", number=str)
    assert [value for _, value in found][1] == ["1", "2.50"]


def test_a_whole_file(tmp_path):
    path = write(tmp_path, '\ufeff{"a":\r\n [1, "é"]}\n\n')
    assert json_values.read_large_json(path) == {"a": [1, "é"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty; do this"),
        ('{}\n{"a" 1}', "line 2: it is not valid JSON"),
        ("{}\n" + "7" * 5000, "line 2 has a number with too many digits"),
        ("{}\n" + "[" * 200_000, "line 2: it is nested too deep"),
        (
            '{}\n[{"a": 1, "b": {"c": 1, "d": 2, "d": 2}, "c": 3}]',
            "line 2: an object has 'd' twice; leave one of them",
        ),
        (b'{}\n"\xff"', r"line 2: byte 1 \(0xff\) is not UTF-8"),
    ],
)
def test_lines_that_cannot_be_read(tmp_path, content, said):
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=said) as raised:
        list(json_values.read_json_lines(path, "do this."))
    assert str(raised.value).startswith(path)


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ([1], str, r"^here is \[1\], and no object"),
        ({"b": 1}, str, "^here has no 'a'"),
        ({"a": None}, str, "^here: a is null, and must be a string"),
        ({"a": "b"}, list, '^here: a is "b", and must be a list'),
        ({"a": ["b" * 99]}, dict, r'^here: a is \["b{57}…, and must be an obj'),
        # Ends of lines, and what a terminal takes for orders.
        (
            {"a": "é\u2028\x9b"},
            list,
            r'a is "\\u00e9\\u2028\\u009b", and',
        ),
        ({"a": 1.5}, int, r"^here: a is 1\.5, and must be a whole number"),
        ({"a": "1"}, int, '^here: a is "1", and must be a whole number'),
        # For Python these are whole numbers.
        ({"a": True}, int, "^here: a is true, and must be a whole number"),
        ({"a": False}, int, "^here: a is false, and must be a whole number"),
    ],
)
def test_members(value, kind, said):
    with pytest.raises(UserError, match=said):
        json_values.member(value, "a", kind, "here")
    assert json_values.member({"a": kind()}, "a", kind, "here") == kind()
