"""Users' own files: quotes, columns, and errors in them."""

import json
import re

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import Example
from albert_tf.tasks.formats.choice_rows import choice_examples
from albert_tf.tasks.formats.column_inference import infer_columns
from albert_tf.tasks.formats.columns import (
    multi_label_examples,
    text_examples,
)
from albert_tf.tasks.formats.entity_spans import entity_examples
from albert_tf.tasks.formats.rows import read_rows
from albert_tf.tasks.formats.word_lists import word_list_examples


@pytest.fixture
def table(write):
    return lambda *rows: write("t.tsv", "".join(f"{row}\n" for row in rows))


@pytest.fixture
def lines(write):
    return lambda *values: write(
        "t.jsonl", "".join(f"{json.dumps(value)}\n" for value in values)
    )


def quiet(path):
    return read_rows(path, pytest.fail)


def columns_of(path, log=lambda line: None):
    return infer_columns(read_rows(path, log))


def read_texts(path, columns="text label", labelled=True):
    *texts, label = columns.split()
    roles = {"text": texts, "label": [label]}
    return text_examples(quiet(path), roles, labelled)


def read_choices(path, context, choices, label, labelled=True, **question):
    roles = {"context": [context], "choice": choices, "label": [label]}
    return choice_examples(quiet(path), roles | question, labelled)


def read_own(path):
    rows = read_rows(path, lambda line: None)
    return text_examples(rows, infer_columns(rows), True)


def assert_error(function, path, message, **options):
    with pytest.raises(UserError, match=message) as raised:
        function(path, **options)
    assert path in str(raised.value) and "\n" not in str(raised.value)


def test_rows_of_json_lines(write):
    # Numbers as they are written, truth values as JSON has them.
    path = write(
        "t.jsonl",
        '\n{"a": "x\\ty", "b": 1.50, "c": true}\n{"b": -7, "a": ["x", "y"]}',
    )
    first, second = quiet(path).records
    assert (first.location, second.location) == (f"{path}:2", f"{path}:3")
    assert [first.texts(n) for n in "abc"] == ["x\ty", "1.50", "true"]
    assert (second.texts("b"), second.texts("a")) == ("-7", ("x", "y"))


def test_rows_of_a_json_array(write):
    path = write("t.json", '\n[{"a": "x",\n"b": 1.50}, {"a": "y"},\n{}]\n')
    found = quiet(path).records
    assert [record.location for record in found] == [
        f"{path}:{number}" for number in (2, 3, 4)
    ]
    assert [record.values for record in found] == [
        {"a": "x", "b": "1.50"},
        {"a": "y"},
        {},
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "a,b\nx\n", ":2: expected 2 comma-separated fields, got 1"),
        ("t.tsv", "a\n1\tx\n", r"fields \(R's .*row.names=FALSE\), got 2"),
        ("t.csv", "a,b\n\ufeffa,b\n", ":2: the names of the columns again"),
        ("t.csv", 'a,b\n\ufeff"a",b\n', ":2: the names of the columns ag"),
        ("t.tsv", "", "is empty; the first line of a table names"),
        ("t.jsonl", "{}\r{}\r", "t.jsonl: its lines end with CR alone"),
        ("t.tsv", "a\ta\nx\ty\n", ":1: expected distinct columns, got a, a"),
        ("t.tsv", b"a\tb\nx\xff\ty\n", r":2: byte 1 \(0xff\) is not UTF-8"),
        ("t.tsv", "a\tb\n".encode("utf-16"), "t.tsv is UTF-16, expected UTF-8"),
        ("t.jsonl", "\n", "has no examples"),
        ("t.jsonl", "[1]", r":1: expected an object, got \[1\]"),
        ("t.json", "[\n2]", ":2: expected an object, got"),
        ("t.csv", b"PK\x03\x04\x14\0", "t.csv is an Excel workbook or another"),
    ],
)
def test_files_of_another_form(write, name, content, message):
    assert_error(quiet, write(name, content), message)


def test_a_text_like_the_name_of_the_only_column_is_no_header(write):
    *_, last = quiet(write("t.csv", "text\nthe sea\ntext\n")).records
    assert last.values == {"text": "text"}


def test_a_column_of_splits_is_reported(table):
    logged = []
    rows = [" train", "validation ", "train"]
    read_rows(
        table("text\tsplit", *(f"a\t{row}" for row in rows)), logged.append
    )
    (line,) = logged
    assert "the rows of train (2) and validation (1), as 'split' has" in line
    quiet(table("text\tsplit", "a\ttrain", "b\ttrain"))
    quiet(table("text\tsplit", "train\t1", "a test\t2"))


def test_a_row_that_is_too_long_does_not_tell_of_r(write):
    for rows in (["1\tx", "y"], ["x", "2\ty"], ["x"] * 120 + ["1\ty"]):
        path = write("t.tsv", "\n".join(["a", *rows]))
        found = read_rows(path, pytest.fail)
        message = "^[^(]*:[0-9]+: expected 1 tab-separated fields, got 2: '.*'"
        with pytest.raises(UserError, match=message):
            found.settled(found.records)


def test_names_of_columns_have_no_blanks_around_them(lines):
    path = lines({" text": "x", "label ": 1, "a": 1, "a ": 2})
    assert quiet(path).columns == [" text", "label ", "a", "a "]
    path = lines({" text": "x", "label ": 1})
    assert read_texts(path) == [Example(("x",), "1")]


def test_json_is_checked_where_it_is_read(lines):
    value = ["b", []]
    path = lines({"a": value, "text": "x", "label": "y"})
    assert read_texts(path) == [Example(("x",), "y")]
    message = (
        f":1: expected a string, .* as 'a', got {re.escape(json.dumps(value))}"
    )
    assert_error(read_texts, path, message, columns="a text label")


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "Unnamed: 0", "Unnamed: 0.1", "level_0", "...1"),
        *("__index_level_0__", "rownames", "row", "#"),
        *("idx", "ID", "index", "t_id", "reviewId", "PhraseID"),
    ],
)
def test_the_number_of_a_row_is_no_text(write, name):
    path = write("t.csv", f"{name},sentence,label\n0,a,x\n1,b,y\n")
    assert read_own(path) == [Example(("a",), "x"), Example(("b",), "y")]
    logged = []
    columns_of(path, logged.append)
    assert logged == [
        f"{path}:1: columns that are ignored: {name.strip()!r}; --columns "
        "names others."
    ]


@pytest.mark.parametrize(
    "content",
    [
        'label\tsentence\npos\tGood, "quoted" text\n neg \t.\n',
        b'\xef\xbb\xbftext\tlabel\r\nGood, "quoted" text\tpos\r\n.\tneg',
    ],
)
def test_a_text_and_its_label_in_either_order(write, content):
    path = write("t.tsv", content)
    examples = read_own(path)
    assert examples == [
        Example(('Good, "quoted" text',), "pos"),
        Example((".",), "neg"),
    ]
    assert examples[1].location == f"{path}:3"


def test_columns_beside_one_called_text_are_no_texts(table, lines):
    path = table("id\ttext\tlabel", "07\ta\tx")
    logged = []
    roles = columns_of(path, logged.append)
    assert roles == {"text": ["text"], "label": ["label"]}
    assert logged == [
        f"{path}:1: columns that are ignored: 'id'; --columns names others."
    ]
    path = table("label\ttext\turl\ttext_pair", "x\ta\tu\tb")
    assert columns_of(path)["text"] == ["text", "text_pair"]
    # Lines of JSON may differ in what is not read, but not in the second text.
    line = {"text": "a", "label": "x"}
    path = lines({**line, "meta": {"id": 1}}, line, {**line, "text_pair": "b"})
    assert_error(read_own, path, ":3: expected the columns text, label, as mo")


def test_pairs_in_the_order_of_their_columns(table, lines):
    path = table("b\tlabel\ta", "x\t0\ty")
    logged = []
    roles = columns_of(path, logged.append)
    assert roles == {"text": ["b", "a"], "label": ["label"]}
    assert logged == [
        f"{path}:1: b, a are read as pairs; --columns names others."
    ]
    assert read_own(path) == [Example(("x", "y"), "0")]
    # The order of a later line's members is its own affair.
    path = lines(
        {"b": "x", "a": "y", "label": 0.5},
        {"label": 1, "a": "y", "b": "x"},
    )
    assert [(e.texts, e.label) for e in read_own(path)] == [
        (("x", "y"), "0.5"),
        (("x", "y"), "1"),
    ]


@pytest.mark.parametrize(
    "rows",
    [["text\tclass", "a\tb"], ["label", "a"], ["a\tb\tc\tlabel", "1\t2\t3\t4"]],
)
def test_columns_that_cannot_be_inferred(table, rows):
    message = (
        ":1: expected one or two columns of texts and 'label', got "
        f"{', '.join(rows[0].split())}; name the columns with --columns. "
        "The first line names the columns of a table; where it is a row, put "
    )
    assert_error(columns_of, table(*rows), message)


def test_a_list_of_one_label_is_that_label(lines):
    """doccano writes such lists."""
    path = lines({"text": "a", "label": ["x"]}, {"text": "b", "label": "y"})
    assert [e.label for e in read_own(path)] == ["x", "y"]
    for labels in ([], ["x", "y"]):
        message = ":1: expected one label as .label.; .*,labels=label reads s"
        path = lines({"text": "a", "label": labels})
        assert_error(read_own, path, message)


def test_labels_may_not_be_empty_nor_columns_missing(table):
    path = table("text\tlabel", "a\t ", "b\tx")
    assert_error(read_texts, path, ":2: the label is empty", labelled=False)
    path = table("a\tb", "1\t2")
    message = ":1: expected the column 'gold', got a, b; name the columns with"
    assert_error(read_texts, path, message, columns="a gold")


def test_a_column_that_differs_in_case_is_named(table):
    path = table("uid\tbody\tLabel", "1\ta\tx")
    named = r"got uid, body, Label \(did you mean 'Label'\?\); name the col"
    assert_error(read_own, path, named)
    path = table("body\tGold", "a\tx")
    named = r"got body, Gold \(did you mean 'Gold'\?\); name"
    assert_error(read_texts, path, named, columns="body gold")


@pytest.mark.parametrize("other", ["c{}", "en"])
def test_what_the_label_decides_is_no_text(table, other):
    """But few rows may be alike by chance."""
    labels = [n % 2 for n in range(20)]
    rows = [f"{other.format(n)}\tt{i}\t{n}" for i, n in enumerate(labels)]
    path = table("class\tsaid\tlabel", *rows)
    message = ":1: 'class' has one value in all rows of a 'label', .*--columns"
    assert_error(columns_of, path, message)
    path = table("class\tsaid\tlabel", *rows[:-1])
    assert columns_of(path)["text"] == ["class", "said"]
    # It is the text where there is no other.
    path = table("class\tlabel", *["a\tx", "b\ty"] * 10)
    assert columns_of(path)["text"] == ["class"]


def test_a_column_of_numbers_is_no_text_by_itself(table):
    rows = [f"t{n}\t{n}\tx" for n in range(10)]
    path = table("said\tlength\tlabel", *rows)
    message = ":1: 'length' has numbers in all rows, and would be .*--columns"
    assert_error(columns_of, path, message)
    # Few rows may have numbers by chance.
    path = table("said\tlength\tlabel", *rows[:-1])
    assert columns_of(path)["text"] == ["said", "length"]
    path = table("text\ttext_pair\tlabel", *rows)
    assert columns_of(path)["text"] == ["text", "text_pair"]


def test_names_that_end_like_numbers_of_rows(write):
    path = write("t.csv", "covid,label\na,x\nb,y\n")
    assert read_own(path) == [Example(("a",), "x"), Example(("b",), "y")]


@pytest.mark.parametrize(
    "labels",
    [["", " "], [-1, -1], [-1.0, -1.0], [None, None], [float("nan"), None]],
)
def test_a_test_file_may_have_columns_without_labels(lines, labels):
    """Labels of the hub's ai2_arc are empty, those of its glue -1 or -1.0."""
    path = lines(*({"text": "a", "label": label} for label in labels))
    logged = []
    rows = read_rows(path, logged.append)
    roles = {"text": ["text"], "label": ["label"]}
    found = text_examples(rows, roles, False)
    assert [example.label for example in found] == [None, None]
    assert logged == [
        f"{path}:1: label is empty or -1 in all rows; they are read without "
        "labels."
    ]
    # Where labels are needed they are looked at, and -1 is one.
    if labels[0] == -1:
        found = read_texts(path, "text label")
        assert [example.label for example in found] == [*map(str, labels)]


def test_rows_that_an_annotator_rejected_are_left_out(lines):
    answers = ["accept", "reject", "accept", "ignore", "reject"]
    rows = [
        {"text": f"{n}", "label": "x", "spans": [], "answer": answer}
        for n, answer in enumerate(answers)
    ]
    path, logged = lines(*rows), []
    roles = {"text": ["text"], "label": ["label"]}
    found = text_examples(read_rows(path, logged.append), roles, True)
    assert [example.texts for example in found] == [("0",), ("2",)]
    assert logged == [
        f"{path}:1: rows are left out that have another answer than accept: "
        "ignore 1, reject 2."
    ]
    entities = {"text": ["text"], "entities": ["spans"]}
    rows_of_words = read_rows(path, lambda line: None)
    assert len(entity_examples(rows_of_words, entities, True)) == 2
    # A column that is read, or has other values, is none of decisions.
    asked = read_texts(path, "text answer")
    assert [example.label for example in asked] == answers
    assert len(read_texts(lines(*rows, {**rows[0], "answer": "yes"}))) == 6
    # Rows of another program have none.
    rows_of_both = lines(*rows, {"text": "z", "label": "y"})
    found = text_examples(read_rows(rows_of_both, str), roles, True)
    assert [example.texts for example in found] == [("0",), ("2",), ("z",)]
    assert_error(read_texts, lines(rows[1]), ":1: no row has answer=accept")


def test_json_lines_unlike_the_first(lines):
    first = {"a": "x", "label": 0}
    # A second text that the first line lacks is not ignored.
    for second in ({"a": "x", "b": "y", "label": 1}, {"a": "x"}):
        path = lines(first, second)
        message = (
            f":2: expected the columns a, label, as most lines have .*, got "
            f"{', '.join(second)}\\."
        )
        assert_error(read_own, path, message)
    path = lines(first, {"a": ["x"], "label": 1})
    assert_error(read_own, path, r':2: expected a string as a, got \["x"\]')


def test_a_file_whose_name_tells_no_form(write):
    path = write("train.txt", '\ufeff{"text": "a", "label": "x"}\n')
    assert quiet(path).records[0].values == {"text": "a", "label": "x"}
    path = write("train.txt", "__label__x a\n")
    message = f"^{path}: expected a name that ends with .tsv or .csv or .jsonl"
    with pytest.raises(UserError, match=message):
        quiet(path)


@pytest.mark.parametrize("columns", [["choices"], ["one", "two"], ["B", "A"]])
def test_the_letter_of_a_choice(lines, columns):
    """Letters begin at A, unless a choice's column has that name."""
    value = {"context": "X", "choices": ["a", "b"], "one": "a", "two": "b"}
    value |= {"B": "a", "A": "b"}
    path = lines(*({**value, "gold": letter} for letter in "ABBA"))
    found = [e.label for e in read_choices(path, "context", columns, "gold")]
    assert found == ([1, 0, 0, 1] if "A" in columns else [0, 1, 1, 0])
    if columns == ["one", "two"]:
        path = lines({**value, "gold": "c"})
        message = "expected .* from A, or one of one, two as the label, got 'c'"
        with pytest.raises(UserError, match=message):
            read_choices(path, "context", columns, "gold")


def test_the_text_of_the_right_choice(lines):
    """Numbers too, which would else be those of other choices."""
    rows = [
        {"context": "X", "choices": choices, "label": right}
        for choices, right in [
            ([3, 4, 1], 1),
            ([2, 1, 0], "0"),
            (["7", " five "], "five"),
            ([9, 8, 7], 9),
        ]
    ]
    columns = ("context", ["choices"], "label")
    rows[2]["choices"].append("6")
    found = read_choices(lines(*rows), *columns)
    assert [example.label for example in found] == [2, 2, 1, 0]
    message = ":5: expected the text of one choice as the label, got '5'"
    for choices in ([5, 5, 4], [1, 2, 3]):
        path = lines(*rows, {**rows[0], "choices": choices, "label": 5})
        with pytest.raises(UserError, match=message):
            read_choices(path, *columns)


def test_labels_that_are_numbers_and_texts_of_choices(lines):
    rows = [{"context": "X", "choices": [1, 0], "label": n} for n in (0, 1)]
    columns = ("context", ["choices"], "label")
    message = ":1: the labels as 'label' are texts of choices and .* letters"
    with pytest.raises(UserError, match=message):
        read_choices(lines(*rows), *columns)
    same = [{**row, "choices": [0, 1]} for row in rows]
    found = read_choices(lines(*same), *columns)
    assert [example.label for example in found] == [0, 1]


def test_choices_in_a_list(lines):
    value = {"context": "X", "choices": ["a", "b"], "label": 1}
    path = lines(
        {**value, "question": "Is _ so _?"},
        {**value, "question": "Which?"},
    )
    columns = ("context", ["choices"], "label")
    found = read_choices(path, *columns, question=["question"])
    assert [e.choices for e in found] == [
        ("Is a so a?", "Is b so b?"),
        ("Which? a", "Which? b"),
    ]
    assert [(e.context, e.label) for e in found] == [("X", 1)] * 2
    assert [e.location for e in found] == [f"{path}:1", f"{path}:2"]
    # Columns that are named are all that is read.
    found = read_choices(path, *columns)
    assert [e.choices for e in found] == [("a", "b")] * 2


def test_blanks_of_a_question_stand_alone(lines):
    """Any number of underscores is a blank, but within an identifier."""
    value = {"context": "X", "choices": [r"\1", "b"], "label": 0}
    for question, first in (
        ("Is ___ so _?", r"Is \1 so \1?"),
        ("my_var _", r"my_var \1"),
        ("We know that_ .", r"We know that\1 ."),
        ("He is _years old", r"He is \1years old"),
        ("What is my_var?", r"What is my_var? \1"),
    ):
        (found,) = read_choices(
            lines({**value, "question": question}),
            *("context", ["choices"], "label"),
            question=["question"],
        )
        assert found.choices[0] == first


def test_choices_with_labels_of_their_own(lines):
    """The labels of some rows are numbers in the hub's ai2_arc."""

    def row(labels, right):
        choices = {"text": ["dry palms", "wet palms"], "label": labels}
        return {"question": "What heats?", "choices": choices, "key": right}

    def as_in_other_files(value):
        choices = value["choices"]
        pairs = list(zip(choices["label"], choices["text"], strict=True))
        objects = [{"label": label, "text": text} for label, text in pairs]
        return {**value, "choices": objects}, {**value, "choices": dict(pairs)}

    columns = ("question", ["choices"], "key")
    path = lines(row(["A", "B"], "B"), row(["1", "2"], "2"), row([2, 1], 2))
    found = read_choices(path, *columns)
    assert [e.choices for e in found] == [("dry palms", "wet palms")] * 3
    assert [e.label for e in found] == [1, 1, 0]
    # CommonsenseQA's own files have this form, and MedQA's.
    path = lines(*as_in_other_files(row(["B", "A"], "A")))
    found = read_choices(path, *columns)
    assert [e.choices for e in found] == [("dry palms", "wet palms")] * 2
    assert [e.label for e in found] == [1, 1]
    message = ":1: expected lists of one length as 'text' and 'label' of 'ch"
    assert_error(
        read_choices,
        lines(row(["A"], "A")),
        message,
        context="question",
        choices=["choices"],
        label="key",
    )


def test_choices_counted_from_one_are_no_bad_rows(lines):
    """Without the last choice they would be learned as the next one."""
    value = {"context": "X", "choices": ["a", "b"], "1": "a", "2": "b"}
    path = lines(*({**value, "label": label} for label in (1, 2, 1)))
    found = read_choices(path, "context", ["1", "2"], "label")
    assert [example.label for example in found] == [0, 1, 0]
    message = ":1: the numbers of the right choices as 'label' .* 1 to 2, exp"
    assert_error(
        read_choices,
        path,
        message,
        context="context",
        choices=["choices"],
        label="label",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"label": 2},
            ":2: expected a number from 0 to 1, a letter from A as the label, "
            "got '2'",
        ),
        # The column of a list is no choice.
        ({"label": "choices"}, ":2: expected a number .*, got 'choices'"),
        (
            {"choices": "a b"},
            ":2: expected two choices .* as choices .*, got 1",
        ),
        ({"context": ["X"]}, ":2: expected a string as context"),
        ({"choices": [" ", "b"]}, ":2: the right choice is empty"),
        ({"question": ...}, ":2: expected the column 'question', got context"),
    ],
)
def test_choices_that_do_not_fit(lines, changes, message):
    value = {"context": "X", "choices": ["a", "b"], "label": 0}
    value["question"] = "Which?"
    second = {n: v for n, v in {**value, **changes}.items() if v is not ...}
    assert_error(
        read_choices,
        lines(value, second),
        message,
        context="context",
        choices=["choices"],
        label="label",
        question=["question"],
    )


def test_a_label_that_no_file_can_hold_is_a_bad_row(lines):
    half = json.loads('"\\ud83d"')
    path = lines(
        {"text": "a b", "label": half, "tags": ["O", half]}
        | {"words": ["a", "b"], "entities": [[0, 1, half]]}
    )
    text, words = {"text": ["text"]}, {"words": ["words"]}
    for read, roles in (
        (text_examples, text | {"label": ["label"]}),
        (multi_label_examples, text | {"labels": ["tags"]}),
        (word_list_examples, words | {"tags": ["tags"]}),
        (entity_examples, text | {"entities": ["entities"]}),
    ):
        with pytest.raises(UserError, match=r":1: half of a surrogate pair in"):
            read(quiet(path), roles, True)
