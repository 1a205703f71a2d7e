"""The rows of JSON files: lines of objects, arrays, and what is neither."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.tasks.formats import json_rows
from albert_tf.tasks.formats.rows import read_rows

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
    st.lists(st.fixed_dictionaries({"a": VALUES})),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_elements_of_an_array_are_those_of_the_json_module(
    rows, indent, ensure_ascii
):
    text = json.dumps(rows, indent=indent, ensure_ascii=ensure_ascii)
    lines = numbered(f" {text} \n\n")
    assert json_rows.starts_array(lines[0][1])
    found = list(json_rows.array_elements(lines))
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
        list(json_rows.array_elements(numbered(text)))


def test_a_number_of_very_many_digits_is_its_text():
    number = "9" * 5000
    found = json_rows.array_elements([("a:1", f'[{{"b": {number}}}]')])
    (element,) = found
    assert json_rows.json_record(element).values == {"b": number}


def test_elements_of_one_line_are_numbered():
    found = json_rows.array_elements([("a:1", '[{"b": 1}, {"b": 2}]')])
    assert [place for place, _ in found] == [
        "a:1 (element 1)",
        "a:1 (element 2)",
    ]


@pytest.mark.parametrize("line", ["", "[1]", '["a"]', '{"a": [', "[], 1"])
def test_lines_that_start_no_array_of_objects(line):
    assert not json_rows.starts_array(line)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        # What df.to_json(path) writes, and with orient="index".
        ('{"text":{"0":"a","1":"b"},"label":{"0":1,"1":0}}', "pandas"),
        ('{"0":{"text":"a","label":1},"1":{"text":"b","label":0}}', "pandas"),
        ('{"columns":["text"],"index":[0],"data":[["a"]]}', "pandas"),
        ('{"schema": {"fields": []}, "data": [{"text": "a"}]}', "jq .*data"),
        ('{"version": "1", "data": [{"text": "a"}]}', "jq .*data"),
        ('{"count": 1, "results": [{"text": "a"}]}', "jq .*results"),
        ('{"text": "a",\n  "label": 1\n}\n', r"jq -c \."),
        ('{\n"text": "a"\n}\n{\n"text": "b"\n}\n', r"jq -c \."),
    ],
)
def test_one_json_object_for_the_file(write, content, advice):
    message = f"train.json:1: expected a JSON object in each line, .* {advice}"
    forms = [content]
    with contextlib.suppress(ValueError):
        forms.append(json.dumps(json.loads(content), indent=1))
    for form in forms:
        with pytest.raises(UserError, match=message):
            read_rows(write("train.json", form), pytest.fail)


@pytest.mark.parametrize(
    "content",
    [
        '{"text": "a", "entities": [{"start": 0}]}',
        '{"tokens": ["a"], "spans": [{"start": 0}]}',
        '{"data": []}',
        '{"data": [{"x": 1}]}\n{"data": [{"x": 2}]}',
    ],
)
def test_lines_that_are_rows(write, content):
    path = write("train.json", content)
    expected = [json.loads(line).keys() for line in content.split("\n")]
    assert [
        r.values.keys() for r in read_rows(path, pytest.fail).records
    ] == expected


def test_the_lines_after_a_bad_first_one_are_read(write):
    rows = read_rows(
        write("train.json", '{"text": "a"\n{"text": "b"}\n'), pytest.fail
    )
    assert [record.values for record in rows.records] == [{"text": "b"}]
