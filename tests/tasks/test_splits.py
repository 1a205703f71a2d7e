"""Held-out examples and folds: shares, duplicates, order, and their reports."""

import collections
import dataclasses
import functools
import gzip
import os
import random

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import classification_task, custom_task
from albert_tf.tasks.examples import (
    Example,
    MultiLabelExample,
    Question,
    WordsExample,
)
from albert_tf.tasks.formats.rows import Reading, read_rows
from albert_tf.tasks.splits import Split, divided, folded

LABELS = ["a"] * 100 + ["b"] * 30 + ["c"] * 4 + ["d"]
EXAMPLES = [Example((f"text {n}",), la) for n, la in enumerate(LABELS)]


def dev_of(examples, *, labelled=True, **settings):
    is_dev = divided(examples, Split(**settings), labelled)
    return [e for e, d in zip(examples, is_dev, strict=True) if d]


def counts(examples):
    return collections.Counter(example.label for example in examples)


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_each_class_has_its_share(fraction):
    dev = counts(dev_of(EXAMPLES, dev_fraction=fraction))
    for label, total in counts(EXAMPLES).items():
        assert abs(dev[label] - fraction * total) <= 1
    assert abs(sum(dev.values()) - fraction * len(EXAMPLES)) <= 1
    # The only text of a class is learned.
    assert dev["d"] == 0


def test_neither_order_nor_other_texts_of_a_class_change_the_draw():
    dev = {e.texts for e in dev_of(EXAMPLES, dev_fraction=0.2)}
    shuffled = random.Random(1).sample(EXAMPLES, len(EXAMPLES))
    assert {e.texts for e in dev_of(shuffled, dev_fraction=0.2)} == dev
    other = dev_of(EXAMPLES, dev_fraction=0.2, seed=1)
    assert {e.texts for e in other} != dev


def test_equal_texts_are_on_one_side():
    examples = [
        dataclasses.replace(e, label=label)
        for e in EXAMPLES
        for label in ("a", "b")
    ]
    dev = {e.texts for e in dev_of(examples, dev_fraction=0.3)}
    found = collections.Counter(
        e.texts for e in dev_of(examples, dev_fraction=0.3)
    )
    assert dev and set(found.values()) == {2}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fraction", [0.1, 0.2])
def test_a_text_that_is_repeated_often_leaves_each_class_its_share(
    seed, fraction
):
    examples = [
        *(Example((str(n),), "a") for n in range(200)),
        *[Example(("very good",), "a")] * 100,
        *(Example((f"b{n}",), "b") for n in range(200)),
    ]
    found = counts(dev_of(examples, dev_fraction=fraction, seed=seed))
    assert found == {"a": 300 * fraction, "b": 200 * fraction}
    folds = [
        counts(dev_of(examples, folds=5, fold=n, seed=seed))
        for n in range(1, 6)
    ]
    # The fold of the repeated text has nothing else of its class.
    assert sorted(fold["a"] for fold in folds) == [50, 50, 50, 50, 100]
    assert [fold["b"] for fold in folds] == [40] * 5


def test_texts_that_are_all_repeated_are_held_out_too():
    examples = [Example((str(n),), "a") for n in range(5) for _ in range(40)]
    assert len(dev_of(examples, dev_fraction=0.1)) == 40
    # One of many labels takes nothing from another.
    rare = [Example((f"c{n}",), f"c{n}") for n in range(100)]
    many = [Example((f"z{n}",), "z") for n in range(100)]
    found = counts(dev_of([*rare, *many], dev_fraction=0.1))
    assert found == {"z": 10} or found == {"z": 11}


def test_the_texts_of_a_pair_are_in_any_order():
    pairs = [Example((str(n), f"b{n}"), "a") for n in range(40)]
    swapped = [Example(e.texts[::-1], "a") for e in pairs]
    dev = {e.texts for e in dev_of(pairs, dev_fraction=0.3)}
    assert {e.texts[::-1] for e in dev_of(swapped, dev_fraction=0.3)} == dev


def test_folds_are_a_partition_with_shares_of_each_class():
    folds = [dev_of(EXAMPLES, folds=5, fold=n) for n in range(1, 6)]
    together = [e for fold in folds for e in fold]
    assert sorted(together, key=str) == sorted(EXAMPLES[:-1], key=str)
    for fold in folds:
        assert abs(counts(fold)["a"] - 20) <= 1
        assert abs(counts(fold)["b"] - 6) <= 1
        assert abs(len(fold) - len(EXAMPLES) / 5) <= 1


def test_what_folds_leave_of_each_class_is_spread_over_them():
    examples = [Example((f"{n}",), f"{n % 10}") for n in range(60)]
    # Six of each class: a fold has one, and one of them has two.
    folds = [dev_of(examples, folds=5, fold=n) for n in range(1, 6)]
    assert [len(fold) for fold in folds] == [12] * 5


def test_a_label_or_tag_of_one_text_alone_is_learned():
    labels = [("a", "rare") if n == 7 else ("a", "b") for n in range(20)]
    texts = [MultiLabelExample((str(n),), la) for n, la in enumerate(labels)]
    words = [WordsExample((str(n), "x"), la) for n, la in enumerate(labels)]
    for examples in (texts, words):
        folds = [dev_of(examples, folds=4, fold=n) for n in range(1, 5)]
        together = [e for fold in folds for e in fold]
        assert sorted(together, key=str) == sorted(
            [*examples[:7], *examples[8:]], key=str
        )


def test_questions_on_one_paragraph_are_on_one_side():
    questions = [
        Question(str(n), f"{n}?", f"paragraph {n // 3}", (), "")
        for n in range(90)
    ]
    dev = dev_of(questions, dev_fraction=0.2, labelled=False)
    assert 15 <= len(dev) <= 21
    found = collections.Counter(e.context for e in dev)
    assert set(found.values()) == {3}
    sentences = [WordsExample((str(n),), ("O",)) for n in range(50)]
    assert len(dev_of(sentences, dev_fraction=0.1, labelled=False)) == 5


def test_questions_on_an_empty_paragraph_are_on_one_side():
    questions = [Question(str(n), "Who?", "", (), "") for n in range(9)]
    questions += [Question("a", "Who?", "It.", (), "")]
    dev = dev_of(questions, dev_fraction=0.1, labelled=False)
    assert [question.id for question in dev] == ["a"]


@pytest.fixture
def table(write):
    lines = "".join(f"{e.texts[0]},{e.label}\n" for e in EXAMPLES)
    return write("reviews.csv", f"text,label\n{lines}")


def read(task, data_dir):
    logged = []
    found = {
        split: task.read(str(data_dir), split, logged.append)
        for split in ("train", "dev")
    }
    return found["train"], found["dev"], logged


@pytest.mark.parametrize("whole", [True, False])
def test_a_single_file_is_divided_by_default(table, tmp_path, whole):
    train, dev, logged = read(
        classification_task(), table if whole else tmp_path
    )
    assert sorted(train + dev, key=str) == sorted(EXAMPLES, key=str)
    assert len(dev) == 13
    (line,) = logged
    assert (
        "13 of 135 examples are held out as dev (--dev_fraction=0.1, " in line
    )
    assert (
        "--split_seed=0; equal texts are on one side; by label: a 10," in line
    )
    # A test set is whole.
    test = classification_task().read(table, "test", logged.append)
    assert len(test) == len(EXAMPLES)


def test_training_examples_are_divided_if_asked(table, tmp_path):
    (tmp_path / "train.csv").write_bytes((tmp_path / table).read_bytes())
    task = classification_task()
    assert len(task.read(str(tmp_path), "train", str)) == len(EXAMPLES)
    message = "training examples and no dev ones; --dev_fraction=0.1 holds out"
    with pytest.raises(UserError, match=message):
        task.read(str(tmp_path), "dev", str)
    asked = classification_task(Reading(split=Split(0.2)))
    train, dev, _ = read(asked, tmp_path)
    assert (len(train), len(dev)) == (108, 27)
    assert asked.division(str(tmp_path)) == {"dev_fraction": 0.2, "seed": 0}
    (tmp_path / "dev.csv").write_text("text,label\nx,a\n")
    with pytest.raises(UserError, match="has dev examples of its own; remove"):
        asked.read(str(tmp_path), "train", str)
    assert task.division(str(tmp_path)) is None


def test_too_few_examples(write):
    path = write("a.csv", "text,label\nx,a\nx,b\n")
    message = "2 examples are too few to hold some .* label of its own; is that"
    with pytest.raises(UserError, match=message):
        classification_task().read(path, "train", str)
    path = write("a.csv", "text,label\nx,a\n")
    with pytest.raises(UserError, match="only text is in training.$"):
        classification_task().read(path, "train", str)
    path = write("a.csv", "text,label\n1,a\n2,b\n3,a\n4,b\n")
    # Before the first of many runs is made.
    first = folded(classification_task(), 5, 1, 0)
    with pytest.raises(UserError, match="4 examples are too few .*--folds=5"):
        first.read(path, "train", str)
    # The last fold would have the only text of a label, which is learned.
    path = write("a.csv", "text,label\n1,a\n2,a\n3,a\n4,b\n5,b\n6,c\n")
    first = folded(classification_task(), 6, 1, 0)
    with pytest.raises(UserError, match="6 examples are too few .*--folds=6"):
        first.read(path, "train", str)


def _write_into(write, name, content):
    return write(f"reviews/{name}", content)


def test_a_folder_for_each_class(write, tmp_path):
    # Beside the directory lies what is not of it.
    write("train.csv", "other,columns,of,label\n")
    tmp_path /= "reviews"
    write = functools.partial(_write_into, write)
    for label in ("pos", "neg"):
        for number in range(20):
            write(f"{label}/{number:02}.txt", f"{label} {number}\nmore\n")
    write(".hidden/a.txt", "x")
    write("pos/b.txt.gz", gzip.compress(b"packed\n"))
    write("pos/notes.md", "x")
    train, dev, logged = read(classification_task(), tmp_path)
    assert len(train) + len(dev) == 41
    assert "by label: neg 2, pos 2" in logged[-1]
    assert logged[0].endswith("end in .txt: pos/notes.md.")
    found = {e.texts[0]: e.label for e in [*train, *dev]}
    assert found["pos 3\nmore"] == "pos" and found["packed"] == "pos"
    assert train[0].location == f"{tmp_path}/neg/00.txt"
    # Directories may be splits, with columns that are named.
    (tmp_path / "split").mkdir()
    (tmp_path / "pos").rename(tmp_path / "split/new")
    (tmp_path / "neg").rename(tmp_path / "split/old")
    (tmp_path / "split").rename(tmp_path / "train")
    task = custom_task(["text=text", "label=label"])
    found = task.read(str(tmp_path), "train", str)
    assert counts(found) == {"new": 21, "old": 20}
    write("train/old/empty.txt", " \n")
    with pytest.raises(UserError, match="old/empty.txt: the file has no text"):
        task.read(str(tmp_path), "train", str)
    write("train/old/empty.txt", b"caf\xe9")
    with pytest.raises(UserError, match="old/empty.txt:1: byte 3 .* not UTF-8"):
        task.read(str(tmp_path), "train", str)


def test_what_is_no_text_in_a_folder_of_a_class(write, tmp_path):
    write("pos/a.txt", "good")
    (tmp_path / "pos/directory.txt").mkdir()
    # Each is a bad row, and the others can be read.
    write("neg/a.txt", b"caf\xe9")
    write("neg/b.txt", "x".encode("utf-16"))
    write("neg/c.txt.gz", gzip.compress(b"packed")[:-9])
    logged = []
    reading = Reading(skip_bad_rows=True)
    rows = read_rows(str(tmp_path), logged.append, reading)
    rows.settled(rows.records)
    assert [record.values["text"] for record in rows.records] == ["good"]
    assert "4 of 5 rows are bad: " in logged[-1]


def test_the_name_of_a_class_is_utf_8(write, tmp_path):
    os.makedirs(os.fsencode(tmp_path) + b"/caf\xe9")
    (tmp_path / os.fsdecode(b"caf\xe9") / "a.txt").write_text("x")
    with pytest.raises(UserError, match=r"caf\\udce9' is not UTF-8; rename"):
        classification_task().read(str(tmp_path), "train", str)


def test_compressed_files_of_splits(write, tmp_path):
    write("train.csv.gz", gzip.compress(b"text,label\nx,a\n"))
    (example,) = classification_task().read(str(tmp_path), "train", str)
    assert example == Example(("x",), "a")
    write("train.csv", "text,label\n")
    message = r"train\.csv and \S*train\.csv\.gz both exist; remove all but"
    with pytest.raises(UserError, match=message):
        classification_task().read(str(tmp_path), "train", str)


def test_folds_of_a_benchmark(write, tmp_path):
    lines = "".join(f"text {n}\t{n % 2}\n" for n in range(20))
    write("train.tsv", f"sentence\tlabel\n{lines}")
    write("dev.tsv", "sentence\tlabel\nother\t1\n")
    dev = []
    for fold in (1, 2, 3):
        task = folded(TASKS["SST-2"], 3, fold, 0)
        assert task.evaluated == {"": "dev"}
        found = task.read(str(tmp_path), "dev", str)
        dev += found
        train = task.read(str(tmp_path), "train", str)
        assert len(train) == 20 - len(found)
        assert task.division(str(tmp_path)) == {
            "folds": 3,
            "fold": fold,
            "seed": 0,
        }
    assert len({e.texts for e in dev}) == 20
