"""JSON files and their schemas."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.tasks.formats import json_values


def test_values_and_their_lines(write):
    # A line separator of Unicode ends no line.
    path = write("a.jsonl", '\ufeff{"a": "é\u2028"}\r\n\n \t\n[1, 2.50]')
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
    message = f"^{path}: No such file or directory; expected a JSON file.$"
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


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"[]{},\\\n \u2028'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    # More take a busy machine too long.
    max_leaves=10,
)


def numbered(text):
    return [(str(n), line) for n, line in enumerate(text.split("\n"), start=1)]


@settings(max_examples=40)
@given(
    st.lists(st.fixed_dictionaries({"a": VALUES}), min_size=1),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_elements_of_an_array_are_those_of_the_json_module(
    rows, indent, ensure_ascii
):
    text = json.dumps(rows, indent=indent, ensure_ascii=ensure_ascii)
    lines = numbered(f" {text} \n\n")
    assert json_values.starts_array(lines[0][1])
    found = list(json_values.array_elements(lines))
    assert [json.loads(element) for _, element in found] == rows
    for location, element in found:
        assert "\n" not in element
        assert element.split()[0] in lines[int(location) - 1][1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1},\n{"b":}]', r"^2: expected JSON \(Expecting value\)\.$"),
        ('[{"a": 1}\n{"b": 2}]', "^2: expected JSON .expected a comma or ] af"),
        ('[\n{"a": 1}', "^2: expected JSON .expected a comma or ] after an el"),
        ('[{"a": 1}]\n\n[{}]', "^3: expected JSON .expected nothing after the"),
        ('[{"a": 1},\n]', "^2: expected JSON .Expecting value"),
        ('[{"a":\n' + "[" * 200_000, "^1: expected JSON .*recursion"),
    ],
)
def test_arrays_that_cannot_be_read(text, message):
    with pytest.raises(UserError, match=message):
        list(json_values.array_elements(numbered(text)))


@pytest.mark.parametrize("line", ["", "[1]", '["a"]', '{"a": [', "[]"])
def test_lines_that_start_no_array_of_objects(line):
    assert not json_values.starts_array(line)


SCHEMA = {"a": [{"b": int, "c?": (str, int)}]}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([1], "expected an object, got [1]"),
        ({"b": 1}, "expected the key 'a'"),
        ({"a": None}, "a: expected a list, got null"),
        ({"a": [{}]}, "a[0]: expected the key 'b'"),
        ({"a": [{"b": 1}, 7]}, "a[1]: expected an object, got 7"),
        # For Python it is a whole number.
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
