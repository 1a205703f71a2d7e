"""Corpora in Parquet: the documents of the same rows as lines of JSON."""

import hashlib
import json

import pyarrow
import pytest
from pyarrow import parquet

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


def survey(path, **options):
    """Returns the survey, and a sample of so few documents: all of them."""
    paths = list_files([str(path)])
    (file,) = corpus_files(paths, ["docs"], "auto", **options)
    return survey_file(file)


def test_its_documents_are_those_of_json_lines(write, tmp_path):
    # One line is longer than what is read at once.
    path = write("a.parquet", {"id": [1, 2, 3, 4], "text": TEXTS})
    lines = tmp_path / "a.jsonl"
    rows = (json.dumps({"text": text}) + "\n" for text in TEXTS)
    lines.write_text("".join(rows))
    found, sample = survey(path.parent)
    expected, expected_sample = survey(lines)
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
