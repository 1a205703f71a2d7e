"""Which file of a directory has which split."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.split_files import SplitFiles, training_file


def test_the_file_of_a_split(write, tmp_path):
    def path_in(directory, **options):
        reader = SplitFiles(lambda path, labelled, log: path, **options)
        return reader.read(directory, "dev", print)

    directory, bucket = str(tmp_path), f"file://{tmp_path}"
    write("dev.xlsx", "")
    (tmp_path / "dev.csv").mkdir()
    missing = (
        "no dev.tsv or dev.csv or .*holds dev.csv/, dev.xlsx. .* workbooks as C"
    )
    with pytest.raises(UserError, match=missing):
        path_in(directory)
    path = write("dev.jsonl", "{}")
    assert path_in(directory) == path
    assert path_in(bucket) == f"{bucket}/dev.jsonl"
    write("dev.tsv", "")
    assert path_in(directory, extensions=(".tsv",)).endswith("dev.tsv")
    both = r"dev\.jsonl and \S*dev\.tsv both exist"
    with pytest.raises(UserError, match=both):
        path_in(directory)


@pytest.mark.parametrize("name", ["Dev.csv", "dev.CSV.GZ", "Validation.tsv"])
def test_letters_of_any_case(write, tmp_path, name):
    reader = SplitFiles(lambda path, labelled, log: path)
    path = write(name, "")
    train = write("TRAIN.tsv", "")
    assert reader.read(str(tmp_path), "dev", print) == path
    assert training_file(path, reader.extensions) == train


def test_files_of_other_names(write, tmp_path):
    reader = SplitFiles(lambda path, labelled, log: path)
    path = write("project-1.json", "[]")
    # Archives of macOS have such files.
    write("._project-1.json", "")
    assert reader.read(str(tmp_path), "train", print) == path
    # JSON may lie beside a table, also one that a saved data set has, too.
    write("state.json", "{}")
    path = write("reviews.csv", "")
    assert reader.read(str(tmp_path), "train", print) == path
    write("others.csv", "")
    message = (
        r" has others\.csv, reviews\.csv; call them train, dev and test, or"
    )
    with pytest.raises(UserError, match=message):
        reader.read(str(tmp_path), "train", print)


def test_the_folder_of_a_data_set_of_the_hub_is_named(write, tmp_path):
    write("README.md", "")
    (tmp_path / "data").mkdir()
    write("data/train-00000-of-00001.parquet", "")
    reader = SplitFiles(lambda path, labelled, log: path)
    message = f"holds README.md, data/. --data_dir={tmp_path}/data has one."
    with pytest.raises(UserError, match=message):
        reader.read(str(tmp_path), "train", print)


def test_a_table_beside_folders_of_texts(write, tmp_path):
    """These may be classes, or what came with the table."""
    reader = SplitFiles(lambda path, labelled, log: path)
    (tmp_path / "docs").mkdir()
    write("docs/readme.txt", "a")
    assert reader.read(str(tmp_path), "train", print) == str(tmp_path)
    path = write("reviews.csv", "")
    message = r"has reviews\.csv beside folders with \.txt files; give --data_d"
    with pytest.raises(UserError, match=message):
        reader.read(str(tmp_path), "train", print)
    assert reader.read(path, "train", print) == path


def test_a_file_that_does_not_exist(tmp_path):
    reader = SplitFiles(lambda path, labelled, log: path, (".json",))
    (tmp_path / "one").write_text("{}")
    message = "one is a file, expected a directory with dev.json.$"
    with pytest.raises(UserError, match=message):
        reader.read(str(tmp_path / "one"), "dev", print)
    (tmp_path / "one").unlink()
    for path in (tmp_path, tmp_path / "all.json"):
        message = f"^{path} does not exist, or is an empty directory.$"
        with pytest.raises(UserError, match=message):
            reader.read(str(path), "train", print)
