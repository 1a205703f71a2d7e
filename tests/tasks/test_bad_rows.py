"""Rows that cannot be used: listed, skipped and counted."""

import functools
import json
import pickle

import pandas
import pytest

from albert_tf.config import UserError
from albert_tf.prediction.forms import SINGLE
from albert_tf.prediction.table_inputs import read_table
from albert_tf.tasks.bad_rows import BadRows, RowError, made_of_all
from albert_tf.tasks.custom import classification_task, custom_task
from albert_tf.tasks.formats.rows import Reading

SKIPPING = Reading(skip_bad_rows=True)


def errors_of(rows):
    """Returns what collects an error for each (line, reason, detail)."""

    def refuse(row):
        line, *rest = row
        raise RowError(f"/d/t.csv:{line}", *rest)

    bad = BadRows()
    bad.apply(refuse, rows)
    return bad


def ignore(line):
    """Logs nothing."""


def message_of(function, *arguments, **options):
    with pytest.raises(UserError) as raised:
        function(*arguments, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_one_row_has_a_message_of_its_own():
    bad = errors_of([(7, "expected a number", ", got 'x'")])
    assert (
        message_of(bad.refuse, 3) == "/d/t.csv:7: expected a number, got 'x'."
    )


def test_the_first_twenty_in_the_order_of_the_file():
    numbers = [(n, "expected a number", f", got '{n}'") for n in (40, 6, 50)]
    empty = [(n, "the label is empty") for n in range(7, 37)]
    assert message_of(errors_of(numbers + empty).refuse, 100) == (
        "/d/t.csv: 33 of 133 rows are bad: expected a number (3: lines 6, got "
        "'6'; 40, got '40'; 50, got '50'); the label is empty (30: lines "
        f"{', '.join(map(str, range(7, 24)))} and 13 others)."
    )


def test_a_message_is_short_whatever_stands_in_the_rows(write, tmp_path):
    """It has as many rows as fit, at least one, and a part of each value."""
    text = 99 * "word "
    for roles in ("text=text,number=label", "text=text,labels=label"):
        write(
            "train.jsonl",
            lines_of(*[{"text": text, "label": {"a": text}}] * 60),
        )
        task = custom_task(roles.split(","))
        error = message_of(task.read, str(tmp_path), "train", ignore)
        assert "60 of 60 rows are bad" in error and "lines 1, got" in error
        assert len(error.removeprefix(str(tmp_path))) < 600
    write("train.jsonl", lines_of(*[{"text": "a", "label": text}] * 9, {}))
    labels = classification_task(SKIPPING)
    examples = labels.read(str(tmp_path / "train.jsonl"), "test", ignore)
    error = message_of(labels.kind.labels, examples)
    assert len(error.removeprefix(str(tmp_path))) < 300


def test_reasons_beyond_the_first_twenty_are_counted():
    rows = [(n, "a") for n in range(20)] + [(n, "b") for n in (20, 21)]
    assert message_of(errors_of(rows).refuse, 0).endswith("; b (2).")


def test_skipped_rows_are_logged():
    logged = []
    bad = errors_of([(3, "a"), (4, "b", " (c)")])
    bad.settle(1, True, logged.append)
    described = (
        "/d/t.csv: 2 of 3 rows are bad: a (1: line 3); b (1: line 4 (c))."
    )
    assert logged == [f"{described} Skipped: 2."]
    expected = f"{described} --skip_bad_rows skips such rows."
    assert message_of(bad.settle, 1, False, pytest.fail) == expected
    # No row is left, whatever is skipped.
    for skip in (False, True):
        assert "2 of 2 rows are bad" in message_of(
            bad.settle, 0, skip, pytest.fail
        )
    errors_of([]).settle(1, False, pytest.fail)


def test_texts_in_folders_of_a_bucket_have_no_lines():
    def refuse(path):
        raise RowError(path, "the file has no text")

    bad = BadRows()
    bad.apply(refuse, ["gs://b/x/1.txt", "gs://b/x/2.txt"])
    assert message_of(bad.refuse, 1) == (
        "2 of 3 rows are bad: the file has no text (2: gs://b/x/1.txt, "
        "gs://b/x/2.txt)."
    )


def test_all_examples_at_once():
    def check(number):
        if number > 2:
            raise RowError(f"text {number}", "too many")
        return -number

    assert made_of_all(check, [1, 2]) == [-1, -2]
    expected = "2 of 3 examples are bad: too many (2: text 3, text 4)."
    assert message_of(made_of_all, check, [1, 3, 4]) == expected


def test_an_error_reaches_another_process():
    error = pickle.loads(pickle.dumps(RowError("f:1", "a", " b")))
    assert (str(error), error.reason) == ("f:1: a b.", "a")


def lines_of(*values):
    return "".join(f"{json.dumps(value)}\n" for value in values)


@pytest.mark.parametrize(
    ("task", "name", "content", "lines", "message"),
    [
        (
            classification_task,
            "train.csv",
            'text,label\na,\nb,x\nc\nd,y,z\n"e\n", \nf,y\n',
            [3, 8],
            "4 of 6 rows are bad: the label is empty (2: lines 2, 6); expected "
            "2 comma-separated fields (2: lines 4, got 1: 'c'; 5, got 3: "
            "'d,y,z').",
        ),
        (
            classification_task,
            "train.jsonl",
            lines_of(
                {"text": "a"},
                {"text": "b", "label": 1},
                [],
                {"text": ["c"], "label": 1},
                {"label": 2, "text": "d"},
                {"label": 2, "text": "e", "more": "f"},
            )
            + "{\n",
            [2, 5, 6],
            "4 of 7 rows are bad: expected the columns text, label, as most "
            "lines have (--columns names others) (1: line 1, got text); "
            "expected an object (1: line 3, got []); "
            'expected a string as text (1: line 4, got ["c"]); expected JSON '
            "(1: line 7 "
            "(Expecting property name enclosed in double quotes: line 1 "
            "column 2 (char 1))).",
        ),
        (
            lambda reading: custom_task(["text=a", "number=b"], reading),
            "train.tsv",
            "a\tb\nx\t1\nx\tgood\nx\tnan\nx\t\n",
            [2],
            "3 of 4 rows are bad: expected a number, with a decimal point and "
            "up to 3.4e+38, as the label (2: lines 3, got 'good'; 4, got "
            "'nan'); the label is empty (1: line 5).",
        ),
        (
            lambda reading: custom_task(
                ["context=a", "choice=b", "label=c"], reading
            ),
            "train.jsonl",
            lines_of(
                {"a": "x", "b": ["y", "z"], "c": 1},
                {"a": "x", "b": ["y"], "c": 0},
                {"a": "x", "b": ["y", "z", "u"], "c": 0},
                {"a": "x", "b": ["y", "z"], "c": 2},
                {"b": ["y", "z"], "c": 1},
                {"a": "x", "b": ["y", "z"], "c": "A"},
            ),
            [1, 6],
            "4 of 6 rows are bad: expected two choices or more as b (a list in "
            "JSON, or several columns) (1: line 2, got 1: 'y'); expected 2 "
            "choices, as most rows have (1: line 3, got 3); expected a number "
            "from 0 to 1, a letter from A as the label (1: line 4, got '2'); "
            "expected the column 'a' (1: line 5, got b, c).",
        ),
        (
            lambda reading: custom_task(["word=0", "tag=1"], reading),
            "train.conll",
            "a O\nb\n\nc B-X\n\nd\n",
            [4],
            "2 of 3 sentences are bad: expected at least 2 columns (2: lines "
            "2, got 1: 'b'; 6, got 1: 'd').",
        ),
    ],
)
def test_files_of_each_form(
    write, tmp_path, task, name, content, lines, message
):
    path = write(name, content)
    logged = []
    found = task(SKIPPING).read(str(tmp_path), "train", logged.append)
    assert [e.location for e in found] == [f"{path}:{n}" for n in lines]
    number = message.partition(" ")[0]
    assert logged[-1] == f"{path}: {message} Skipped: {number}."
    if hasattr(found[0], "id"):
        assert [e.id for e in found] == ["0", "1"]
    error = message_of(task(Reading()).read, str(tmp_path), "train", ignore)
    assert error == f"{path}: {message} --skip_bad_rows skips such rows."


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
@pytest.mark.parametrize("role", ["label", "number", "labels"])
def test_an_empty_text_is_bad_in_every_form(tmp_path, name, role):
    """A cell that is empty, blank or null; of a pair one may be."""
    frame = pandas.DataFrame(
        {
            "a": ["x", None, "", " ", None],
            "b": ["y", "z", None, "\t", "z"],
            "label": [1, 2, 1, 2, 1],
        }
    )
    writers = {
        "a.csv": functools.partial(frame.to_csv, index=False),
        "a.jsonl": functools.partial(
            frame.to_json, orient="records", lines=True
        ),
        "a.parquet": frame.to_parquet,
    }
    path = str(tmp_path / name)
    writers[name](path)
    first = 2 if name == "a.csv" else 1
    single = custom_task(["text=a", f"{role}=label"])
    lines = ", ".join(str(first + row) for row in (1, 2, 3, 4))
    assert message_of(single.read, path, "test", ignore) == (
        f"{path}: 4 of 5 rows are bad: the text is empty (4: lines {lines}). "
        "--skip_bad_rows skips such rows."
    )
    pair = custom_task(["text=a", "text=b", f"{role}=label"], SKIPPING)
    found = pair.read(path, "test", ignore)
    assert [e.texts for e in found] == [("x", "y"), ("", "z"), ("", "z")]
    # Predictions keep the row, with the error in its place.
    inputs = read_table(path, ["text=a"], "csv", ignore).read(SINGLE, ())
    errors = [str(item.error or "").rpartition(": ")[2] for item in inputs]
    assert errors == ["", *["the text is empty."] * 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,label\nx\ny\n", "t.csv: 2 of 2 rows are bad: expected 2 comma"),
        ("a,label\nx,\n", "t.csv:2: the label is empty.$"),
        # What is wrong with the file, not with a row.
        ("a,b\nx,y\n", "t.csv:1: expected one or two columns of texts and 'l"),
        ("a,label,a\nx,y,z\n", "t.csv:1: expected distinct columns"),
        ('a,label\n"x,y\nz,u\n', "t.csv:3: not quoted as in CSV"),
        ("a,label\n", "t.csv has no examples"),
    ],
)
def test_what_cannot_be_skipped(write, tmp_path, content, message):
    write("train.csv", content)
    task = classification_task(SKIPPING)
    with pytest.raises(UserError, match=message.replace("t.", "train.", 1)):
        task.read(str(tmp_path), "train", ignore)


def test_columns_are_inferred_from_the_good_rows_of_the_training_file(
    write, tmp_path
):
    write("train.csv", "text,label\na\nb,x\n")
    write("dev.csv", "text,label\nc,x\n")
    (example,) = classification_task().read(str(tmp_path), "dev", pytest.fail)
    assert (example.texts, example.label) == (("c",), "x")
