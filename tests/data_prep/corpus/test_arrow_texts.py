"""Parquet and saved data sets: the documents of their rows."""

import hashlib
import json
import re

import pyarrow
import pytest
from pyarrow import feather, parquet
from saved_data_sets import save
from traced_memory import peak_memory

from albert_tf.config import UserError
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.listing import list_files
from data_prep.corpus.reading import survey_file

TEXTS = [
    "Salt is white.\n\nPepper — black.",
    None,
    "Tea.\r\nCoffee.",
    "x " * 9**6,
]


@pytest.fixture
def write(tmp_path):
    def call(name, columns):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), path)
        return path

    return call


def surveys(path, **options):
    """Returns a survey and a sample for each file.

    The sample of so few documents is all of them.
    """
    paths = list_files([str(path)])
    names = ["docs", "others"][: len(paths)]
    files = corpus_files(paths, names, "auto", **options)
    return list(map(survey_file, files))


def survey(path, **options):
    (found,) = surveys(path, **options)
    return found


@pytest.fixture
def write_lines(tmp_path):
    def call(name, texts):
        path = tmp_path / name
        rows = (json.dumps({"text": text}) + "\n" for text in texts)
        path.write_text("".join(rows))
        return path

    return call


def test_its_documents_are_those_of_json_lines(write, write_lines):
    # One line is longer than what is read at once.
    path = write("a.parquet", {"id": [1, 2, 3, 4], "text": TEXTS})
    found, sample = survey(path.parent)
    expected, expected_sample = survey(write_lines("a.jsonl", TEXTS))
    assert found.report.counts == expected.report.counts
    assert found.report.counts["bad/no_text_field"] == 1
    assert found.report.counts["documents"] == 3
    assert vars(sample) == vars(expected_sample)


def test_the_digest_is_of_the_stored_bytes(write):
    path = write("a.parquet", {"text": ["Tea."]})
    content = path.read_bytes()
    found, _ = survey(path)
    assert found.num_bytes == len(content)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


def test_a_column_of_another_name(write):
    path = write("a.parquet", {"content": ["Tea."], "url": ["u"]})
    message = f"{path}: expected a column 'text', got content, url; name the"
    with pytest.raises(UserError, match=message):
        survey(path)
    found, _ = survey(path, text_column="content")
    assert found.report.counts["characters"] == len("Tea.")


def test_a_column_of_a_saved_data_set(tmp_path):
    save(tmp_path / "saved", {"content": ["Tea.", "Salt."], "url": ["u"] * 2})
    message = "00-of-00002.arrow: expected a column 'text', got content, url;"
    with pytest.raises(UserError, match=message):
        surveys(tmp_path)
    found = surveys(tmp_path, text_column="content")
    counts = [survey.report.counts["characters"] for survey, _ in found]
    assert counts == [len("Tea."), len("Salt.")]


def test_a_saved_data_set_is_read_file_by_file(tmp_path, write_lines):
    # One line is longer than what is read at once.
    columns = {"id": [1, 2, 3, 4], "text": TEXTS}
    save(tmp_path / "saved", columns, features={})
    halves = (write_lines("a.jsonl", TEXTS[:2]), write_lines("b", TEXTS[2:]))
    for (found, sample), half in zip(
        surveys(tmp_path / "saved"), halves, strict=True
    ):
        expected, expected_sample = survey(half)
        assert found.report.counts == expected.report.counts
        assert sample.texts() == expected_sample.texts()
        with open(found.file.path, "rb") as file:
            content = file.read()
        assert found.num_bytes == len(content)
        assert found.sha256 == hashlib.sha256(content).hexdigest()


def test_memory_is_that_of_a_batch(tmp_path):
    """The file has 30 MB in ten batches."""
    texts = ["Salt is white. " * 200] * 20_000
    save(tmp_path / "saved", {"text": texts}, features={})
    (path, _) = list_files([str(tmp_path)])
    (file,) = corpus_files([path], ["docs"], "auto")
    assert peak_memory(lambda: survey_file(file)) < 15e6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "pointer of Git LFS"),
        (b"Tea.", "Expected to read"),
        (feather.write_feather, "a Feather file, expected a stream of Arrow"),
    ],
)
def test_what_is_no_stream(tmp_path, content, message):
    path = tmp_path / "a.arrow"
    if callable(content):
        content(pyarrow.table({"text": ["Tea."]}), path)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}.*{message}"):
        survey(path)


def test_a_stream_that_is_cut(tmp_path):
    save(tmp_path / "saved", {"text": ["Tea. " * 1000] * 8}, features={})
    path = tmp_path / "saved/data-00001-of-00002.arrow"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(UserError, match=f"^{path}: Expected to be able to re"):
        surveys(tmp_path)


def test_bytes_are_text(write):
    """Spark writes strings like this where it keeps no types."""
    path = write("a.parquet", {"text": ["Té.".encode(), b"T\xe9."]})
    found, _ = survey(path)
    assert found.report.counts["characters"] == len("Té.T?.")
    assert found.report.counts["bad/not_utf8"] == 1


def test_what_is_no_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("Tea.")
    with pytest.raises(UserError, match=f"^{path}: Parquet "):
        survey(path)
