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
from albert_tf.io.json_files import write_json
from albert_tf.jobs.task_evaluation import EvaluatedExamples, evaluate_task
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tasks import feature_building
from albert_tf.tasks.base import Task
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import classification_task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import FeatureBuilder, examples_digest
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification
from albert_tf.tasks.splits import WITHOUT_FLAGS, Split
from albert_tf.training.evaluator import Evaluator

CONFIG = FeatureConfig(max_seq_length=32)


class Trainer(Evaluator):
    """Predicts the number of tokens of each row, or its value in `wrong`."""

    strategy = tf.distribute.get_strategy()

    def __init__(self, wrong=None):
        self.wrong = wrong or {}

    def evaluation_step(self, batch, *_, **options):
        lengths = batch["input_mask"].sum(axis=1).astype(np.float32)
        weights = batch["example_weights"]
        sums = {
            "loss": (float((lengths * weights).sum()), float(weights.sum()))
        }
        found = [self.wrong.get(length, length) for length in lengths]
        return sums, {"predictions": np.array(found)}


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

    def map(self, function, items):
        return map(pickle.loads(pickle.dumps(function)), items)


@pytest.mark.parametrize("kind", [Classification(), TokenClassification()])
def test_labels_of_a_model_are_sent_to_processes(
    kind, tiny_tokenizer, monkeypatch
):
    loaded = LoadedModel(random_model(kind.head), tiny_tokenizer, 32)
    examples = [kind.example((f"bada {n}",), n) for n in range(8)]
    task = Task("words", kind, Given(examples))
    monkeypatch.setattr(feature_building, "_CHUNK", 1)
    monkeypatch.setattr(feature_building, "Workers", PicklingPool)
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


DIVISION = {"dev_fraction": 0.3, "seed": 5}


@pytest.fixture
def evaluate(tmp_path, tiny_tokenizer):
    """Evaluates a model whose run held out 12 of 40 rows of one file.

    Returns the locations of the examples, and what was logged.
    """
    model = random_model("classification")
    rows = [f"bada {n},{model.labels[n % 3]}" for n in range(40)]
    data = tmp_path / "rows.csv"
    data.write_text("\n".join(["text,label", *rows]))
    loaded = LoadedModel(model, tiny_tokenizer, 32)

    def call(split, asked=WITHOUT_FLAGS):
        return evaluate_task(
            [str(tmp_path / "run" / "model")],
            classification_task(Reading(split=asked)),
            str(data),
            split=split,
            batch_size=8,
            load=lambda _: loaded,
            log=logged.append,
        )

    def locations(found):
        return {example.location for example in found.scored.examples}

    logged = []
    asked = Split(DIVISION["dev_fraction"], DIVISION["seed"])
    held_out = call("dev", asked).scored.examples
    recorded = {
        "job": "finetune",
        "held_out": DIVISION,
        "dev_examples": [examples_digest(held_out)],
    }
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / "config.json", recorded)
    return lambda *args: (logged.clear(), locations(call(*args)), [*logged])[1:]


def test_the_rows_that_a_run_held_out_are_evaluated(evaluate):
    found, logged = evaluate("dev")
    asked, _ = evaluate("dev", Split(0.3, 5))
    assert found == asked
    assert len(found) == 12
    assert not any("trained on" in line for line in logged)


def test_rows_of_other_data_are_not_those_that_a_run_held_out(
    evaluate, tmp_path
):
    data = tmp_path / "rows.csv"
    data.write_text(data.read_text().replace("bada 7", "bada seven"))
    _, logged = evaluate("dev")
    assert logged[-1].startswith("These dev examples are not those that the r")
    data.write_text(data.read_text().replace("bada seven", "bada 7"))


def test_rows_that_a_model_was_trained_on_are_counted(evaluate):
    _, logged = evaluate("test")
    assert "was trained on 28 of these 40 examples" in logged[-1]
    dev, _ = evaluate("dev")
    other, logged = evaluate("dev", Split(0.3, 6))
    assert f"trained on {len(other - dev)} of these" in logged[-1]


def test_labels_of_another_library(tmp_path, tiny_tokenizer):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nbada\t1\n")

    def load(name):
        config = random_model("none").config
        model = AlbertForClassification(config, labels=["LABEL_0", "LABEL_1"])
        return LoadedModel(model, tiny_tokenizer, 32)

    with pytest.raises(UserError) as error:
        evaluate_task(
            *(["theirs"], TASKS["SST-2"], str(tmp_path)),
            split="dev",
            batch_size=8,
            load=load,
        )
    assert str(error.value) == (
        "theirs has the labels LABEL_0, LABEL_1; SST-2 has 0, 1, as do models "
        "of an ensemble. bin.convert --labels gives a model's classes names, "
        "in the order of its outputs."
    )


def test_labels_of_an_ensemble_in_another_order(
    monkeypatch, tmp_path, tiny_tokenizer
):
    (tmp_path / "test.csv").write_text("text,label\nbada,a\n")
    orders = {"one": ["a", "b, c", "d"], "two": ["d", "a", "b, c"]}

    def load(name):
        model = random_model("classification")
        monkeypatch.setattr(model, "labels", orders[name])
        return LoadedModel(model, tiny_tokenizer, 32)

    with pytest.raises(UserError) as error:
        evaluate_task(
            ["one", "two"],
            classification_task(),
            str(tmp_path),
            split="test",
            batch_size=8,
            load=load,
        )
    assert str(error.value) == (
        "two has the labels d, a, 'b, c'; classification has the same in "
        "another order: a, 'b, c', d, as do models of an ensemble."
    )
