"""A task as a row: its splits and defaults."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.classification import Classification


class TwoSplits:
    splits = ("train", "dev")

    def read(self, data_dir, split, log):
        log(f"{split} lacks a line")
        return [Example((data_dir, split), None)]


TASK = Task("Moods", Classification(), TwoSplits())


def test_a_split_is_read_by_the_reader(capsys):
    logged = []
    found = TASK.read("here", "dev", logged.append)
    assert found == [Example(("here", "dev"), None)]
    assert logged == ["dev lacks a line"]
    assert capsys.readouterr().out == ""
    assert TASK.read("here", "dev") == found
    assert capsys.readouterr().out == "dev lacks a line\n"


@pytest.mark.parametrize("split", ["test", "", "Dev"])
def test_a_split_that_the_task_has_not(split):
    message = f"^Moods has no split {split!r}; it has train, dev.$"
    with pytest.raises(UserError, match=message):
        TASK.read("here", split)


def test_equal_examples_in_two_locations():
    assert Example(("a",), "b", "x.tsv:2") == Example(("a",), "b")
    assert Example(("a",), "b") != Example(("a",), "c")


def test_defaults():
    assert dict(TASK.evaluated) == {"": "dev"}
    assert not TASK.submissions and not TASK.settings and not TASK.labels
