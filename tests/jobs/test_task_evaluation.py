"""Scores of examples, collected from batches."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from training_fixtures import random_model

from albert_tf.config import FeatureConfig, UserError
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.jobs.task_evaluation import EvaluatedExamples, evaluate_task
from albert_tf.tasks import feature_building
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification

CONFIG = FeatureConfig(max_seq_length=32)


class Trainer:
    """Predicts the number of tokens of each row, or its value in `wrong`."""

    strategy = tf.distribute.get_strategy()

    def __init__(self, wrong=None):
        self.wrong = wrong or {}

    def prediction_step(self, batch):
        lengths = batch["input_mask"].sum(axis=1).astype(np.float32)
        weights = batch["example_weights"]
        measures = {
            "sum:loss": float((lengths * weights).sum()),
            "weight:loss": float(weights.sum()),
        }
        found = [self.wrong.get(length, length) for length in lengths]
        return measures, {"predictions": np.array(found)}


@pytest.fixture
def evaluated(tiny_tokenizer):
    examples = [
        Example(("bada " * count,), "1", f"f.tsv, line {line}")
        for line, count in enumerate((3, 1, 5, 2, 4), start=2)
    ]
    builder = FeatureBuilder(Regression(), tiny_tokenizer, CONFIG, [])
    return EvaluatedExamples(builder, examples, batch_size=2, widths=(16, 32))


def lengths(evaluated, tokenizer):
    return [
        2 + len(tokenizer.encode(example.texts[0]))
        for example in evaluated.examples
    ]


def test_scores_are_in_the_order_of_the_examples(evaluated, tiny_tokenizer):
    expected = lengths(evaluated, tiny_tokenizer)
    seen = []
    loss, scored = evaluated.score(Trainer(), lambda *done: seen.append(done))
    assert scored.scores == expected
    # The row that fills the last batch up counts for nothing.
    assert loss == pytest.approx(np.mean(expected))
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_outputs_that_are_not_finite_are_refused(
    evaluated, tiny_tokenizer, value
):
    fourth = lengths(evaluated, tiny_tokenizer)[3]
    trainer = Trainer(wrong={fourth: value})
    with pytest.raises(UserError, match="^f.tsv, line 5: .* are not finite; "):
        evaluated.score(trainer)


@dataclasses.dataclass(frozen=True)
class Given:
    """Reads nothing: the examples are given."""

    examples: list[Any]
    splits: tuple[str, ...] = ("test",)

    def read(self, data_dir, split, log):
        return self.examples


class PicklingPool:
    """Stands for a pool: a process gets what has been pickled."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, chunks, chunksize):
        assert chunksize > 0
        return map(pickle.loads(pickle.dumps(function)), chunks)


@pytest.mark.parametrize("kind", [Classification(), TokenClassification()])
def test_labels_of_a_model_are_sent_to_processes(
    kind, tiny_tokenizer, monkeypatch
):
    loaded = LoadedModel(random_model(kind.head), tiny_tokenizer, 32)
    examples = [kind.example((f"bada {n}",), n) for n in range(8)]
    task = Task("words", kind, Given(examples))
    monkeypatch.setattr(feature_building, "_CHUNK", 1)
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", PicklingPool)
    found = [
        evaluate_task(
            ["a"],
            task,
            "",
            split="test",
            batch_size=8,
            workers=workers,
            load=lambda _: loaded,
        )
        for workers in (1, 2)
    ]
    one, two = (result.predictions() for result in found)
    assert one == two
