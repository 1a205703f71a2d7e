"""Which kind has which simple model, and the cache of its predictions."""

import dataclasses

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.tasks.baselines import table
from albert_tf.tasks.baselines.table import baseline_of, baseline_scores
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.classification import Classification

TRAIN = [
    Example((f"{word} thing",), str(number % 2))
    for number, word in enumerate(["bad", "good"] * 5)
]
DEV = [Example(("good one",), "1"), Example(("bad one",), "0")]
SST = TASKS["SST-2"]


class Moods(Classification):
    pass


class Melodies(Kind):
    name = "melodies"
    example = features = scores = compute_metrics = figure = _prediction = None


def test_a_kind_made_of_another_has_its_baseline():
    assert baseline_of(Moods()) is baseline_of(Classification())


def test_a_kind_of_its_own_has_none():
    task = dataclasses.replace(SST, name="songs", kind=Melodies())
    assert baseline_of(task.kind) is None
    with pytest.raises(UserError, match="songs is of melodies, which have no"):
        baseline_scores(task, TRAIN, DEV)


@pytest.fixture
def counted(monkeypatch):
    """The training examples of each time that predictions are made."""
    calls = []
    row = table.BASELINES[Classification]

    def predict(kind, train, held_out, labels):
        calls.append(len(train))
        return row.predict(kind, train, held_out, labels)

    monkeypatch.setitem(
        table.BASELINES,
        Classification,
        dataclasses.replace(row, predict=predict, max_examples=8),
    )
    return calls


def test_predictions_are_cached(counted, tmp_path):
    lines = []

    def classes(train=TRAIN, dev=DEV):
        scored = baseline_scores(
            SST, train, dev, cache_dir=str(tmp_path / "new"), log=lines.append
        )
        return np.argmax(scored.scores, axis=1).tolist()

    assert classes() == classes() == [1, 0]
    assert len(counted) == 1
    # Other training examples, or held-out ones, are another model.
    classes(TRAIN[1:])
    assert classes(dev=DEV[::-1]) == [0, 1]
    assert len(counted) == 3
    (first, *_) = sorted(
        (tmp_path / "new").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
    first.write_bytes(b"damaged")
    assert classes() == [1, 0]
    assert (
        lines[3] == f"{first} cannot be read; what it held is computed again."
    )
    assert len(counted) == len(lines) - 1 == 4


def test_it_learns_from_a_limited_number_of_examples(counted):
    lines = []
    baseline_scores(SST, TRAIN, DEV, log=lines.append)
    assert counted == [8]
    assert lines == [
        "Simple model: TF-IDF with a linear model, from 8 of 10 training "
        "examples ..."
    ]
