"""Sources that are read one after another."""

import numpy as np

from albert_tf.inputs.source_schedule import SourceSchedule


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


def test_each_source_starts_at_its_first_batch():
    sources = SourceSchedule([Numbered("a", 2), Numbered("b", 3)], [0, 5])
    assert sources.starts == [0, 5]
    made = [sources.batch(step, 0, range(1))[:2] for step in range(9)]
    assert made == [("a", n) for n in range(5)] + [("b", n) for n in range(4)]
    assert sources.record_names(6, 0) == ["b3", "b4", "b5"]
    # After a roll-back the source is still that of the step.
    assert sources.batch(6, 2, range(1))[:2] == ("b", 3)


def test_a_source_may_continue_the_records_of_the_one_before():
    source = Numbered("a", 2)
    sources = SourceSchedule([source, source], [0, 5], origins=[0, 0])
    made = [sources.batch(step, 0, range(1))[1] for step in range(8)]
    assert made == list(range(8))
    assert [sources.number(step) for step in (4, 5)] == [0, 1]
