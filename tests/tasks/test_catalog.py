"""Every task's row: the paper's settings, metrics and files."""

import pytest
from question_fixtures import race_json, squad_json

from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    UserError,
    override,
    setting_fields,
)
from albert_tf.tasks.catalog import TASKS

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
    "hidden_dropout_prob",
    "classifier_dropout_prob",
    "num_train_steps",
    "num_warmup_steps",
    "max_seq_length",
)
PARTS_OF_RACE = {"RACE-middle": "RACE", "RACE-high": "RACE"}
WITHOUT_SETTINGS = ("AX", "classification", "multilabel", "entities")


def test_the_settings_are_the_papers():
    assert TASKS.keys() == {*TABLE_14, *PARTS_OF_RACE, *WITHOUT_SETTINGS}
    for name, task in TASKS.items():
        assert name == task.name
        expected = {}
        if name not in WITHOUT_SETTINGS:
            row = TABLE_14[PARTS_OF_RACE.get(name, name)]
            expected = dict(zip(COLUMNS, row, strict=True))
            dropout = expected["hidden_dropout_prob"]
            expected["attention_probs_dropout_prob"] = dropout
        assert dict(task.paper_settings) == expected


def test_settings_of_race_for_v2_models():
    settings = TASKS["RACE"].paper_settings | TASKS["RACE"].settings_v2
    values = [settings[name] for name in COLUMNS[:5]]
    assert values == [1e-5, 32, 0, 0.1, 12000]
    assert settings["attention_probs_dropout_prob"] == 0


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_settings_and_splits_are_known(task):
    of_model = setting_fields(ModelConfig)
    for settings in (task.paper_settings, task.settings_v2):
        for name, value in settings.items():
            base = ModelConfig() if name in of_model else FinetuneConfig()
            override(base, {name: value})
    if task.name != "AX":
        named = {"train", *task.evaluated.values(), *task.submissions}
        assert named <= set(task.reader.splits)


def test_the_default_metrics_are_the_originals():
    found = {
        name: task.kind.metric_names(task.metrics, task.labels)[0]
        for name, task in TASKS.items()
    }
    assert found["CoLA"] == "matthews_correlation"
    assert found["STS-B"] == "pearson"
    own = {"SQuAD1.1", "SQuAD2.0", "entities"}
    assert {found[name] for name in own} == {"f1"}
    assert found["multilabel"] == "micro_average_precision"
    own.add("multilabel")
    others = found.keys() - {"CoLA", "AX", "STS-B", *own}
    assert {found[name] for name in others} == {"accuracy"}


def question(id_, **answers):
    return squad_json({"id": id_, "question": "?", **answers})


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_files_of_squad(write, tmp_path, version):
    task, directory = TASKS[f"SQuAD{version}"], str(tmp_path)
    # That of the other version lies beside it, and is not meant.
    for name in ("train-v1.1.json", "train-v2.0.json"):
        write(name, question(name, answers=[]))
    (found,) = task.read(directory, "train")
    assert found.id == f"train-v{version}.json"
    # Or files of one's own.
    write("test.json", question("1"))
    (found,) = task.read(directory, "test")
    assert found.answers is None
    message = f"^SQuAD{version} has no split 'eval'; it has train, dev, test.$"
    with pytest.raises(UserError, match=message):
        task.read(directory, "eval")


def test_files_of_race(write, tmp_path):
    levels = {"RACE-middle": "middle", "RACE-high": "high"}
    for level in levels.values():
        write(f"dev/{level}/1.txt", race_json(f"{level}1", "B"))
    parts = [TASKS[name].read(str(tmp_path), "dev") for name in levels]
    assert [[e.id for e in part] for part in parts] == [
        ["middle1-0"],
        ["high1-0"],
    ]
    assert TASKS["RACE"].read(str(tmp_path), "dev") == parts[0] + parts[1]
