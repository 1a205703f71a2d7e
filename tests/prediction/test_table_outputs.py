"""Tables with predictions, read by csv, pandas and pyarrow."""

import csv
import dataclasses
import datetime
import decimal
import io
import json
import math
from types import SimpleNamespace

import pandas
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from albert_tf.config import UserError
from albert_tf.prediction.forms import PAIR, QUESTION, SINGLE
from albert_tf.prediction.line_inputs import read_lines
from albert_tf.prediction.modes import MODES
from albert_tf.prediction.outputs import cell_of, refuse_inputs, write_rows
from albert_tf.prediction.table_inputs import read_table
from albert_tf.prediction.table_outputs import json_rows, write_table
from albert_tf.tasks.formats.question_rows import read_questions
from albert_tf.tasks.formats.record import Record

LABELS = ["sea", 'la"nd']
DELIMITERS = {".csv": ",", ".tsv": "\t"}
PIECES = ["a", "é", " ", '"', "\n", "\r\n", "\r", ",", "\t", "07", "\u2028"]
PIECES += ["\x85", "\x0c", "\x1c", "\ufeff", "NA", "'", "\\"]
CELLS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
# What the label of a text is, and its probability.
ADDED = ["prediction", "probability", "probability_sea", 'probability_la"nd']


def silent(line):
    pass


def predicted(inputs, mode="classify", form=SINGLE, of_model=()):
    """Yields the inputs with predictions that follow from their texts."""
    for item in inputs.read(form, of_model):
        if item.error:
            yield item, item.error
        elif mode == "classify":
            p = len(item.texts[0]) % 4 / 4
            label = LABELS[p <= 0.5]
            values = dict(zip(LABELS, (p, 1 - p), strict=True))
            fields = {"prediction": label, "probabilities": values}
            yield item, SimpleNamespace(fields=fields)
        else:
            fields = FIELDS[mode](item.texts[0])
            yield item, SimpleNamespace(fields=fields)


FIELDS = {
    "rate": lambda text: {"text": text, "prediction": len(text) / 2},
    "tag": lambda text: {
        "words": text.split(),
        "label": None,
        "prediction": ["O" for _ in text.split()],
        "probabilities": [0.5 for _ in text.split()],
        "entities": [],
    },
    "answer": lambda text: {
        "id": "1",
        "question": text,
        "context": "c",
        "prediction": text[:2],
        "probability": 0.25,
    },
}


def write(
    path,
    name="out",
    *columns,
    mode="classify",
    quoting="csv",
    log=silent,
    form=SINGLE,
    **options,
):
    """Returns the bytes of a table with predictions."""
    inputs = read_table(str(path), columns, quoting, silent, **options)
    rows = predicted(inputs, mode, form)
    labels = LABELS if mode == "classify" else []
    file = io.BytesIO()
    write_table(file, name, rows, MODES[mode], labels, inputs.table, log)
    return file.getvalue()


def quoted(cell, delimiter, always):
    special = {delimiter, '"', "\r", "\n"} & set(cell)
    if special or always:
        return '"' + cell.replace('"', '""') + '"'
    return cell


@st.composite
def tables(draw):
    """Draws rows with a header, and name and content of their file."""
    width = draw(st.integers(1, 3))
    header = ["text", *(f"id {n}" for n in range(width - 1))]
    row = st.tuples(CELLS.filter(str.strip), *[CELLS] * (width - 1)).map(list)
    rows = [header, *draw(st.lists(row, min_size=1, max_size=4))]
    ending = draw(st.sampled_from([*DELIMITERS]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    always = draw(st.booleans())
    lines = [
        DELIMITERS[ending].join(
            quoted(cell, DELIMITERS[ending], always) for cell in row
        )
        for row in rows
    ]
    mark = draw(st.sampled_from(["", "\ufeff"]))
    last = draw(st.sampled_from(["", end]))
    return rows, f"in{ending}", f"{mark}{end.join(lines)}{last}"


@given(tables(), st.sampled_from([".csv", ".tsv", "", ".jsonl", ".parquet"]))
@settings(max_examples=50, deadline=None)
def test_rows_are_as_they_were(tmp_path_factory, table, ending):
    rows, name, content = table
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content.encode())
    written = write(path, f"out{ending}")
    form = ending or path.suffix
    found = {".jsonl": of_json, ".parquet": of_parquet}.get(form, of_table)
    header, *others = found(written, form)
    assert header[: len(rows[0])] == rows[0]
    assert [row[: len(rows[0])] for row in others] == rows[1:]
    for row, (text, *_) in zip(others, rows[1:], strict=True):
        added = dict(zip(header, row, strict=True))
        p = len(text) % 4 / 4
        assert added["prediction"] == LABELS[p <= 0.5]
        assert float(added["probability"]) == max(p, 1 - p)
    if form == path.suffix:
        # Every byte of a row is there, in its order.
        rest = written
        mark = b"\xef\xbb\xbf"
        assert rest.startswith(mark) == content.encode().startswith(mark)
        for line in filter(None, path.read_bytes().splitlines()):
            _, found, rest = rest.partition(line)
            assert found == line


def of_table(written, form):
    text = written.decode("utf-8-sig")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=DELIMITERS[form], strict=True
    )
    rows = list(reader)
    assert rows[0][-5:] == [*ADDED, "error"]
    frame = pandas.read_csv(
        io.BytesIO(written),
        sep=DELIMITERS[form],
        dtype=str,
        keep_default_na=False,
        encoding="utf-8-sig",
        engine="c",
    )
    assert [list(frame.columns), *frame.values.tolist()] == rows
    return rows


def of_json(written, form):
    objects = [json.loads(line) for line in written.decode().split("\n")[:-1]]
    for row in objects:
        values = row.pop("probabilities")
        assert values[row["prediction"]] == row["probability"]
    return [[*objects[0]], *([*row.values()] for row in objects)]


def of_parquet(written, form):
    table = parquet.read_table(io.BytesIO(written))
    rows = [list(row.values()) for row in table.to_pylist()]
    assert table.schema.field("probability_sea").type == pyarrow.float64()
    return [table.column_names, *rows]


def test_json_lines_keep_their_bytes(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = ['{"id ": 1.50,  "text":"a","x":[1e3,null]} ', "b", '{"text": 7}']
    lines += ['{"id": 2}', "{}"]
    path.write_text("\n".join(lines))
    first, bad, number, lacking, empty = write(path).decode().splitlines()
    assert first.startswith(lines[0].rstrip()[:-1] + ', "prediction": "')
    assert json.loads(first)["x"] == [1000.0, None]
    assert json.loads(bad).keys() == {"text", "error"}
    assert json.loads(bad)["text"] == "b"
    assert number.startswith('{"text": 7, "prediction": ')
    assert lacking.startswith('{"id": 2, "error": "')
    assert "expected the column 'text'" in json.loads(empty)["error"]
    # A table has the columns of all lines, numbers as they are written.
    table = write(path, "out.csv").decode().splitlines()
    assert [*csv.reader(table)][:3] == [
        ["id", "text", "x", *ADDED, "error"],
        ["1.50", "a", "[1e3, null]", 'la"nd', "0.75", "0.25", "0.75", ""],
        ["", "", "", "", "", "", "", json.loads(bad)["error"]],
    ]


def test_halves_of_emoji_are_replaced_in_parquet(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a \\ud83d b"}')
    written = io.BytesIO(write(path, "out.parquet", mode="tag"))
    (row,) = parquet.read_table(written).to_pylist()
    assert row["text"] == "a \ufffd\ufffd\ufffd b"
    assert row["words"] == ["a", "\ufffd\ufffd\ufffd", "b"]


@pytest.mark.parametrize(
    ("values", "expected", "type_"),
    [
        (["0", "-7", "null"], [0, -7, None], "int64"),
        (["9223372036854775807"], [2**63 - 1], "int64"),
        (["0.1", "2", "null"], [0.1, 2.0, None], "double"),
        (["1e3"], [1000.0], "double"),
        (["NaN", "1.0"], [None, 1.0], "double"),
        (["true", "null", "false"], [True, None, False], "bool"),
        # One type does not hold them, or the digits.
        (["9223372036854775808"], ["9223372036854775808"], "string"),
        (["9007199254740993", "0.5"], ["9007199254740993", "0.5"], "string"),
        (["1" * 5000], ["1" * 5000], "string"),
        (["true", "1"], ["true", "1"], "string"),
        (["1", '"2"', "null"], ["1", "2", None], "string"),
        (['"7"'], ["7"], "string"),
        (["null"], [None], "string"),
        (['["a"]', "7"], ['["a"]', "7"], "string"),
        # Values within others are as they were, whatever Python makes of them.
        *(
            ([value], [value], "string")
            for value in ('{"b": [1, 2.50, true, null]}', "[1e400, -0.0]")
        ),
    ],
)
def test_types_of_json_in_parquet(tmp_path, values, expected, type_):
    path = tmp_path / "in.jsonl"
    rows = [f'{{"text": "a", "x": {value}}}' for value in values]
    # Neither rows without the column nor those that cannot be read have a type.
    rows += ['{"text": "b"}', "no JSON"]
    path.write_text("\n".join(rows))
    table = parquet.read_table(io.BytesIO(write(path, "out.parquet")))
    assert str(table.schema.field("x").type) == type_
    assert table["x"].to_pylist() == [*expected, None, None]
    # Texts that look like numbers are texts, and a table has no types.
    assert str(table.schema.field("text").type) == "string"
    copy = tmp_path / "in.csv"
    copy.write_text("text,x\na,1\n")
    table = parquet.read_table(io.BytesIO(write(copy, "out.parquet")))
    assert table["x"].to_pylist() == ["1"]


def test_elements_of_an_array_become_lines(tmp_path):
    path = tmp_path / "in.json"
    path.write_text('[{"id": 1.50,\n "text": "a"}, {"text": "b"}]')
    first, second = write(path).decode().splitlines()
    assert first.startswith('{"id": 1.50,  "text": "a", "prediction": ')
    assert second.startswith('{"text": "b", "prediction": ')


def test_rows_of_squads_format_have_its_ids_and_answers(tmp_path):
    answers = [{"text": "b", "answer_start": 4}]
    rows = [{"id": "q0a", "question": "a?", "answers": answers}]
    data = [{"paragraphs": [{"context": "The b", "qas": rows}]}]
    path = tmp_path / "in.json"
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    written = write(path, mode="answer", form=QUESTION)
    assert json.loads(written) == {
        "id": "q0a",
        "question": "a?",
        "context": "The b",
        "answers": {"text": ["b"], "answer_start": [4]},
        "prediction": "a?",
        "probability": 0.25,
    }
    # They are training data again.
    copy = tmp_path / "out.jsonl"
    copy.write_bytes(written)
    assert dataclasses.astuple(read_questions(str(copy), True, silent)[0])[
        :4
    ] == ("q0a", "a?", "The b", (("b", 4),))


def test_types_of_parquet_are_kept(tmp_path):
    table = pyarrow.table(
        {
            "id": pyarrow.array([2**60, None, 3], pyarrow.int64()),
            "text": pyarrow.array(["a", None, "bb"]).dictionary_encode(),
            "time": pyarrow.array([1, 2, 3], pyarrow.timestamp("ns")),
            "numbers": [[1.5], [], None],
        }
    )
    path = tmp_path / "in.parquet"
    parquet.write_table(table, path, row_group_size=2)
    assert read_table(str(path), (), "csv", silent).num == 3
    written = parquet.read_table(io.BytesIO(write(path)))
    assert written.select(table.column_names).equals(table)
    assert written.column_names == [*table.column_names, *ADDED, "error"]
    assert written["prediction"].to_pylist() == ['la"nd', None, 'la"nd']
    assert "the text is empty" in written["error"][1].as_py()
    lines = write(path, "out.jsonl").decode().splitlines()
    first = json.loads(lines[0])
    assert (first["id"], first["numbers"]) == (2**60, [1.5])
    assert write(path, "out.csv").decode().splitlines()[2].startswith(",,")


def test_values_of_parquet_that_json_has_not(tmp_path):
    moment = datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC)
    of_maps = pyarrow.map_(pyarrow.string(), pyarrow.int64())
    numbered = pyarrow.map_(pyarrow.int64(), pyarrow.list_(of_maps))
    columns = {
        "map": pyarrow.array([[("k", 1)], []], of_maps),
        "within": pyarrow.array([[(2, [[("k", 1)], []])], None], numbered),
        # Both values of a key stay.
        "twice": pyarrow.array([[("k", 1), ("k", 2)], None], of_maps),
        "row": [{"at": moment, "map": None, "x": [1.5, None]}, None],
        "time": pyarrow.array([moment, None], pyarrow.timestamp("ns", "UTC")),
        "day": [moment.date(), None],
        "long": pyarrow.array([-1_500_000, None], pyarrow.duration("us")),
        "short": pyarrow.array([1, None], pyarrow.duration("ns")),
        "price": [decimal.Decimal("1.10"), None],
        "bytes": [b"caf\xc3\xa9", b"\xff\x00"],
        "number": pyarrow.array([math.nan, -math.inf]),
    }
    table = pyarrow.table({"text": ["a", "b"], **columns})
    parquet.write_table(table, tmp_path / "in.parquet")
    path = tmp_path / "in.parquet"
    first, second = map(
        json.loads, write(path, "out.jsonl").decode().splitlines()
    )
    assert {name: first[name] for name in columns} == {
        "map": {"k": 1},
        "within": {"2": [{"k": 1}, {}]},
        "twice": [["k", 1], ["k", 2]],
        "row": {"at": moment.isoformat(), "map": None, "x": [1.5, None]},
        "time": "2024-01-02T03:00:00+00:00",
        "day": "2024-01-02",
        "long": "PT-1.500000S",
        "short": "P0DT0H0M0.000000001S",
        "price": "1.10",
        "bytes": "café",
        "number": None,
    }
    assert (second["map"], second["bytes"]) == ({}, "/wA=")
    assert second["number"] == "-inf"
    frame = pandas.read_csv(io.BytesIO(write(path, "out.csv")))
    for name in ("map", "within", "twice", "row"):
        assert json.loads(frame[name][0]) == first[name]
    assert pandas.to_datetime(frame["time"])[0] == moment
    assert pandas.to_timedelta(frame["long"])[0].total_seconds() == -1.5
    assert pandas.to_timedelta(frame["short"])[0].value == 1
    assert frame["price"][0] == 1.1
    assert frame["number"].isna()[0] and frame["number"][1] == -math.inf


@pytest.mark.parametrize("mode", ["classify", "tag"])
@pytest.mark.parametrize(
    "index",
    [
        pandas.Index(["x", "y"], name="key"),
        pandas.Index([7, 9]),
        pandas.RangeIndex(2),
        pandas.DatetimeIndex(["2020-01-01", "2021-01-01"], name="day"),
        pandas.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=["n", "m"]),
    ],
    ids=["named", "numbers", "range", "times", "two"],
)
def test_index_and_types_of_pandas_are_kept(tmp_path, index, mode):
    frame = pandas.DataFrame(
        {
            "text": ["a", "bb"],
            "id": pandas.array([2**60, None], "Int64"),
            "flag": pandas.array([True, None], "boolean"),
            "kind": pandas.Categorical(["u", "v"]),
        },
        index=index,
    )
    frame.attrs = {"source": "web"}
    path = tmp_path / "in.parquet"
    frame.to_parquet(path)
    written = write(path, "out.parquet", "text=text", mode=mode)
    found = pandas.read_parquet(io.BytesIO(written))
    pandas.testing.assert_frame_equal(found[frame.columns], frame)
    assert found.attrs == frame.attrs
    schema = parquet.read_schema(io.BytesIO(written))
    columns = schema.pandas_metadata["columns"]
    assert [column["field_name"] for column in columns] == schema.names
    # pandas reads the new columns as those of a file that it wrote.
    copy = io.BytesIO()
    found.to_parquet(copy)
    again = pandas.read_parquet(copy)
    pandas.testing.assert_frame_equal(found, again)


@pytest.mark.parametrize("columns", [[0, 1], [("a", "b"), ("a", "c")]])
def test_names_of_pandas_that_are_no_texts(tmp_path, columns):
    frame = pandas.DataFrame([["a", 1], ["b", 2]], index=[5, 6])
    frame.columns = pandas.Index(columns)
    path = tmp_path / "in.parquet"
    frame.to_parquet(path)
    name = parquet.read_schema(path).names[0]
    written = write(path, "out.parquet", f"text={name}")
    found = pandas.read_parquet(io.BytesIO(written))
    assert [*found.index] == [5, 6]
    assert [*found.columns] == [*map(str, columns), *ADDED, "error"]


def test_metadata_of_other_programs(tmp_path):
    """They are kept but for what pandas could not read.

    `datasets` (5.2) reads columns that its own metadata lack.
    """
    path = tmp_path / "in.parquet"
    for of_pandas in (b"{}", b"no JSON", b"[]", b'{"columns": 1}'):
        of_others = {b"own": b"1", b"huggingface": b"{}"}
        metadata = {b"pandas": of_pandas, **of_others}
        table = pyarrow.table({"text": ["a"]}).replace_schema_metadata(metadata)
        parquet.write_table(table, path)
        written = io.BytesIO(write(path))
        assert parquet.read_schema(written).metadata == of_others


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".tsv", ".csv"])
def test_columns_without_a_name(tmp_path, ending):
    """Each has a name of its own if there are several, as pandas reads them."""
    path = tmp_path / "in.csv"
    for header, expected in (
        (",text,x,", ["Unnamed: 0", "text", "x", "Unnamed: 3"]),
        (",text,x,y", ["", "text", "x", "y"]),
    ):
        path.write_text(f"{header}\n0,a,1,\n1,b,2,z\n")
        written = write(path, f"out{ending}")
        found = {".jsonl": of_json, ".parquet": of_parquet}.get(
            ending, of_cells
        )
        names, _, last = found(written, ending)
        if ending == ".csv":
            expected = header.split(",")
        assert names[:4] == expected
        assert last[:4] == ["1", "b", "2", "z"]


def of_cells(written, form):
    lines = written.decode().splitlines()
    return [*csv.reader(lines, delimiter=DELIMITERS[form])]


def test_a_bad_row_keeps_its_place_and_the_others_theirs(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('text,id\n"a",01\nb\nc,02,x\n"d",03\n')
    found = write(path).decode().splitlines()
    assert [line[:6] for line in found] == [
        "text,i",
        '"a",01',
        "b,,,,,",
        "c,02,,",
        '"d",03',
    ]
    rows = [*csv.DictReader(found)]
    assert "in.csv:3: expected 2 comma-separated" in rows[1]["error"]
    assert rows[2]["prediction"] == rows[0]["error"] == ""


@pytest.mark.parametrize("output", ["out.tsv", "out"])
def test_literal_quotes_stay_literal(tmp_path, output):
    path = tmp_path / "in.tsv"
    path.write_text('text\tid\n"a\t1\n')
    written = write(path, output, quoting="none").decode()
    header, row = written.splitlines()
    # Nor is that of a label doubled.
    assert row == '"a\t1\tla"nd\t0.5\t0.5\t0.5\t'
    assert header.split("\t")[2:] == [*ADDED, "error"]


@pytest.mark.parametrize("label", ["a, b", "a\nb", "a\rb"])
def test_what_a_table_without_quotes_cannot_hold(tmp_path, label):
    """It is refused before any prediction is made."""
    path = tmp_path / "in.csv"
    path.write_text("text,id\n")
    inputs = read_table(str(path), (), "none", silent)
    args = [], MODES["classify"], ["sea", label], inputs.table, silent
    with pytest.raises(UserError) as raised:
        write_table(io.BytesIO(), "out.csv", *args)
    assert str(raised.value) == (
        f"--quoting=none: {f'probability_{label}'!r} has what separates cells "
        "or lines, and a table without quotes cannot hold it; name a .jsonl or "
        ".parquet as --output, or leave out --quoting."
    )
    for name in ("out.jsonl", "out.parquet", "out.tsv"):
        write_table(io.BytesIO(), name, *args)


def test_lists_in_a_table_without_quotes(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,id\na b,1\n")
    with pytest.raises(UserError, match=r"none: '\[\"a\", \"b\"\]' has what"):
        write(path, "out.csv", mode="tag", quoting="none")
    # Several labels have the separator between them.
    inputs = read_table(str(path), (), "none", silent)
    mode = dataclasses.replace(MODES["classify"], separator=",")
    with pytest.raises(UserError, match="none: ',' has what separates cells"):
        write_table(io.BytesIO(), "a.csv", [], mode, [], inputs.table, silent)


def test_a_bad_row_of_a_table_without_quotes(tmp_path):
    """It has what fits of its cells; its message has blanks for separators."""
    path = tmp_path / "in.csv"
    path.write_bytes(b"text,id\na\rb,1,2\n")
    _, row, _ = write(path, quoting="none").decode().split("\n")
    message = (
        f"{path}:2: expected 2 comma-separated fields  got 3: 'a\\rb 1 2'."
    )
    assert row.split(",") == ["a\rb", "1", *[""] * len(ADDED), message]


def test_texts_of_lines_are_cells_that_pandas_reads():
    """Also with a CR in them, which Python's csv module may not quote."""
    texts = ['a\rb, "c"', "\td", "e"]
    lines = (f"{text}\n".encode() for text in texts)
    inputs = read_lines(lines, "a", may_have_header=False)
    file = io.BytesIO()
    mode = MODES["classify"]
    write_rows(file, "a.csv", predicted(inputs), mode, SINGLE, LABELS)
    found = pandas.read_csv(io.BytesIO(file.getvalue()))
    assert found["text"].to_list() == texts
    assert found["probability_sea"].to_list() == [0.0, 0.5, 0.25]


def test_an_output_that_is_the_input(tmp_path):
    names = ["a.csv", "b.csv", "in/part-0.parquet", "in/part-1.parquet"]
    a, b, first, second = (tmp_path / name for name in names)
    first.parent.mkdir()
    for path in (a, first, second):
        path.write_text("text\n")
    (tmp_path / "link.csv").symlink_to(a)
    for output, source in (
        (a, a),
        (f"{tmp_path}/in/../a.csv", a),
        (tmp_path / "link.csv", a),
        (second, first.parent),
        ("s3://a/b.csv", "s3://a/b.csv"),
    ):
        with pytest.raises(UserError, match="is the file of --input, which"):
            refuse_inputs(str(output), str(source))
    for output, source in (
        (b, a),
        (a, b),
        ("-", a),
        ("/dev/null", "/dev/null"),
        (first.parent / "c.csv", first.parent),
        ("s3://a/c.csv", a),
    ):
        refuse_inputs(str(output), str(source))


def test_names_that_are_taken(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,error,probability,probability_2\na,b,c,d\n")
    logged = []
    header, row = write(path, log=logged.append).decode().splitlines()
    names = [f"{name}_3" for name in [*ADDED, "error"]]
    assert next(csv.reader([header]))[4:] == names
    assert row.startswith("a,b,c,d,")
    (line,) = logged
    message = "already has error, probability; the new columns are called pred"
    assert line.startswith(f"{path} {message}")
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"text": "a"}\n{"text": "b", "prediction": 1}\n')
    first, _ = map(json.loads, write(lines).decode().splitlines())
    assert "prediction_2" in first and "prediction" not in first


def test_names_that_are_taken_in_lines_of_standard_input():
    """They are not known before, and cost neither a row nor a prediction."""
    stored = [b'{"text": "a"}\n', b"\n", b'{"text": "b", "prediction": 1}\n']
    stored += [b"{}\n", b"c\n", b'{"text": "d", "error_2": 2, "error": 3}\n']
    logged = []
    lines = write("-", ending=".jsonl", lines=iter(stored), log=logged.append)
    a, b, bad, text, d = map(json.loads, lines.decode().splitlines())
    assert [*a] == ["text", "prediction", "probability", "probabilities"]
    assert (b["prediction"], b["prediction_2"]) == (1, 'la"nd')
    assert bad.keys() == {"error_2"} and text.keys() == {"text", "error_2"}
    assert (d["error_2"], d["error"], d["prediction_3"]) == (2, 3, 'la"nd')
    names = [*ADDED[:2], "probabilities", "error"]
    assert logged == [
        f"-, line {number} already has {taken}; the new columns are called "
        f"{', '.join(f'{name}_{suffix}' for name in names)}."
        for number, taken, suffix in (
            (3, "prediction", 2),
            (6, "error, prediction", 3),
        )
    ]


@pytest.mark.parametrize(
    ("mode", "names", "values"),
    [
        ("rate", ["prediction"], ["1.5"]),
        (
            "tag",
            [*("words", "prediction", "probabilities", "predicted_entities")],
            ['["a", "b"]', '["O", "O"]', "[0.5, 0.5]", "[]"],
        ),
        ("answer", ["prediction", "probability"], ["a ", "0.25"]),
    ],
)
def test_columns_of_modes(tmp_path, mode, names, values):
    path = tmp_path / "in.csv"
    path.write_text("text,label\na b,x\n")
    rows = [*csv.reader(write(path, mode=mode).decode().splitlines())]
    assert rows == [
        ["text", "label", *names, "error"],
        ["a b", "x", *values, ""],
    ]
    (line,) = write(path, "out.jsonl", mode=mode).decode().splitlines()
    found = json.loads(line)
    assert list(found) == ["text", "label", *names]
    table = parquet.read_table(io.BytesIO(write(path, "a.parquet", mode=mode)))
    # Objects are texts there.
    expected = {n: "[]" if found[n] == [] else found[n] for n in names}
    assert table.select(names).to_pylist() == [expected]


def test_a_folder_for_each_class_has_the_names_of_its_files(tmp_path):
    for name in ("b/1.txt", "a/2.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a text\n")
    first, second = map(
        json.loads, write(tmp_path / "in").decode().splitlines()
    )
    assert first["file"] == f"{tmp_path}/in/a/2.txt"
    assert (second["text"], second["label"]) == ("a text", "b")
    assert write(tmp_path / "in", "a.csv").startswith(b"file,text,label,predi")


def test_texts_in_a_folder_without_classes(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b.txt", "a.TXT", "10.txt", ".c.txt", "d.md"):
        (folder / name).write_text(f"text of {name}\n")
    (folder / "empty.txt").write_text("\n")
    inputs = read_table(str(folder), (), "csv", silent)
    assert inputs.num == 4
    *rows, bad = map(json.loads, write(folder).decode().splitlines())
    assert [(row["file"], row["text"]) for row in rows] == [
        (f"{folder}/{name}", f"text of {name}")
        for name in ("10.txt", "a.TXT", "b.txt")
    ]
    assert "label" not in rows[0] and rows[0]["prediction"] in LABELS
    assert bad["error"].endswith("empty.txt: the file has no text.")
    assert write(folder, "a.csv").startswith(b"file,text,prediction,")
    # Nor are texts in folders of folders.
    (folder / "b" / "c").mkdir(parents=True)
    (folder / "b" / "c" / "e.txt").write_text("a text")
    logged = []
    assert read_table(str(folder), (), "csv", logged.append).num == 4
    assert logged == [
        f"{folder}: not read, since texts are files that end in .txt: b, d.md."
    ]


def test_texts_beside_folders_of_classes_are_named(tmp_path):
    path = tmp_path / "sea"
    path.mkdir()
    (path / "1.txt").write_text("a text")
    (tmp_path / "README.txt").write_text("All about it.")
    logged = []
    inputs = read_table(str(tmp_path), (), "csv", logged.append)
    assert [item.texts for item in inputs.read(SINGLE, ())] == [("a text",)]
    assert logged == [
        f"{tmp_path}: not read, since they lie beside the folders of the "
        "classes: README.txt."
    ]


def test_a_folder_without_texts_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("a text")
    with pytest.raises(UserError, match="has no .txt files, nor folders with"):
        read_table(str(tmp_path), (), "csv", silent)


def test_the_splits_of_a_data_set_are_named(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        for name in ("state.json", "dataset_info.json"):
            (tmp_path / split / name).write_text("{}")
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(UserError) as raised:
        read_table(str(tmp_path), (), "csv", silent)
    assert str(raised.value).endswith(
        "expected these, or the name of a file, or of a split: "
        f"{tmp_path}/test, {tmp_path}/train."
    )


def test_the_columns_of_the_models_task(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,review,label\na,bbb,x\n")
    inputs = read_table(str(path), (), "csv", silent)
    (item,) = inputs.read(SINGLE, ("text=review", "label=verdict"))
    assert item.texts == ("bbb",)
    # Where the file lacks one they are not used, nor for another form.
    for form, of_model in (
        (SINGLE, ("text=gone",)),
        (SINGLE, ("text=review", "text=text")),
        (SINGLE, ("word=0", "tag=1")),
    ):
        inputs = read_table(str(path), (), "csv", silent)
        (item,) = inputs.read(form, of_model)
        assert item.texts == ("a",)
    inputs = read_table(str(path), ["text=label", "text=text"], "csv", silent)
    (item,) = inputs.read(PAIR, ("text=review", "text=text"))
    assert item.texts == ("x", "a")


def test_json_of_each_row_comes_when_it_is_due():
    endless = (b'{"text": "%d"}\n' % number for number in range(10**9))
    inputs = read_table("-", (), "csv", silent, ending=".jsonl", lines=endless)
    lines = json_rows(
        predicted(inputs), MODES["classify"], inputs.table, silent
    )
    assert json.loads(next(lines))["text"] == "0"
    endless = (b"text\n" if not n else b"%d\n" % n for n in range(10**9))
    inputs = read_table("-", (), "csv", silent, ending=".csv", lines=endless)
    lines = json_rows(
        predicted(inputs), MODES["classify"], inputs.table, silent
    )
    assert json.loads(next(lines))["text"] == "1"


def test_a_table_without_rows_has_the_new_columns(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id,text\n")
    (header,) = write(path).decode().splitlines()
    assert next(csv.reader([header])) == ["id", "text", *ADDED, "error"]
    assert write(path, "out.jsonl") == b""


def test_labels_with_a_comma_are_a_list():
    assert cell_of(["a", "b"], ",") == "a,b"
    assert cell_of(["a, b", "c"], ",") == '["a, b", "c"]'
    assert cell_of(["{a}", "c"], ",") == '["{a}", "c"]'


LABEL = st.text("a1,[]{}()\"'| ", min_size=1).map(str.strip).filter(bool)


@given(st.lists(LABEL, max_size=3, unique=True), st.sampled_from(",|"))
@settings(max_examples=200, deadline=None)
def test_labels_in_a_cell_are_read_as_they_were(labels, separator):
    record = Record({"labels": cell_of(labels, separator)}, "here")
    assert record.labels("labels", separator) == tuple(labels)


def test_a_fault_of_the_table_is_found_before_the_first_prediction(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text,id\n" + "a,b\n" * 5000 + '"c,d\n')
    with pytest.raises(UserError, match="in.csv:5002: not quoted as in CSV"):
        read_table(str(path), (), "csv", silent)
