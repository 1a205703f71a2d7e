"""Every task's row: the paper's settings, metrics, heads and files."""

import numpy as np
import pytest
from question_fixtures import race_json, squad_json

from albert_tf.config import (
    FeatureConfig,
    FinetuneConfig,
    ModelConfig,
    UserError,
    override,
    setting_fields,
)
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Answer, ChoiceExample, Example, Question
from albert_tf.tasks.kinds.base import Answers
from albert_tf.tasks.kinds.span_answers import QuestionScores

# Table 14 of the paper: learning rate, batch, dropout of the encoder, that of
# the classifier, steps, warm-up, longest sequence.
TABLE_14 = {
    "CoLA": (1e-5, 16, 0, 0.1, 5336, 320, 512),
    "STS-B": (2e-5, 16, 0, 0.1, 3598, 214, 512),
    "SST-2": (1e-5, 32, 0, 0.1, 20935, 1256, 512),
    "MNLI": (3e-5, 128, 0, 0.1, 10000, 1000, 512),
    "QNLI": (1e-5, 32, 0, 0.1, 33112, 1986, 512),
    "QQP": (5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "RTE": (3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "MRPC": (2e-5, 32, 0, 0.1, 800, 200, 512),
    "WNLI": (2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "SQuAD1.1": (5e-5, 48, 0, 0.1, 3649, 365, 384),
    "SQuAD2.0": (3e-5, 48, 0, 0.1, 8144, 814, 512),
    "RACE": (2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}
COLUMNS = (
    "learning_rate",
    "train_batch_size",
    ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "classifier_dropout_prob",
    "num_train_steps",
    "num_warmup_steps",
    "max_seq_length",
)
PARTS_OF_RACE = {"RACE-middle": "RACE", "RACE-high": "RACE"}
WITHOUT_SETTINGS = ("AX", "classification")


@pytest.mark.parametrize("name", TASKS)
def test_the_settings_are_the_papers(name):
    task = TASKS[name]
    if name in WITHOUT_SETTINGS:
        assert not task.settings
        return
    expected = {}
    row = TABLE_14[PARTS_OF_RACE.get(name, name)]
    for column, value in zip(COLUMNS, row, strict=True):
        names = (column,) if isinstance(column, str) else column
        expected |= dict.fromkeys(names, value)
    assert dict(task.settings) == expected


def test_every_row_of_the_table_is_a_task():
    names = {*TABLE_14, *PARTS_OF_RACE, *WITHOUT_SETTINGS}
    assert TASKS.keys() == names
    assert all(name == task.name for name, task in TASKS.items())


@pytest.mark.parametrize("name", ["RACE", "RACE-middle", "RACE-high"])
def test_settings_of_race_for_v2_models(name):
    settings = {**TASKS[name].settings, **TASKS[name].settings_v2}
    assert settings["learning_rate"] == 1e-5
    assert settings["hidden_dropout_prob"] == 0
    assert settings["attention_probs_dropout_prob"] == 0
    assert settings["num_train_steps"] == 12000


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_settings_are_known(task):
    of_model = setting_fields(ModelConfig)
    for settings in (task.settings, task.settings_v2):
        model = {n: v for n, v in settings.items() if n in of_model}
        changed = override(ModelConfig(), model)
        rest = {n: v for n, v in settings.items() if n not in of_model}
        run = override(FinetuneConfig(), rest)
        for name, value in rest.items():
            sections = (run.optimizer, run.training, run.features)
            found = [getattr(s, name) for s in sections if hasattr(s, name)]
            assert found == [value]
        assert all(getattr(changed, n) == v for n, v in model.items())


def answered(task):
    """Returns examples, scores that answer them, and labels."""
    labels = list(task.labels or ("x", "y"))
    if task.kind.head == "classification":
        examples = [Example(("a",), label) for label in labels]
        return examples, list(np.eye(len(labels))), labels
    if task.kind.head == "regression":
        return [Example(("a",), n) for n in "124"], [1.0, 2.0, 5.0], []
    if task.kind.head == "multiple_choice":
        examples = [ChoiceExample("a", ("b", "c"), n) for n in (0, 1)]
        return examples, list(np.eye(2)), []
    none = {"span": None, "answerable_span": -1.0}[task.kind.head]
    question = Question("1", "?", "Red.", (Answer("Red", 0),), "")
    return [question], [QuestionScores(((0, 3, 1.0),), none)], []


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_metric_names_are_computed(task):
    examples, scores, labels = answered(task)
    found = task.kind.compute_metrics(
        Answers(examples, scores, FeatureConfig(), labels), task.metrics
    )
    measured = task.kind.metric_names(task.metrics, labels)
    assert set(measured) <= found.keys()
    assert len(set(measured)) == len(measured) > 0
    # Every metric of the task is there.
    assert set(task.metrics) <= set(measured)


def test_the_default_metrics_are_the_originals():
    found = {
        name: task.kind.metric_names(task.metrics, task.labels)[0]
        for name, task in TASKS.items()
    }
    assert found["CoLA"] == "matthews_correlation"
    assert found["STS-B"] == "pearson"
    assert found["SQuAD1.1"] == found["SQuAD2.0"] == "f1"
    others = found.keys() - {"CoLA", "AX", "STS-B", "SQuAD1.1", "SQuAD2.0"}
    assert {found[name] for name in others} == {"accuracy"}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_splits(task):
    if task.name == "AX":
        assert task.reader.splits == ("test",)
        return
    named = {"train", *task.evaluated.values(), *task.submissions}
    assert named <= set(task.reader.splits)
    assert task.evaluated[""] == "dev"


def test_the_heads_of_the_kinds():
    heads = {
        "STS-B": "regression",
        "SQuAD1.1": "span",
        "SQuAD2.0": "answerable_span",
        **dict.fromkeys(["RACE", *PARTS_OF_RACE], "multiple_choice"),
    }
    for name, task in TASKS.items():
        assert task.kind.head == heads.get(name, "classification")
        # A model knows the names of its classes, and of nothing else.
        assert task.kind.labelled == (task.kind.head == "classification")


def question(id_, **answers):
    return squad_json({"id": id_, "question": "?", **answers})


@pytest.mark.parametrize(
    ("name", "file"),
    [("SQuAD1.1", "train-v1.1.json"), ("SQuAD2.0", "train-v2.0.json")],
)
def test_files_of_squad(tmp_path, name, file):
    task, directory = TASKS[name], str(tmp_path)
    # That of the other version lies beside it, and is not meant.
    for version in ("1.1", "2.0"):
        path = tmp_path / f"train-v{version}.json"
        path.write_text(question(path.name, answers=[]))
    (found,) = task.read(directory, "train")
    assert found.id == file
    other = tmp_path / "train.json"
    other.write_text(question("own", answers=[]))
    message = rf"{file} and \S*train\.json both exist; remove all but one"
    with pytest.raises(UserError, match=message):
        task.read(directory, "train")
    (tmp_path / file).unlink()
    (found,) = task.read(directory, "train")
    assert found.id == "own"
    message = rf"has no test-{file[6:]} or test\.json, which the task needs"
    with pytest.raises(UserError, match=message):
        task.read(directory, "test")
    (tmp_path / "test.json").write_text(question("1"))
    (found,) = task.read(directory, "test")
    assert found.answers is None
    message = f"^{name} has no split 'eval'; it has train, dev, test.$"
    with pytest.raises(UserError, match=message):
        task.read(directory, "eval")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("RACE", ["middle1-0", "high1-0"]),
        ("RACE-middle", ["middle1-0"]),
        ("RACE-high", ["high1-0"]),
    ],
)
def test_files_of_race(tmp_path, name, ids):
    for level in ("middle", "high"):
        directory = tmp_path / "dev" / level
        directory.mkdir(parents=True)
        (directory / "1.txt").write_text(race_json(f"{level}1", "B"))
    found = TASKS[name].read(str(tmp_path), "dev")
    assert [example.id for example in found] == ids
    assert {example.label for example in found} == {1}
