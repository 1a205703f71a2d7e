"""Phases and depth schedules."""

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.inputs.phases import DepthSchedule, Phases, numbers_of


class Numbered:
    """A source whose records are numbered by step."""

    def __init__(self, name, batch_size):
        self.name = name
        self.batch_size = batch_size

    def batch(self, step, rows=None):
        return (self.name, step, rows)

    def record_numbers(self, step):
        return step * self.batch_size + np.arange(self.batch_size)

    def record_name(self, number):
        return f"{self.name}{number}"


def test_each_phase_starts_at_its_first_batch():
    phases = Phases([Numbered("a", 2), Numbered("b", 3)], [0, 5])
    assert phases.starts == [0, 5]
    made = [phases.batch(step, 0, range(1))[:2] for step in range(9)]
    assert made == [("a", n) for n in range(5)] + [("b", n) for n in range(4)]
    assert phases.record_names(6, 0) == ["b3", "b4", "b5"]
    # After a roll-back the phase is still that of the step.
    assert phases.batch(6, 2, range(1))[:2] == ("b", 3)


def test_a_phase_may_continue_the_records_of_the_one_before():
    source = Numbered("a", 2)
    phases = Phases([source, source], [0, 5], origins=[0, 0])
    made = [phases.batch(step, 0, range(1))[1] for step in range(8)]
    assert made == list(range(8))
    assert [phases.number(step) for step in (4, 5)] == [0, 1]


@pytest.mark.parametrize(
    ("text", "expected"), [("", [None] * 6), ("0:2, 5:6", [2] * 5 + [6])]
)
def test_depths(text, expected):
    depths = DepthSchedule(text, 6)
    assert [depths.at(step) for step in range(6)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", "'3' is not of the form step:value, such as 2000:6"),
        ("0:x", "'0:x' is not of the form"),
        ("0:7", "asks for 7 layers; the model has 6"),
        ("0:0", "asks for 0 layers"),
        ("1:2", "must start with step 0"),
        ("0:1,5:2,5:3", "must rise"),
    ],
)
def test_invalid_depth_schedules(text, message):
    with pytest.raises(UserError, match=message):
        DepthSchedule(text, 6)


def test_numbers():
    assert numbers_of("phases", "90, 10", 2) == [90, 10]
    for text in ("90", "90,10,1", "90,0", "90,-1", "a,b", ""):
        with pytest.raises(UserError, match="phases=.* for each of the 2 dir"):
            numbers_of("phases", text, 2)
