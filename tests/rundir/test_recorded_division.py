"""Which dev examples models are evaluated on, by what their runs held out."""

import dataclasses

import pytest

from albert_tf.config import UserError
from albert_tf.rundir.recorded_division import (
    RecordedDivision,
    divided_as_in_training,
    learned_before,
    learned_examples,
)
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION, classification_task
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.splits import Split, folded


@pytest.fixture
def data_dir(tmp_path):
    """A directory with 30 training examples and 4 dev ones."""
    for name, number in (("train", 30), ("dev", 4)):
        rows = [f"{name} {n}\t{n % 2}\n" for n in range(number)]
        text = f"sentence\tlabel\n{''.join(rows)}"
        (tmp_path / f"{name}.tsv").write_text(text)
    return str(tmp_path)


@pytest.fixture
def of_fold(data_dir):
    """A function: the division of a run of one of three folds."""

    def of_fold(fold, task=CLASSIFICATION):
        task = folded(task, 3, fold, 0)
        digest = examples_digest(task.read(data_dir, "dev", str))
        division = task.division(data_dir)
        return RecordedDivision(f"fold-{fold}", division, [digest])

    return of_fold


def texts(task, data_dir, split="dev"):
    return {e.texts[0] for e in task.read(data_dir, split, str)}


@pytest.mark.parametrize("task", [CLASSIFICATION, TASKS["SST-2"]])
def test_a_fold_counts_before_a_dev_file(task, data_dir, of_fold):
    several = {"": "dev", "_other": "dev_other"}
    task = dataclasses.replace(task, evaluated=several)
    logged = []
    found = divided_as_in_training(
        task,
        [of_fold(2, task), of_fold(2, task)],
        data_dir,
        logged.append,
    )
    assert found.evaluated == {"": "dev"}
    expected = texts(folded(task, 3, 2, 0), data_dir)
    assert texts(found, data_dir) == expected
    assert len(expected) == 10
    assert logged == [
        "fold-2 is evaluated on the fold that its run held out; a dev file in "
        f"{data_dir} is not read."
    ]
    found.read(data_dir, "dev", logged.append)
    assert "10 of 30 examples are held out as dev (fold 2, --fo" in logged[-1]
    assert "; no dev file is read; " in logged[-1]


@pytest.mark.parametrize(
    ("seed", "split"), [(0, "dev"), (4, "")], ids=["split", "seed"]
)
def test_flags_count_before_a_fold(data_dir, of_fold, seed, split):
    task = classification_task(Reading(split=Split(seed=seed)))
    found = divided_as_in_training(task, [of_fold(2)], data_dir, str, split)
    assert texts(found, data_dir) == {f"dev {n}" for n in range(4)}


def test_other_data_have_their_own_dev_examples(data_dir, of_fold, tmp_path):
    division = of_fold(2)
    train = tmp_path / "train.tsv"
    train.write_text(train.read_text().replace("train", "learn"))
    logged = []
    found = divided_as_in_training(
        CLASSIFICATION, [division], data_dir, logged.append
    )
    assert len(texts(found, data_dir)) == 4
    (line,) = logged
    assert "fold-2 was trained on a fold of other examples than" in line


def test_an_ensemble_of_folds_needs_a_file_of_its_own(
    data_dir, of_fold, tmp_path
):
    divisions = [of_fold(1), of_fold(2)]
    found = divided_as_in_training(CLASSIFICATION, divisions, data_dir, str)
    # None of the models has learned them.
    assert len(texts(found, data_dir)) == 4
    # This one may have learned all others.
    of_all = RecordedDivision("other")
    found = divided_as_in_training(
        CLASSIFICATION, [of_fold(1), of_all], data_dir, str
    )
    assert len(texts(found, data_dir)) == 4
    (tmp_path / "dev.tsv").unlink()
    for split in ("", "dev"):
        with pytest.raises(UserError) as error:
            divided_as_in_training(
                CLASSIFICATION, divisions, data_dir, str, split
            )
        assert str(error.value).startswith(
            "fold-1, fold-2: each of these models has learned examples that "
        )
        assert "--split=test on a file that none of them" in str(error.value)
    same = divided_as_in_training(
        CLASSIFICATION, [of_fold(1), of_fold(1)], data_dir, str
    )
    assert len(texts(same, data_dir)) == 10


@pytest.mark.parametrize("task", [CLASSIFICATION, TASKS["SST-2"]])
def test_what_an_ensemble_has_learned_is_said_in_a_line(
    data_dir, of_fold, task
):
    divisions = [of_fold(1, task), of_fold(2, task)]
    examples = task.read(data_dir, "train", str)
    asked = (task, examples, "train", data_dir)
    (line,) = learned_examples(divisions, *asked)
    assert line == (
        "fold-1 was trained on 20 of these 30 examples, fold-2 on 20, so that "
        "metrics are too high here. What the run of one of these models held "
        "out others have learned; evaluate them on a file that none was "
        "trained on."
    )
    (line,) = learned_examples(divisions[:1], *asked)
    assert line.endswith("those are evaluated that its run held out.")
    dev = task.read(data_dir, "dev", str)
    assert not learned_examples(divisions, task, dev, "dev", data_dir)


def test_weights_that_have_learned_dev_examples_are_reported(data_dir, of_fold):
    task = folded(CLASSIFICATION, 3, 1, 0)
    dev = task.read(data_dir, "dev", str)
    line = learned_before(of_fold(2), task, dev, data_dir)
    assert line == (
        "fold-2 was fine-tuned on 10 of these 10 dev examples, so that metrics "
        "will be too high; divide the data as its run did (--folds=3, "
        "--split_seed=0), or begin with other weights."
    )
    by_files = examples_digest(CLASSIFICATION.read(data_dir, "dev", str))
    of_all = RecordedDivision("of-all", {}, [by_files])
    assert learned_before(of_all, task, dev, data_dir) == (
        "of-all was fine-tuned on 10 of these 10 dev examples, so that metrics "
        "will be too high; divide the data as its run did (by files), or begin "
        "with other weights."
    )
    assert not learned_before(of_fold(1), task, dev, data_dir)
    assert not learned_before(RecordedDivision("small"), task, dev, data_dir)


def test_a_model_whose_run_is_not_known_may_have_learned_dev_examples(data_dir):
    unknown = [RecordedDivision("copy/model")]
    dev = CLASSIFICATION.read(data_dir, "dev", str)
    asked = (dev, "dev", data_dir)
    assert not learned_examples(unknown, CLASSIFICATION, *asked)
    task = folded(CLASSIFICATION, 3, 1, 0)
    (line,) = learned_examples(unknown, task, *asked)
    assert line.startswith(
        "It is not recorded which of these examples copy/model was "
        "trained on: metrics are too high where"
    )
    # All examples of a file are evaluated, which the run may never have seen.
    assert not learned_examples(unknown, task, dev, "test", data_dir)
