"""Parquet, and data sets as `datasets` saves them, written with pyarrow."""

import datetime
import json
import sys

import pyarrow
import pytest
from pyarrow import parquet
from saved_data_sets import FEATURES, save

from albert_tf.config import UserError
from albert_tf.tasks.custom import CLASSIFICATION, custom_task
from albert_tf.tasks.examples import ChoiceExample, Example, WordsExample
from albert_tf.tasks.formats.arrow import read_parquet
from albert_tf.tasks.formats.rows import Reading, open_rows

# A time whose year Python's have not.
FAR, US = 2**62 + 7, pyarrow.timestamp("us")
FAR_TEXT = f"<value out of range: {FAR}>"


def silent(line):
    pass


def test_types_of_parquet(tmp_path):
    table = pyarrow.table(
        {
            "text": pyarrow.array(["a", "b", "a"]).dictionary_encode(),
            "label": [3, 7, 3],
            "number": [1.5, -2.0, 1e20],
            "flag": [True, False, True],
            "day": [datetime.date(2026, 1, 2)] * 3,
            # Spark writes strings like this where it keeps no types.
            " bytes": ["é".encode()] * 3,
        }
    )
    parquet.write_table(table, tmp_path / "train.parquet")
    read = {
        name: [
            example.texts[0]
            for example in custom_task([f"text={name}", "label=label"]).read(
                str(tmp_path), "train", silent
            )
        ]
        for name in ("text", "number", "flag", "day", "bytes")
    }
    assert read == {
        "text": ["a", "b", "a"],
        "number": ["1.5", "-2.0", "1e+20"],
        "flag": ["true", "false", "true"],
        "day": ["2026-01-02"] * 3,
        "bytes": ["é"] * 3,
    }
    task = custom_task(["text=text", "number=number"])
    found = task.read(str(tmp_path), "train", silent)
    assert [e.label for e in found] == ["1.5", "-2.0", "1e+20"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (
            pyarrow.array([FAR, None], US),
            FAR_TEXT,
        ),
        (
            pyarrow.array([0, None], pyarrow.timestamp("s", "No/Where")),
            "1970-01-01 00:00:00.000",
        ),
        (pyarrow.array([2**62, None], pyarrow.duration("s")), str(2**62)),
        (pyarrow.array([b"\xff", None]), b"\xff"),
        (pyarrow.array([[FAR], None], pyarrow.list_(US)), [FAR_TEXT]),
        (
            pyarrow.array([{"a": FAR}, None], pyarrow.struct([("a", US)])),
            {"a": FAR_TEXT},
        ),
        (
            pyarrow.array([[("k", FAR)], None], pyarrow.map_("string", US)),
            {"k": FAR_TEXT},
        ),
        (
            pyarrow.array(
                [[([1], "a")], None],
                pyarrow.map_(pyarrow.list_(pyarrow.int8()), "string"),
            ),
            [[["1"], "a"]],
        ),
    ],
)
def test_what_python_has_no_value_for(tmp_path, column, expected):
    """Columns that are not read do not keep others from being read."""
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a", "b"], "other": column})
    parquet.write_table(table, path)
    rows = list(read_parquet(str(path)).rows)
    assert [row.values["other"] for row in rows] == [expected, None]


def test_bytes_that_are_no_text(tmp_path):
    table = pyarrow.table({"text": [b"a", b"\xe9"], "label": [1, 0]})
    parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r":2: expected a string.*got .b'.*xe9"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)


def test_choices_and_nulls_of_parquet(tmp_path):
    table = pyarrow.table(
        {
            "start": ["we", None, "they"],
            "ends": [["go", "stay"], ["go", "stay"], ["run", "sit"]],
            "right": [1, 0, 0],
        }
    )
    path = tmp_path / "train.parquet"
    parquet.write_table(table, path, row_group_size=1)
    columns = ["context=start", "choice=ends", "label=right"]
    with pytest.raises(UserError, match=f"{path}:2: the text is empty"):
        custom_task(columns).read(str(tmp_path), "train", silent)
    task = custom_task(columns, Reading(skip_bad_rows=True))
    assert task.read(str(tmp_path), "train", silent) == [
        ChoiceExample("we", ("go", "stay"), 1, id="0"),
        ChoiceExample("they", ("run", "sit"), 0, id="1"),
    ]


def test_nan_is_no_label_of_parquet(tmp_path):
    table = pyarrow.table(
        {"text": ["a", "b", "c"], "label": [1.0, float("nan"), 0.0]}
    )
    path = tmp_path / "train.parquet"
    parquet.write_table(table, path)
    with pytest.raises(UserError, match=f"{path}:2: the label is empty"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)


def test_a_saved_data_set_has_the_names_of_its_classes(tmp_path):
    columns = {"text": ["a", "b", "c"], "label": [1, 0, 1]}
    save(tmp_path / "train", columns)
    save(tmp_path / "validation", {"text": ["d"] * 2, "label": [0, 0]})
    # Without labels, as test sets are published.
    save(tmp_path / "test", {"text": ["e", "f"], "label": [-1, -1]})
    for split, expected in {
        "train": [("a", "pos"), ("b", "neg"), ("c", "pos")],
        "dev": [("d", "neg"), ("d", "neg")],
        "test": [("e", None), ("f", None)],
    }.items():
        found = CLASSIFICATION.read(str(tmp_path), split, silent)
        assert found == [Example((text,), label) for text, label in expected]
        assert found[0].location.endswith(":1")


def test_names_of_classes_in_the_schema_of_parquet(tmp_path):
    info = json.dumps({"info": {"features": FEATURES}})
    table = pyarrow.table({"text": ["a", "b"], "label": [1, 0]})
    table = table.replace_schema_metadata({"huggingface": info})
    parquet.write_table(table, tmp_path / "train.parquet")
    found = CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert [e.label for e in found] == ["pos", "neg"]


def test_lists_of_classes(tmp_path):
    classes = {"feature": FEATURES["label"], "_type": "Sequence"}
    columns = {"text": ["a", "b"], "label": [[1, 0], []]}
    save(tmp_path / "train", columns, {**FEATURES, "label": classes})
    from albert_tf.tasks.formats.rows import open_rows

    opened = open_rows(str(tmp_path / "train"), silent)
    records = [opened.record_of(row).values for row in opened.rows]
    assert [r["label"] for r in records] == [["pos", "neg"], []]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_indices_files": [{"filename": "i"}]}, "dataset.flatten_indices"),
        (
            {"_data_files": [{"filename": "../x.arrow"}]},
            "expected names of fil",
        ),
        ({"_data_files": []}, "expected names of files as '_data_files'"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "No such file"),
    ],
)
def test_saved_data_sets_that_are_refused(tmp_path, state, message):
    save(tmp_path / "train", {"text": ["a"] * 2, "label": [0, 1]}, **state)
    with pytest.raises(UserError, match=message) as raised:
        CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1 no", "train.parquet: .*Parquet"),
        (b"", "train.parquet: .*Parquet"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_a_file_that_is_no_parquet(tmp_path, content, message):
    (tmp_path / "train.parquet").write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert "\n" not in str(raised.value)


def test_pyarrow_is_asked_for_by_name(tmp_path, monkeypatch):
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="need pyarrow: pip install pyarrow"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)


def test_tags_of_words_have_the_names_of_their_classes(tmp_path):
    """The hub's data sets of named entities have such features."""
    tags = {"names": ["O", "B-PER"], "_type": "ClassLabel"}
    features = {"tags": {"feature": tags, "_type": "Sequence"}}
    columns = {"tokens": [["Bo", "ran"], ["So"]], "tags": [[1, 0], [0]]}
    save(tmp_path / "train", columns, features)
    task = custom_task(["words=tokens", "tags=tags"])
    assert task.read(str(tmp_path), "train", silent) == [
        WordsExample(("Bo", "ran"), ("B-PER", "O")),
        WordsExample(("So",), ("O",)),
    ]


def write_parts(directory, name, *parts, digests=None):
    count = len(parts)
    for number, columns in enumerate(parts):
        digest = f"-{digests[number] * 16}" if digests else ""
        name_of_part = f"{name}-{number:05d}-of-{count:05d}{digest}"
        path = directory / f"{name_of_part}.parquet"
        parquet.write_table(pyarrow.table(columns), path)


def test_parts_are_read_as_one_table(tmp_path):
    first = {"idx": [0, 1], "sentence": ["a", "b"], "label": [0, 1]}
    second = {"idx": [2], "sentence": ["c"], "label": [1]}
    write_parts(tmp_path, "train", first, second)
    write_parts(tmp_path, "validation", {"sentence": ["d"], "label": [1]})
    found = CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert found == [
        Example(("a",), "0"),
        Example(("b",), "1"),
        Example(("c",), "1"),
    ]
    assert found[2].location == f"{tmp_path}/train-00001-of-00002.parquet:1"
    dev = CLASSIFICATION.read(str(tmp_path), "dev", silent)
    assert dev == [Example(("d",), "1")]


def test_parts_with_digests_in_their_names(tmp_path):
    """`push_to_hub` named them like this."""
    parts = [{"text": ["a"], "label": [0]}, {"text": ["b"], "label": [1]}]
    write_parts(tmp_path, "train", *parts, digests="f0")
    write_parts(tmp_path, "test", parts[1], digests="1")
    found = CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert found == [Example(("a",), "0"), Example(("b",), "1")]
    test = CLASSIFICATION.read(str(tmp_path), "test", silent)
    assert test == found[1:]
    write_parts(tmp_path, "train", *parts, digests="f1")
    with pytest.raises(UserError, match="expected one .*00001-of-.*, got 2"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)


@pytest.mark.parametrize(
    "name",
    [
        "part-{:05d}-ab-c000.snappy.parquet",
        *("{:04d}.parquet", "part.{}.parquet"),
    ],
)
@pytest.mark.parametrize("split", ["train", "train.parquet"])
def test_directories_with_parts(tmp_path, name, split):
    """Spark, Dask and the hub's conversion write such directories."""
    directory = tmp_path / split
    directory.mkdir()
    (directory / "_SUCCESS").touch()
    for number in (0, 10):
        table = pyarrow.table({"text": [f"t{number}"], "label": [number]})
        parquet.write_table(table, directory / name.format(number))
    expected = [Example(("t0",), "0"), Example(("t10",), "10")]
    for data_dir in (tmp_path, directory):
        task = custom_task(["text=text", "label=label"])
        assert (
            task.reader.reader.read(str(data_dir), "train", silent) == expected
        )


def test_years_are_no_parts(tmp_path):
    for year in (2025, 2026):
        table = pyarrow.table({"text": ["a"], "label": [0]})
        parquet.write_table(table, tmp_path / f"{year}.parquet")
    with pytest.raises(UserError, match="has 2025.parquet, 2026.parquet; call"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)


def test_parts_whose_types_differ(tmp_path):
    """Data frames have such parts where only some have empty cells."""
    write_parts(
        tmp_path,
        "train",
        {"text": ["a"], "label": [1], "note": [None]},
        {"text": ["b"], "label": [2.0], "note": ["n"]},
    )
    table = read_parquet(f"{tmp_path}/train-00000-of-00002.parquet")
    rows = list(table.rows)
    assert [row.values["label"] for row in rows] == ["1.0", "2.0"]
    batches = [row.batch for row in rows]
    found = pyarrow.Table.from_batches(batches, table.schema)
    assert found["note"].to_pylist() == [None, "n"]
    write_parts(tmp_path, "dev", {"text": [1]}, {"text": [["b"]]})
    with pytest.raises(UserError, match="all parts with one schema"):
        read_parquet(f"{tmp_path}/dev-00000-of-00002.parquet")


def test_parts_with_columns_in_another_order_and_encoding(tmp_path):
    texts = pyarrow.array(["a"])
    write_parts(
        tmp_path,
        "train",
        {"text": texts.dictionary_encode(), "label": [1]},
        {"label": [2], "text": texts},
        {"label": [3], "text": texts.cast(pyarrow.string_view())},
    )
    table = read_parquet(f"{tmp_path}/train-00000-of-00003.parquet")
    rows = [dict(row.values) for row in table.rows]
    assert rows == [{"text": "a", "label": str(n)} for n in (1, 2, 3)]
    assert table.schema.field("text").type == pyarrow.string()


def test_columns_of_one_name(tmp_path):
    table = pyarrow.table([["a"], [1], [2]], names=["text", "x", "x "])
    for names in (["text", "x", "x"], ["text", "x", "x "]):
        paths = [tmp_path / f"a-0000{n}-of-00002.parquet" for n in range(2)]
        for path in (tmp_path / "a.parquet", *paths):
            parquet.write_table(table.rename_columns(names), path)
        for path in (tmp_path / "a.parquet", paths[0]):
            message = "parquet: expected distinct columns, got text, x, x ?.$"
            with pytest.raises(UserError, match=message):
                open_rows(str(path), silent)
    save(tmp_path / "saved", table)
    with pytest.raises(UserError, match="saved: expected distinct columns, go"):
        open_rows(f"{tmp_path}/saved", silent)


def test_an_object_with_two_values_of_a_key_is_refused_in_one_line(tmp_path):
    path = f"{tmp_path}/a.parquet"
    ones = pyarrow.array([1])
    twice = pyarrow.StructArray.from_arrays([ones, ones], names=["x", "x"])
    parquet.write_table(pyarrow.table({"text": ["a"], "s": twice}), path)
    with pytest.raises(UserError, match="a.parquet: .*duplicate field names"):
        list(read_parquet(path).rows)


def test_parts_that_do_not_fit(tmp_path):
    write_parts(tmp_path, "train", {"text": ["a"], "label": [0]}, {"x": [1]})
    with pytest.raises(UserError, match=r"00001-of-00002\S+ has other columns"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)
    (tmp_path / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(UserError, match="00001-of-00002.parquet: No such file"):
        CLASSIFICATION.read(str(tmp_path), "train", silent)
