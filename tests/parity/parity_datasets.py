"""Data sets that the library `datasets` saves, as it reads them itself."""

import datasets
import pytest

from albert_tf.config import UserError
from albert_tf.tasks.custom import CLASSIFICATION
from albert_tf.tasks.examples import Example
from albert_tf.tasks.formats.rows import open_rows

COLUMNS = {
    "text": [f"text {number}\nline" for number in range(50)],
    "label": [number % 3 for number in range(50)],
}
FEATURES = datasets.Features(
    text=datasets.Value("string"),
    label=datasets.ClassLabel(names=["sea", "land", "air"]),
)


@pytest.fixture
def dataset():
    return datasets.Dataset.from_dict(COLUMNS, FEATURES)


def silent(line):
    pass


def expected(dataset):
    names = dataset.features["label"].names
    return [Example((row["text"],), names[row["label"]]) for row in dataset]


def test_splits_of_a_saved_data_set(dataset, tmp_path):
    parts = dataset.train_test_split(0.2, shuffle=False)
    splits = datasets.DatasetDict(
        train=parts["train"], validation=parts["test"]
    )
    splits.flatten_indices().save_to_disk(
        tmp_path, num_shards={"train": 3, "validation": 1}
    )
    for split, name in (("train", "train"), ("dev", "validation")):
        found = CLASSIFICATION.read(str(tmp_path), split, silent)
        assert found == expected(splits[name])


def test_one_data_set_is_divided(dataset, tmp_path):
    dataset.save_to_disk(tmp_path / "saved")
    found = [
        example
        for split in ("train", "dev")
        for example in CLASSIFICATION.read(
            str(tmp_path / "saved"), split, silent
        )
    ]
    assert sorted(found, key=str) == sorted(expected(dataset), key=str)


def test_selected_rows(dataset, tmp_path):
    selected = dataset.select([7, 3, 5])
    selected.save_to_disk(tmp_path / "train")
    try:
        found = CLASSIFICATION.read(str(tmp_path), "train", silent)
    except UserError as error:
        # Where the rows are not rewritten when they are saved.
        assert "flatten_indices" in str(error)
    else:
        assert found == expected(selected)


def test_parquet_has_the_names_of_classes(dataset, tmp_path):
    dataset.to_parquet(tmp_path / "train.parquet")
    found = CLASSIFICATION.read(str(tmp_path), "train", silent)
    assert found == expected(dataset)


def test_lists_of_classes(tmp_path):
    features = datasets.Features(
        text=datasets.Value("string"),
        label=datasets.List(datasets.ClassLabel(names=["a", "b"])),
    )
    columns = {"text": ["x", "y"], "label": [[1, 0], []]}
    dataset = datasets.Dataset.from_dict(columns, features)
    dataset.save_to_disk(tmp_path / "train")
    opened = open_rows(str(tmp_path / "train"), silent)
    values = [opened.record_of(row).values for row in opened.rows]
    assert [row["label"] for row in values] == [["b", "a"], []]
