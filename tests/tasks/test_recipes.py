"""Settings of fine-tuning by the task, the model and the examples."""

import dataclasses

import pytest

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    from_dict,
    override,
    setting_fields,
    to_dict,
)
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example, MultiLabelExample
from albert_tf.tasks.recipes import (
    FEW_EXAMPLES,
    PAPER_WIDTH,
    RECIPES,
    with_recipe,
)

PAIR = Example(("One.", "Two."), "yes")
TEXT = Example(("One.",), "yes")


def recipe(
    name, task="RTE", width=128, num_examples=5000, example=PAIR, **changes
):
    changes = {"hidden_size": width, "num_attention_heads": 4, **changes}
    model = override(ModelConfig(), changes)
    return RECIPES[name](TASKS[task], model, [example] * num_examples)


@pytest.mark.parametrize("width", [PAPER_WIDTH, 4096])
def test_models_of_the_papers_sizes_get_the_papers_settings(width):
    task = TASKS["RACE"]
    expected = {**task.paper_settings, **task.settings_v2}
    assert recipe("v2", "RACE", width).settings == expected
    assert recipe("auto", "RACE", width) == recipe("v2", "RACE", width)
    of_v1 = recipe("v1", "RACE", width)
    assert of_v1.settings == task.paper_settings
    # Models of version 2 have no dropout.
    assert recipe("auto", "RACE", width, hidden_dropout_prob=0.1) == of_v1


def test_wide_models_have_settings_for_tasks_of_a_users_own():
    found = recipe("auto", "classification", 768, num_examples=400)
    assert found.settings == {
        "learning_rate": 2e-5,
        "num_train_epochs": 3.0,
        "train_batch_size": 32,
    }
    line = with_recipe(FinetuneConfig(), {}, found)[2]
    assert line == (
        "Settings for a model 768 wide: learning_rate=2e-05, "
        "num_train_epochs=3.0, train_batch_size=32, eval_steps=13."
    )


def test_the_line_says_what_other_libraries_cannot_hold():
    small = recipe("auto", "SST-2", example=TEXT)
    words = "Other libraries hold heads of --pooling=first alone."
    assert with_recipe(FinetuneConfig(), {}, small)[2].endswith(words)
    first = with_recipe(FinetuneConfig(), {"pooling": "first"}, small)[2]
    assert words not in first


@pytest.mark.parametrize("width", [128, 512])
def test_narrower_models_learn_at_a_higher_rate(width):
    small = recipe("auto", width=width)
    assert (
        small.settings["learning_rate"]
        > TASKS["RTE"].paper_settings["learning_rate"]
    )
    assert small.source == f"for a model {width} wide and 5,000 examples"
    assert small.settings["max_seq_length"] == 512
    known = {*setting_fields(FinetuneConfig), *setting_fields(ModelConfig)}
    assert small.settings.keys() <= known


@pytest.mark.parametrize("width", [128, 768])
@pytest.mark.parametrize("name", ["auto", "v2"])
def test_a_tasks_own_settings_hold_for_models_of_any_size(
    name, width, monkeypatch
):
    own = {"learning_rate": 7e-5, "num_train_epochs": 9.0}
    task = dataclasses.replace(TASKS["classification"], settings=own)
    monkeypatch.setitem(TASKS, "classification", task)
    found = recipe(name, "classification", width).settings
    assert found.items() >= own.items()


def test_many_examples_are_seen_less_often():
    few, many = (
        recipe("auto", num_examples=n).settings
        for n in (FEW_EXAMPLES, FEW_EXAMPLES + 1)
    )
    assert few["num_train_epochs"] > many["num_train_epochs"]
    assert few["learning_rate"] > many["learning_rate"]


def test_single_texts_take_a_higher_rate_than_pairs():
    single, pair = (
        recipe("auto", "SST-2", 256, example=e).settings["learning_rate"]
        for e in (TEXT, PAIR)
    )
    assert single > pair


@pytest.mark.parametrize(
    ("width", "rate"), [(64, 3e-4), (128, 3e-4), (256, 2.5e-4), (384, 1.7e-4)]
)
def test_wider_models_take_lower_rates(width, rate):
    found = recipe("auto", "SST-2", width, example=TEXT)
    assert found.settings["learning_rate"] == rate


def test_only_heads_of_texts_are_pooled():
    assert recipe("auto", "STS-B").settings["pooling"] == "pair_mean_ngrams"
    single = recipe("auto", "SST-2", example=TEXT)
    assert single.settings["pooling"] == "mean_ngrams"
    assert "pooling" not in recipe("auto", "SQuAD1.1").settings


def test_models_are_compared_by_their_states_alone():
    for example, pooling in ((PAIR, "pair_mean"), (TEXT, "mean")):
        auto, alone = (
            recipe(name, "SST-2", example=example).settings
            for name in ("auto", "encoder")
        )
        assert alone == {**auto, "pooling": pooling}


def evaluation_steps(changes, found):
    config = override(FinetuneConfig(), changes)
    return with_recipe(config, {}, found)[0].training.eval_steps


@pytest.mark.parametrize(("number", "steps"), [(33, 2), (64, 2), (10**5, 500)])
@pytest.mark.parametrize(
    ("name", "width"), [("auto", 128), ("auto", 768), ("v1", 768)]
)
def test_dev_is_evaluated_in_every_epoch(name, width, number, steps):
    found = recipe(name, width=width, num_examples=number)
    assert evaluation_steps({}, found) == steps
    assert evaluation_steps({"eval_steps": 7}, found) == 7


def test_an_epoch_in_both_orders_has_twice_the_batches():
    found = recipe("auto", num_examples=33)
    assert evaluation_steps({"double_unordered": True}, found) == 3


@pytest.mark.parametrize("width", [128, 768])
def test_an_epoch_has_batches_of_the_size_that_is_given(width, monkeypatch):
    found = recipe("auto", width=width, num_examples=400)
    assert evaluation_steps({"train_batch_size": 128}, found) == 4
    task = dataclasses.replace(TASKS["RTE"], settings={"train_batch_size": 8})
    monkeypatch.setitem(TASKS, "RTE", task)
    found = recipe("auto", width=width, num_examples=400)
    assert evaluation_steps({}, found) == 50
    task = dataclasses.replace(TASKS["RTE"], settings={"eval_steps": 7})
    monkeypatch.setitem(TASKS, "RTE", task)
    assert evaluation_steps({}, recipe("auto", width=width)) == 7


@pytest.mark.parametrize(
    "own", [{"num_train_epochs": 9.0}, {"num_train_steps": 9}]
)
@pytest.mark.parametrize("width", [128, 768])
def test_a_tasks_own_length_replaces_that_of_a_recipe(own, width, monkeypatch):
    task = dataclasses.replace(TASKS["RTE"], settings=own)
    monkeypatch.setitem(TASKS, "RTE", task)
    found = recipe("auto", width=width).settings
    lengths = {"num_train_epochs", "num_train_steps", "num_warmup_steps"}
    assert {n: v for n, v in found.items() if n in lengths} == own


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"learning_rate": 3e-5, "num_train_steps": 800}),
        # A value is given even where it is that of the defaults.
        ({"learning_rate": 2e-5}, {"learning_rate": 2e-5}),
        (
            {"num_train_epochs": 2.0},
            {"num_train_steps": 0, "num_warmup_steps": 0},
        ),
        ({"num_train_steps": 7}, {"num_train_steps": 7, "num_warmup_steps": 0}),
        ({"num_warmup_steps": 0}, {"warmup_proportion": 0.0}),
        ({"warmup_proportion": 0.2}, {"num_warmup_steps": 0}),
    ],
)
def test_settings_that_are_not_given_are_those_of_the_recipe(given, expected):
    config = override(FinetuneConfig(), given)
    config, changes, line = with_recipe(config, {}, recipe("v1"))
    found = {k: v for part in to_dict(config).values() for k, v in part.items()}
    assert {name: found[name] for name in expected} == expected
    assert changes["classifier_dropout_prob"] == 0.1
    assert "classifier_dropout_prob=0.1" in line
    assert not any(f"{name}=" in line for name in given)


def test_adapters_learn_at_a_higher_rate():
    given = {"lora_rank": 8}
    for changes, expected in (
        ({}, 3e-4),
        ({"learning_rate": 2e-5}, 2e-5),
    ):
        config = override(FinetuneConfig(), given | changes)
        found = with_recipe(config, {}, recipe("v1"))[0]
        assert found.optimizer.learning_rate == pytest.approx(expected)


def test_given_changes_of_the_model_stay():
    _, changes, line = with_recipe(
        FinetuneConfig(), {"pooling": "first"}, recipe("auto")
    )
    assert changes["pooling"] == "first" and "pooling" not in line


def test_a_recorded_configuration_is_given_as_a_whole():
    recorded = from_dict(FinetuneConfig, to_dict(FinetuneConfig()), "a file")
    assert with_recipe(recorded, {}, recipe("v1"))[0] == FinetuneConfig()


def test_several_labels_are_as_one():
    several = MultiLabelExample(("One.",), ("yes", "no"))
    found = recipe("auto", "multilabel", example=several).settings
    expected = recipe("auto", "classification", example=TEXT).settings
    assert found == expected
