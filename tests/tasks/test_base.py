"""A task as a row: its splits, and what a kind says unless it says else."""

import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Answers
from albert_tf.tasks.kinds.texts import Classification, Regression


class TwoSplits:
    splits = ("train", "dev")

    def read(self, data_dir, split, log):
        log(f"{split} lacks a line")
        return [Example((data_dir, split), None)]


TASK = Task("Moods", Classification(), TwoSplits())


def test_a_split_is_read_by_the_reader(capsys):
    said = []
    found = TASK.read("here", "dev", said.append)
    assert found == [Example(("here", "dev"), None)]
    assert said == ["dev lacks a line"]
    assert capsys.readouterr().out == ""
    # Where nobody takes it, people read it.
    assert TASK.read("here", "dev") == found
    assert capsys.readouterr().out == "dev lacks a line\n"


@pytest.mark.parametrize("split", ["test", "", "Dev"])
def test_a_split_that_the_task_has_not(split):
    said = f"^Moods has no split {split!r}; it has train, dev.$"
    with pytest.raises(UserError, match=said):
        TASK.read("here", split)


def test_the_place_does_not_make_an_example_another():
    assert Example(("a",), "b", "x.tsv, line 2") == Example(("a",), "b")
    assert Example(("a",), "b") != Example(("a",), "c")


def test_a_row_that_says_no_more_evaluates_dev_and_submits_nothing():
    assert dict(TASK.evaluated) == {"": "dev"}
    assert not TASK.submissions and not TASK.settings and not TASK.labels


def test_a_kind_that_says_no_more():
    kind, config = Regression(), FeatureConfig(null_threshold=1.5)
    assert kind.labels([Example(("a",), "1")]) == []
    # Only questions without answers keep something of a measurement.
    assert kind.config_to_save(config, {"best_f1_thresh": 7.0}) == config
    assert (
        kind.table(Answers([Example(("a",), "1")], [1.0], FeatureConfig(), []))
        is None
    )
    for training in (True, False):
        assert kind.warnings([Example(("a",), "1")], training=training) == []


def test_the_first_metric_chooses_the_best_model():
    metrics = {"z": max, "a": min}
    assert Classification().metric_names(metrics, ["x", "y"]) == ("z", "a")
    assert Classification().metric_names({}, ["x", "y"]) == ()
