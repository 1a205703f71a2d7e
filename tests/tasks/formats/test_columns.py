"""Your own files: which columns are read, and what is said of mistakes."""

import csv
import json
import re

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import ChoiceExample, Example
from albert_tf.tasks.formats.columns import (
    Record,
    choice_examples,
    find_split,
    own_columns,
    read_rows,
    text_examples,
)


def write(path, content):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return str(path)


def table(tmp_path, *rows):
    return write(tmp_path / "t.tsv", "".join(f"{row}\n" for row in rows))


def lines(tmp_path, *values):
    text = "".join(f"{json.dumps(value)}\n" for value in values)
    return write(tmp_path / "t.jsonl", text)


def quiet(path):
    return read_rows(path, pytest.fail)


def columns_of(path):
    return own_columns(quiet(path), lambda line: None)


def read_texts(path, columns, **options):
    return text_examples(quiet(path), columns, **options)


def read_choices(path, *arguments, **options):
    return choice_examples(quiet(path), *arguments, **options)


def read_own(path):
    return read_texts(path, columns_of(path))


def assert_told(function, path, said, **options):
    with pytest.raises(UserError, match=said) as raised:
        function(path, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_rows_of_a_table(tmp_path):
    path = table(tmp_path, "a\tb", 'x"\t y ', "\t1")
    rows = quiet(path)
    assert (rows.names, rows.location) == (["a", "b"], f"{path}, line 1")
    assert rows.records == [
        Record({"a": 'x"', "b": " y "}, f"{path}, line 2"),
        Record({"a": "", "b": "1"}, f"{path}, line 3"),
    ]


def written_by_csv(path, rows, **options):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows(rows)
    return str(path)


TEXTS = [
    'He said "no"',
    '"no," he said',
    "two\nlines",
    'a tab\tand "\n\n"',
    "",
    '"',
    '""',
    "plain",
]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("extension", "delimiter"), [("tsv", "\t"), ("csv", ",")]
)
def test_rows_that_the_csv_module_wrote(
    tmp_path, extension, delimiter, ends, quoting
):
    table = [["text", "label"], *([text, "x"] for text in TEXTS)]
    path = written_by_csv(
        tmp_path / f"t.{extension}",
        table,
        delimiter=delimiter,
        lineterminator=ends,
        quoting=quoting,
    )
    said = []
    rows = read_rows(path, said.append)
    assert [[*r.values.values()] for r in rows.records] == table[1:]
    # The first line of each row.
    lines = [2, 3, 4, 6, 9, 10, 11, 12]
    assert [r.location for r in rows.records] == [
        f"{path}, line {n}" for n in lines
    ]
    quoted = 6 if quoting == csv.QUOTE_MINIMAL else 18
    assert said == [
        f"{path}: {quoted} fields are read without their quotes, as CSV files "
        "have them: 12 lines hold 9 rows, the header among them."
    ]


def test_quotes_within_lines_are_the_rule_in_csv_alone(tmp_path):
    said = []
    for name, delimiter in (("t.csv", ","), ("t.tsv", "\t")):
        rows = [["a", "b"], ['"x"', "y"]]
        path = written_by_csv(tmp_path / name, rows, delimiter=delimiter)
        (record,) = read_rows(path, said.append).records
        assert record.values == {"a": '"x"', "b": "y"}
    (line,) = said
    assert line.startswith(f"{path}: 1 fields are read without their quotes,")


def test_a_quoted_field_that_is_all_of_its_row(tmp_path):
    path = written_by_csv(tmp_path / "t.csv", [["text"], ["two\nlines"], [""]])
    (first, second) = read_rows(path, lambda line: None).records
    assert (first.values, second.values) == (
        {"text": "two\nlines"},
        {"text": ""},
    )


def test_a_quoted_field_of_any_length(tmp_path):
    text = 'a "word" ' * 30_000
    path = written_by_csv(tmp_path / "t.csv", [["text"], [text]])
    assert quiet(path).records[0].values == {"text": text}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        # Of a dialogue: what opens in one row ends in another.
        (
            ["a\tb", 'x\t"I am here', "y\tand so", 'z\tare you"', "u\tv"],
            "line 2: a quoted field would join it with the next line, and "
            "every line is a row by itself.",
        ),
        (
            ["a\tb", "x\ty", 'x\t"I am here', 'z\tare you"'],
            "line 3: a quoted field would join it with the next line, and "
            "every line is a row by itself.",
        ),
        (
            ["a\tb", "x\ty", '"I am here\tx', "and so\ty"],
            "line 3: a field begins with a quote, and no quote ends it.",
        ),
        (
            ["a\tb", '"I" am here\tx'],
            "line 2: a field begins with a quote, and no quote ends it.",
        ),
        # Both fields are of the quote.
        (
            ["a\tb", "x\ty", '"I am here\tand so"'],
            "line 3: 1 tab-separated fields where 2 are needed: 'I am here.*'.",
        ),
    ],
)
def test_a_stray_quote_swallows_no_row(tmp_path, rows, fault):
    path = table(tmp_path, *rows)
    said = []
    found = [[*r.values.values()] for r in read_rows(path, said.append).records]
    assert found == [row.split("\t") for row in rows[1:]]
    (line,) = said
    assert re.fullmatch(
        f"{path}, {fault} All quotes of the file are read literally.", line
    )


def test_a_table_that_fits_neither_way(tmp_path):
    path = table(tmp_path, "a\tb", '"x\ny"\tz', "x\ty\tz")
    said = (
        r"line 4: 3 tab-separated fields where 2 are needed: 'x\\ty\\tz'. With "
        r"literal quotes, \S*, line 2: 1 tab-separated fields where 2 are need"
    )
    assert_told(quiet, path, said)


def test_blank_lines_at_the_end_are_no_rows(tmp_path):
    for content in ("a\tb\nx\ty\n\n\r\n", 'a\tb\n"x"\ty\n\n'):
        path = write(tmp_path / "t.tsv", content)
        (record,) = read_rows(path, lambda line: None).records
        assert record.values == {"a": "x", "b": "y"}
    # Of one column they are empty texts.
    path = write(tmp_path / "t.tsv", "a\nx\n\n")
    assert [r.values["a"] for r in quiet(path).records] == ["x", ""]


def test_rows_of_json_lines(tmp_path):
    # Numbers as they are written, truth values as JSON has them.
    path = write(
        tmp_path / "t.jsonl",
        '\n{"a": "x\\ty", "b": 1.50, "c": true}\n{"b": -7, "a": ["x", "y"]}',
    )
    rows = quiet(path)
    assert (rows.names, rows.location) == (["a", "b", "c"], f"{path}, line 2")
    first, second = rows.records
    assert (first.location, second.location) == (
        f"{path}, line 2",
        f"{path}, line 3",
    )
    assert [first.value(n) for n in "abc"] == ["x\ty", "1.50", "true"]
    assert (second.value("b"), second.value("a")) == ("-7", ("x", "y"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.txt", "a,b\n", "t.txt ends with none of .tsv, .csv, .jsonl"),
        ("t.csv", "a,b\n", "has a header but no examples"),
        ("t.csv", "a,b\nx\n", "line 2: 1 comma-separated fields.*2 are need"),
        ("t.tsv", "", "is empty; a task of your own needs train.tsv"),
        ("t.tsv", "a\tlabel\n", "has a header but no examples"),
        ("t.tsv", "a\tlabel\r\n", "has a header but no examples"),
        ("t.tsv", "a\tlabel\rx\ty\r", "t.tsv: its lines end with CR alone"),
        ("t.tsv", "a\ta\nx\ty\n", "line 1: the columns are a, a; each needs"),
        (
            "t.tsv",
            "a\tb\nx\ty\tz\n",
            "line 2: 3 tab-separated .* 2 are need",
        ),
        ("t.tsv", "a\tb\nxy\n", "line 2: 1 tab-separated fields.*'xy'"),
        ("t.tsv", "a\tb\nx\ty\n\nx\ty\n", "line 3: 1 tab-separated fields"),
        ("t.tsv", b"a\tb\nx\xff\ty\n", r"line 2: byte 1 \(0xff\) is not UTF-8"),
        ("t.tsv", "a\tb\n".encode("utf-16"), "t.tsv is UTF-16, expected UTF-8"),
        ("t.jsonl", "", "is empty; a task of your own needs train.tsv"),
        ("t.jsonl", "\n", "has no examples"),
        ("t.jsonl", '{"a": "b"}\n{"a" 1}', "line 2: it is not valid JSON"),
        ("t.jsonl", "[1]", r'line 1: it is \["1"\], and must be an object'),
    ],
)
def test_files_of_another_form(tmp_path, name, content, said):
    path = write(tmp_path / name, content)
    assert path in assert_told(quiet, path, said)


@pytest.mark.parametrize("value", [None, {}, float("nan"), ["b", []]])
def test_json_is_checked_where_it_is_read(tmp_path, value):
    path = lines(tmp_path, {"a": value, "text": "x", "label": "y"})
    assert read_texts(path, ["text", "label"]) == [Example(("x",), "y")]
    said = f"line 1: 'a' is {re.escape(json.dumps(value))}; it must be a string"
    assert path in assert_told(
        read_texts, path, said, columns=["a", "text", "label"]
    )


@pytest.mark.parametrize("name", ["", " ", "Unnamed: 0"])
def test_the_index_of_a_data_frame_is_no_text(tmp_path, name):
    rows = [[name, "text", "label"], ["0", "a", "x"], ["1", "b", "y"]]
    path = written_by_csv(tmp_path / "t.csv", rows)
    said = []
    assert own_columns(quiet(path), said.append) == ["text", "label"]
    assert said == [
        f"{path}, line 1: {name!r} is no column's name but that of an index, "
        "and not read."
    ]


def test_which_columns_make_pairs_is_said(tmp_path):
    path = table(tmp_path, "id\ttext\tlabel", "7\ta\tx")
    said = []
    own_columns(quiet(path), said.append)
    assert said == [
        f"{path}, line 1: id, text are read as pairs; --columns names others."
    ]


def test_the_file_of_a_split(tmp_path):
    assert_told(
        find_split,
        str(tmp_path),
        "no dev.tsv or dev.csv or dev.js",
        split="dev",
    )
    path = write(tmp_path / "dev.jsonl", "{}")
    assert find_split(str(tmp_path), "dev") == path
    bucket = f"file://{tmp_path}"
    assert find_split(bucket, "dev") == f"{bucket}/dev.jsonl"
    write(tmp_path / "dev.tsv", "")
    said = r"dev\.tsv and \S*dev\.jsonl are both there"
    assert_told(find_split, str(tmp_path), said, split="dev")
    assert find_split(str(tmp_path), "dev", (".tsv",)).endswith("dev.tsv")
    assert_told(
        find_split,
        str(tmp_path),
        "has no dev.json, which",
        split="dev",
        extensions=(".json",),
    )


@pytest.mark.parametrize(
    "content",
    [
        'text\tlabel\nGood, "quoted" text\tpos\n\t neg \n',
        'label\tsentence\npos\tGood, "quoted" text\nneg\t\n',
        'text\tlabel\r\nGood, "quoted" text\tpos\r\n\tneg',
        b'\xef\xbb\xbftext\tlabel\nGood, "quoted" text\tpos\n\tneg\n',
    ],
)
def test_a_text_and_its_label_in_either_order(tmp_path, content):
    path = write(tmp_path / "t.tsv", content)
    examples = read_own(path)
    assert examples == [
        Example(('Good, "quoted" text',), "pos"),
        Example(("",), "neg"),
    ]
    assert examples[1].location == f"{path}, line 3"


def test_pairs_in_the_order_of_their_columns(tmp_path):
    path = table(tmp_path, "b\tlabel\ta", "x\t0\ty")
    assert columns_of(path) == ["b", "a", "label"]
    assert read_own(path) == [Example(("x", "y"), "0")]
    path = lines(tmp_path, {"b": "x", "a": "y", "label": 0.5})
    assert read_own(path) == [Example(("x", "y"), "0.5")]
    # The order of a later line's members is its own affair.
    path = lines(
        tmp_path,
        {"b": "x", "a": "y", "label": 0},
        {"label": 1, "a": "y", "b": "x"},
    )
    assert read_own(path)[1] == Example(("x", "y"), "1")


def test_named_columns(tmp_path):
    path = table(tmp_path, "id\tgold\ttwo\tone", "7\tyes\tB\tA")
    assert read_texts(path, ["one", "two", "gold"]) == [
        Example(("A", "B"), "yes")
    ]
    assert read_texts(path, ["two", "id"]) == [Example(("B",), "7")]


def test_without_labels(tmp_path):
    path = table(tmp_path, "a\tb", "x\ty")
    found = read_texts(path, ["a", "b", "label"], labelled=False)
    assert found == [Example(("x", "y"), None)]
    found = read_texts(path, ["b", "gold"], labelled=False)
    assert found == [Example(("y",), None)]
    # What is there is read.
    found = read_texts(path, ["b", "a"], labelled=False)
    assert found == [Example(("y",), "x")]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["text\tclass", "a\tb"], "line 1: the columns are text, class; one"),
        (["label", "a"], "line 1: .*one or two with texts, or .*--columns"),
        (
            ["a\tb\tc\tlabel", "1\t2\t3\t4"],
            "line 1: the columns are a, b, c, label; beside 'label' there .*"
            "one or two with texts, or say which are meant with --columns",
        ),
    ],
)
def test_columns_that_do_not_tell_themselves(tmp_path, rows, said):
    path = table(tmp_path, *rows)
    assert path in assert_told(columns_of, path, said)


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (
            ["text\tlabel", "a\t "],
            {"columns": ["text", "label"]},
            "line 2: the label is empty",
        ),
        (
            ["text\tlabel", "a\t "],
            {"columns": ["text", "label"], "labelled": False},
            "line 2: the label is empty",
        ),
        (
            ["a\tb", "1\t2"],
            {"columns": ["a", "gold"]},
            "line 1: there is no column 'gold'; the columns are a, b",
        ),
        (
            ["a\tb", "1\t2"],
            {"columns": ["text", "gold"], "labelled": False},
            "line 1: there is no column 'text'; the columns are a, b",
        ),
        (
            ["a\tb", "1\t2"],
            {"columns": ["a", "a", "b"]},
            "--columns=a,a,b names a column twice",
        ),
        (
            ["a\tb", "1\t2"],
            {"columns": ["a", "a"]},
            "--columns=a,a names a column twice",
        ),
    ],
)
def test_columns_that_do_not_fit(tmp_path, rows, options, said):
    assert_told(read_texts, table(tmp_path, *rows), said, **options)


@pytest.mark.parametrize(
    ("second", "columns", "said"),
    [
        # A second text that the first line lacks is not passed over.
        (
            {"a": "x", "b": "y", "label": 1},
            None,
            "line 2: the columns are a, b, label, and those of the first line",
        ),
        ({"a": "x"}, None, "line 2: the columns are a, and those of the"),
        ({"a": "x"}, ["a", "label"], "line 2: there is no column 'label'"),
        ({"a": ["x"], "label": 1}, None, r'line 2: a is \["x"\], and must be'),
    ],
)
def test_json_lines_that_are_unlike_the_first(tmp_path, second, columns, said):
    path = lines(tmp_path, {"a": "x", "label": 0}, second)
    if columns is None:
        assert path in assert_told(read_own, path, said)
    else:
        assert_told(read_texts, path, said, columns=columns)


def test_choices_in_columns(tmp_path):
    path = table(
        tmp_path,
        "right\tstart\tend_0\tend_1\tend_2",
        "2\tA _ man\twalks\truns\tsits",
        "end_0\tIt\tis\twas\tshall",
    )
    ends = ["end_0", "end_1", "end_2"]
    found = read_choices(path, "start", ends, "right")
    assert found == [
        ChoiceExample("A _ man", ("walks", "runs", "sits"), 2, id="0"),
        ChoiceExample("It", ("is", "was", "shall"), 0, id="1"),
    ]
    assert found[1].location == f"{path}, line 3"
    found = read_choices(path, "start", ends, "gold", labelled=False)
    assert [e.label for e in found] == [None, None]
    # What is there is read.
    found = read_choices(path, "start", ends, "right", labelled=False)
    assert [e.label for e in found] == [2, 0]


def test_the_name_of_a_column_goes_before_its_number(tmp_path):
    path = table(tmp_path, "c\t1\t2\t0\tgold", "x\ta\tb\tc\t1")
    (example,) = read_choices(path, "c", ["1", "2", "0"], "gold")
    assert example.label == 0


@pytest.mark.parametrize("columns", [["choices"], ["one", "two"], ["B", "A"]])
def test_the_letter_of_a_choice(tmp_path, columns):
    """From A, unless a choice's column has that name."""
    value = {"context": "X", "choices": ["a", "b"], "one": "a", "two": "b"}
    value |= {"B": "a", "A": "b"}
    path = lines(tmp_path, *({**value, "gold": letter} for letter in "ABBA"))
    found = [e.label for e in read_choices(path, "context", columns, "gold")]
    assert found == ([1, 0, 0, 1] if "A" in columns else [0, 1, 1, 0])


def test_choices_in_a_list(tmp_path):
    value = {"context": "X", "choices": ["a", "b"], "label": 1}
    path = lines(
        tmp_path,
        {**value, "question": "Is _ so _?"},
        {**value, "question": "Which?"},
    )
    columns = ("context", ["choices"], "label")
    found = read_choices(path, *columns, question="question")
    assert [e.choices for e in found] == [
        ("Is a so a?", "Is b so b?"),
        ("Which? a", "Which? b"),
    ]
    assert [(e.context, e.label) for e in found] == [("X", 1)] * 2
    # Columns that are named are all that is read.
    found = read_choices(path, *columns)
    assert [e.choices for e in found] == [("a", "b")] * 2


def test_a_question_with_choices_in_columns(tmp_path):
    path = table(tmp_path, "q\tc\ta\tb\tgold", "Is _?\tX\tred\tblue\tb")
    found = read_choices(path, "c", ["a", "b"], "gold", question="q")
    assert found == [ChoiceExample("X", ("Is red?", "Is blue?"), 1, id="0")]


def test_every_line_has_its_question(tmp_path):
    value = {"context": "X", "choices": ["a", "b"], "label": 1}
    path = lines(tmp_path, {**value, "question": "Which?"}, value)
    options = {"context": "context", "of_choices": ["choices"]}
    options |= {"label": "label", "question": "question"}
    said = "line 2: there is no column 'question'; the columns are context, ch"
    assert path in assert_told(read_choices, path, said, **options)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"label": 2},
            "line 2: the label is '2'; it must be a number from 0 to 1, a "
            "letter from A to B.",
        ),
        ({"label": -1}, "the label is '-1'; it must be a number from 0 to 1,"),
        ({"label": "C"}, "the label is 'C'; it must be .* from A to B."),
        ({"label": "AB"}, "the label is 'AB'; it must be .* from A to B."),
        ({"label": "a"}, "the label is 'a'; it must be .* from A to B."),
        # One list is no column for each choice.
        ({"label": "choices"}, "the label is 'choices'; it must be a number"),
        ({"label": " "}, "line 2: the label is empty"),
        ({"label": ["0"]}, r'line 2: label is \["0"\], and must be a string'),
        ({"choices": ["a"]}, "line 2: choices has 1 choices; two or more"),
        (
            {"choices": "a b"},
            "choices has 1 choices; two or more are nee",
        ),
        ({"choices": ["a", "b", "c"]}, "line 2: 3 choices, where .* has 2"),
        ({"context": ["X"]}, r'line 2: context is \["X"\], and must be a str'),
        ({"question": ["X"]}, r'line 2: question is \["X"\], and must be a s'),
    ],
)
def test_choices_that_do_not_fit(tmp_path, changes, said):
    value = {"context": "X", "choices": ["a", "b"], "label": 1}
    value["question"] = "Which?"
    path = lines(tmp_path, value, {**value, **changes})
    found = assert_told(
        read_choices,
        path,
        said,
        context="context",
        of_choices=["choices"],
        label="label",
        question="question",
    )
    assert path in found


def test_columns_of_choices_that_do_not_fit(tmp_path):
    path = table(tmp_path, "c\ta\tb\tlabel", "x\ty\tz\tc")
    options = {"context": "c", "of_choices": ["a", "b"], "label": "label"}
    said = "line 2: the label is 'c'; it must be .* from A to B, or one of a, b"
    assert_told(read_choices, path, said, **options)
    said = "line 1: there is no column 'context'; the columns are c, a, b"
    assert_told(read_choices, path, said, **{**options, "context": "context"})
    said = "line 1: there is no column 'q'; the columns are c, a, b"
    assert_told(read_choices, path, said, **options, question="q")
    said = "--columns=c,a,b,a,label names a column twice"
    assert_told(read_choices, path, said, **options, question="a")
