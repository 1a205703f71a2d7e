"""Settings of fine-tuning by the task, the model and the examples."""

import pytest

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    override,
    setting_fields,
)
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example, MultiLabelExample
from albert_tf.tasks.recipes import FEW_EXAMPLES, PAPER_WIDTH, RECIPES

PAIR = Example(("One.", "Two."), "yes")
TEXT = Example(("One.",), "yes")


def recipe(name, task="RTE", width=128, num_examples=5000, example=PAIR):
    model = override(
        ModelConfig(), {"hidden_size": width, "num_attention_heads": 4}
    )
    return RECIPES[name](TASKS[task], model, lambda: [example] * num_examples)


@pytest.mark.parametrize("width", [PAPER_WIDTH, 4096])
def test_models_of_the_papers_sizes_get_the_papers_settings(width):
    task = TASKS["RACE"]
    expected = {**task.settings, **task.settings_v2}
    assert recipe("auto", "RACE", width) == recipe("v2", "RACE", width)
    assert recipe("auto", "RACE", width).settings == expected
    assert recipe("v1", "RACE", width).settings == task.settings


@pytest.mark.parametrize("width", [128, 512])
def test_narrower_models_learn_at_a_higher_rate(width):
    small = recipe("auto", width=width)
    assert (
        small.settings["learning_rate"] > TASKS["RTE"].settings["learning_rate"]
    )
    assert small.source == f"for a model {width} wide and 5,000 examples"
    assert small.settings["max_seq_length"] == 512
    known = {*setting_fields(FinetuneConfig), *setting_fields(ModelConfig)}
    assert small.settings.keys() <= known


def test_many_examples_are_seen_less_often():
    few, many = (
        recipe("auto", num_examples=n).settings
        for n in (FEW_EXAMPLES, FEW_EXAMPLES + 1)
    )
    assert few["num_train_epochs"] > many["num_train_epochs"]
    assert few["learning_rate"] > many["learning_rate"]


def test_single_texts_take_a_higher_rate_than_pairs():
    single, pair = (
        recipe("auto", "SST-2", example=e).settings["learning_rate"]
        for e in (TEXT, PAIR)
    )
    assert single > pair


def test_only_heads_of_texts_are_pooled():
    assert recipe("auto", "STS-B").settings["pooling"] == "pair_mean"
    single = recipe("auto", "SST-2", example=TEXT)
    assert single.settings["pooling"] == "mean"
    assert "pooling" not in recipe("auto", "SQuAD1.1").settings


@pytest.mark.parametrize(("number", "steps"), [(33, 2), (64, 2), (10**5, 500)])
def test_dev_is_evaluated_in_every_epoch(number, steps):
    assert recipe("auto", num_examples=number).settings["eval_steps"] == steps


def test_the_examples_are_read_only_for_a_small_model():
    def read():
        raise AssertionError

    for name in RECIPES:
        RECIPES[name](TASKS["RTE"], ModelConfig(), read)


def test_several_labels_are_as_one():
    several = MultiLabelExample(("One.",), ("yes", "no"))
    found = recipe("auto", "multilabel", example=several).settings
    expected = recipe("auto", "classification", example=TEXT).settings
    assert found == expected
