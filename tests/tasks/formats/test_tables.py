"""Users' own tables, compared with the csv module and with pandas."""

import csv
import io
import shlex
import subprocess
import sys

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.formats.tables import (
    DELIMITERS,
    decoded_lines,
    own_rows,
    reading_command,
    stored_lines,
)


def rows_of(path, advice, *options):
    """Returns the rows of a file, its header first."""
    return list(own_rows(path, stored_lines(path, advice), advice, *options))


# What separates lines elsewhere, and what may be mistaken for an end.
PIECES = [
    *("a", "é", " ", '"', '""', "\n", "\r\n", "\r", ",", "\t", ";", "'", "\\"),
    *("\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\x00", "\ufeff", "NA", "#"),
]
CELLS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


def written(rows, delimiter, quoting, end):
    """Returns a table as other programs write it; quotes only where needed.

    The csv module of some versions writes a CR without quotes.
    """
    lines = []
    for row in rows:
        cells = []
        for cell in row:
            special = {delimiter, '"', "\r", "\n"} & set(cell)
            number = quoting == "text" and cell.isdecimal()
            plain = quoting != "all" and not special and not number
            # Or the row would be a blank line.
            plain = plain and (cell or len(row) > 1)
            quoted = '"' + cell.replace('"', '""') + '"'
            cells.append(cell if plain else quoted)
        lines.append(delimiter.join(cells) + end)
    return "".join(lines)


@st.composite
def tables(draw, cells=CELLS, width=None):
    """Draws rows with a header, and the file's name and content."""
    width = width or draw(st.integers(1, 4))
    names = [f"column {number}" for number in range(width)]
    row = st.lists(cells, min_size=width, max_size=width)
    rows = [names, *draw(st.lists(row, min_size=1, max_size=5))]
    extension = draw(st.sampled_from([*DELIMITERS]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoting = draw(st.sampled_from(["needed", "all", "text"]))
    content = written(rows, DELIMITERS[extension], quoting, end)
    content = draw(st.sampled_from(["", "\ufeff"])) + content
    if draw(st.booleans()):
        content = content.removesuffix(end)
    elif width > 1:
        content += end * draw(st.integers(0, 2))
    return rows, f"train{extension}", content


@given(tables())
@settings(max_examples=100, deadline=None)
def test_rows_are_those_of_csv_and_of_pandas(tmp_path_factory, table):
    rows, name, content = table
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content.encode())
    delimiter = DELIMITERS[path.suffix]
    found = rows_of(str(path), "", delimiter, "csv", lambda line: None)
    assert [row.fields for row in found] == rows
    text = io.StringIO(content.removeprefix("\ufeff"), newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    assert [row.fields for row in found] == [row for row in reader if row]
    frame = pandas.read_csv(
        path,
        sep=delimiter,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=len(rows[0]) > 1,
        engine="c",
    )
    assert frame.values.tolist() == rows[1:]


TEXT = CELLS.map(lambda text: f"{text}.")
FORMS = {
    "text=column 0,label=column 1": st.sampled_from(["x", "y|z", '"q"']),
    "text=column 0,text=column 2,label=column 1": st.just("x"),
    "text=column 0,number=column 1": st.sampled_from(["1", "-2.5", ".5e3"]),
    "context=column 0,choice=column 2,choice=column 3,label=column 1": (
        st.sampled_from(["0", "B", "column 3"])
    ),
}


@pytest.mark.parametrize("columns", [*FORMS])
def test_examples_are_those_that_pandas_reads(tmp_path_factory, columns):
    @given(st.data())
    @settings(max_examples=25, deadline=None)
    def check(data):
        table = tables(TEXT, 4)
        rows, name, _ = data.draw(table)
        for row in rows[1:]:
            row[1] = data.draw(FORMS[columns])
        directory = tmp_path_factory.mktemp("task")
        path = directory / name
        quoting = data.draw(st.sampled_from(["needed", "all"]))
        content = written(rows, DELIMITERS[path.suffix], quoting, "\r\n")
        path.write_bytes(content.encode())
        task = custom_task(columns.split(","))
        examples = task.read(str(directory), "train", lambda line: None)
        frame = pandas.read_csv(
            path,
            sep=DELIMITERS[path.suffix],
            dtype=str,
            keep_default_na=False,
            engine="c",
        )
        names = [name.partition("=") for name in columns.split(",")]
        texts = [n for role, _, n in names if role not in ("label", "number")]
        expected = frame[texts].values.tolist()
        assert [list(e.texts) for e in examples] == expected
        if "choice" in columns:
            ids = {"0": 0, "B": 1, "column 3": 1}
            labels = [ids[label] for label in frame["column 1"]]
        else:
            labels = frame["column 1"].tolist()
        assert [e.label for e in examples] == labels

    check()


def read(path, quoting="csv", log=lambda line: None):
    delimiter = DELIMITERS[path[-4:]]
    return rows_of(path, "Advice.", delimiter, quoting, log)


def fields(path, quoting="csv"):
    return [row.fields for row in read(path, quoting)]


@given(text=st.lists(st.sampled_from([*PIECES, '",']), max_size=12))
@settings(max_examples=100, deadline=None)
def test_what_csv_refuses_is_refused(tmp_path_factory, text):
    # A CR that is not quoted is another test's.
    text = "a,b\n" + "".join(piece for piece in text if piece != "\r")
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode())
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        expected = [row for row in reader if row]
    except csv.Error:
        with pytest.raises(UserError, match="any.csv:.* not quoted as in CSV"):
            read(str(path))
        return
    assert fields(str(path)) == expected


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize(
    ("quoting", "described", "rows"),
    [
        (
            "csv",
            "as in CSV (--quoting=none reads them literally); 5 lines hold 3 "
            "rows, with the header; the longest, of 3 lines, begins in line 3.",
            [["a", "b"], ["x", "y"], ["1\r\n2\n3", '"']],
        ),
        (
            "none",
            "literally (--quoting=none); 5 lines hold 5 rows, with the header.",
            [["a", "b"], ['"x"', "y"], ['"1'], ["2"], ['3"', '""""']],
        ),
    ],
)
def test_one_line_says_how_quotes_are_read(
    write, name, quoting, described, rows
):
    delimiter = DELIMITERS[name[-4:]]
    lines = 'a,b\n"x",y\r\n"1\r\n2\n3",""""\n'
    path = write(name, lines.replace(",", delimiter))
    logged = []
    found = read(path, quoting, logged.append)
    assert [row.fields for row in found] == rows
    assert logged == [f"{path}: quotes are read {described}"]


def test_without_quotes_at_the_start_of_a_field_nothing_is_said(write):
    path = write("t.csv", 'a,b\nsaid "x", "y"\n')
    for quoting in ("csv", "none"):
        found = read(path, quoting, pytest.fail)
        assert [row.fields for row in found] == [
            ["a", "b"],
            ['said "x"', ' "y"'],
        ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (
            'a\tb\nx\t"1\n2"3\n',
            r":3: not quoted as in CSV \('\\t' expected after '\"'\), in the "
            "row that begins in line 2; .* --quoting=none reads all quotes li",
        ),
        (
            'a\tb\nx\ty\n"z\tu\nv\tw\n',
            r":4: not quoted as in CSV \(unexpected end of data\), in the row "
            "that begins in line 3; within quotes a quote is written twice",
        ),
    ],
)
def test_broken_quotes(write, content, fault):
    path = write("t.tsv", content)
    with pytest.raises(UserError, match=f"^{path}{fault}") as raised:
        read(path)
    assert str(raised.value).isprintable()
    expected = [line.split("\t") for line in content.splitlines()]
    assert fields(path, "none") == expected


def test_the_first_line_of_a_row_is_its_location(write):
    path = write("t.csv", '\r\na,b\n"1\n2",x\n\n"\n\n",y\nz,z')
    rows = read(path)
    lines = [2, 3, 6, 9]
    assert [row.location for row in rows] == [f"{path}:{n}" for n in lines]


def test_backslashes_escape_nothing(write):
    # pandas writes this with escapechar and without quotes.
    path = write("t.csv", "a,b\nx\\, y\\\\n,z\nu,v\\\n")
    logged = []
    read(path, "csv", logged.append)
    (line,) = logged
    message = "a field ends in a backslash (rows with such fields: 2), which"
    assert line.startswith(f"{path}:2: {message}")


def test_a_cell_longer_than_the_csv_module_expects(write):
    path = write("t.csv", f'a\n"{"x" * 200_000}"\n')
    assert fields(path) == [["a"], ["x" * 200_000]]


@pytest.mark.parametrize("quoting", ["csv", "none"])
def test_a_carriage_return_within_a_line_is_part_of_a_field(write, quoting):
    path = write("t.csv", "a,b\n1\r2,\r\r3\r\n4,5\r\r\n6,7\r")
    rows = [["a", "b"], ["1\r2", "\r\r3"], ["4", "5"], ["6", "7"]]
    assert fields(path, quoting) == rows
    frame = pandas.read_csv(
        io.StringIO("a,b\n1\r2,\r\r3\n", newline=""),
        lineterminator="\n",
        dtype=str,
    )
    assert frame.values.tolist() == rows[1:2]


@pytest.mark.parametrize("quoting", ["csv", "none"])
def test_the_line_ends_of_classic_mac_os(write, quoting):
    for end in ("\r", "\r\r"):
        path = write("t.csv", end.join(["a,b", "1,2", "3,4"]))
        assert fields(path, quoting) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_a_missing_file_is_all_that_is_said(tmp_path):
    with pytest.raises(UserError) as error:
        fields(f"{tmp_path}/no.csv")
    assert str(error.value) == f"{tmp_path}/no.csv: No such file or directory."


@pytest.mark.parametrize("quoting", ["csv", "none"])
def test_blank_lines(write, quoting):
    path = write("t.tsv", "\n\na\tb\n\nx\ty\n\n\r\n")
    assert fields(path, quoting) == [["a", "b"], ["x", "y"]]
    # Blank lines are empty texts where there is one column.
    path = write("t.tsv", "\na\nx\n\n\r\n")
    assert fields(path, quoting) == [["a"], ["x"], [""], [""]]
    path = write("t.tsv", "\ufeff\n\r\n")
    with pytest.raises(UserError, match="t.tsv is empty; Advice."):
        fields(path, quoting)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.csv",
            '"a";"b"\n"x, y";"z"\n',
            "t.csv: the separator looks like a semicolon (';'), expected a "
            'comma; convert the file, for example with python -c "import csv, ',
        ),
        ("t.csv", "a;b\nx;2,5\ny\n", "the separator looks like a semicolon"),
        (
            "t.csv",
            "a\tb\nx\ty\n",
            "like a tab ('\\t'), expected a comma; name ",
        ),
        ("t.tsv", "a,b\nx,\n", "expected a tab; name the file *.csv."),
        ("t.tsv", "a|b\nx|y\n", "a vertical bar ('|'), expected a tab; conve"),
        ("t.csv", "sep=;\na;b\nx;y\n", ":1: only Excel reads the line 'sep=;'"),
        ("t.csv", '{"a": 1}\n{"a": 2}\n', ":1: expected a line that names the"),
        ("t.tsv", '[\n {"a": 1}]', "got JSON; name the file *.jsonl."),
        ("t.tsv", '[{"a": 1}]', "got JSON; name the file *.jsonl."),
    ],
)
def test_another_separator(write, name, content, message):
    path = write(name, content)
    for quoting in ("csv", "none"):
        with pytest.raises(UserError) as raised:
            read(path, quoting)
        assert message in str(raised.value)
        assert str(raised.value).startswith(path)


@pytest.mark.parametrize(
    "content",
    # A column, two of them, and a header without rows.
    ["a\nx;y\n", "a,b;c\nx,y;z\n", "a;b,c\n"],
)
def test_other_separators_within_fields(write, content):
    path = write("t.csv", content)
    expected = [*csv.reader(io.StringIO(content))]
    assert fields(path) == expected


def test_the_advice_converts_semicolons(write):
    # A byte-order mark would hide the quote behind it.
    path = write("my t.csv", '\ufeff"a";b\r\n"x, ""y"";\r\n";z\r\n')
    with pytest.raises(UserError) as raised:
        read(path)
    command = shlex.split(str(raised.value).partition("example with ")[2])
    assert (command[0], command[3:]) == ("python", ["<", path, ">", "new.csv."])
    with open(path, "rb") as file:
        converted = subprocess.run(
            [sys.executable, *command[1:3]],
            stdin=file,
            stdout=subprocess.PIPE,
            check=True,
        )
    path = write("new.csv", converted.stdout)
    assert fields(path) == [["a", "b"], ['x, "y";\r\n', "z"]]


def test_the_end_of_a_file_of_dos_is_none_of_its_rows(write):
    content = "text,label\na,x\n"
    for end in ("\x1a", "b,y\x1a"):
        path = write("t.csv", content + end)
        assert fields(path) == [
            ["text", "label"],
            ["a", "x"],
            *([["b", "y"]] if "b" in end else []),
        ]
    # Within the file, it is a character.
    path = write("t.csv", "text,label\n\x1aa,x\nb,y\x1a\n")
    assert fields(path)[1:] == [["\x1aa", "x"], ["b", "y\x1a"]]
    with pytest.raises(UserError, match="is empty"):
        fields(write("t.csv", "\x1a"))


def test_lines_in_utf16_are_refused_by_that_name():
    with pytest.raises(UserError, match="iconv -f UTF-16 -t UTF-8"):
        list(decoded_lines("-", ["a\n".encode("utf-16")], ""))


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("-", "x"),
        ("a b.csv", "x < 'a b.csv'"),
        ("a.csv.ZST", "zstd -dc a.csv.ZST | x"),
    ],
)
def test_a_command_gets_the_content_of_a_file(path, command):
    assert reading_command("x", path) == command
