"""task.json in a model directory."""

import dataclasses
import json

import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.interchange.task_record import (
    TASK_FILE,
    TaskRecord,
    read_task_record,
)

FEATURES = FeatureConfig(
    max_seq_length=384,
    doc_stride=100,
    max_query_length=50,
    max_answer_length=20,
    n_best_size=10,
    max_choice_length=90,
    null_threshold=-2.75,
)


def test_there_and_back(tmp_path):
    record = TaskRecord("SQuAD2.0", FEATURES, pairs=True)
    record.write(str(tmp_path))
    assert read_task_record(str(tmp_path), 512) == record
    # No setting has its default.
    plain = dataclasses.asdict(FeatureConfig())
    assert all(plain[n] != v for n, v in dataclasses.asdict(FEATURES).items())
    values = json.loads((tmp_path / "task.json").read_text())
    assert values["task"] == "SQuAD2.0"
    assert values["features"]["null_threshold"] == -2.75


def test_a_model_without_a_task(tmp_path):
    assert read_task_record(str(tmp_path), 512) is None
    assert read_task_record(str(tmp_path / "nowhere"), 512) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"task": "RTE", "featu', "is not valid JSON"),
        ("{}", "must have a string 'task' and an object 'features'"),
        ('{"task": 7, "features": {}}', "must have a string 'task'"),
        ('{"task": "RTE", "features": []}', "and an object 'features'"),
        (
            '{"task": "RTE", "features": {}, "pairs": 1}',
            "'pairs' must be true or false, got 1",
        ),
        (
            '{"task": "RTE", "features": {"max_seq_lenght": 9}}',
            "'max_seq_lenght' is not a setting; did you mean max_seq_length",
        ),
        (
            '{"task": "RTE", "features": {"max_seq_length": 513}}',
            "max_seq_length=513 exceeds the model's max_position_embeddings=",
        ),
        *(
            (
                f'{{"task": "RTE", "features": {{"{name}": 1000000000}}}}',
                f"{name}=1000000000 is above",
            )
            for name, value in dataclasses.asdict(FEATURES).items()
            if isinstance(value, int)
        ),
    ],
)
def test_a_damaged_record(tmp_path, content, message):
    path = tmp_path / TASK_FILE
    path.write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        read_task_record(str(tmp_path), 512)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_settings_have_their_defaults(tmp_path):
    values = {"task": "RTE", "features": {"max_seq_length": 64}}
    (tmp_path / TASK_FILE).write_text(json.dumps(values))
    expected = FeatureConfig(max_seq_length=64)
    assert read_task_record(str(tmp_path), 512) == TaskRecord("RTE", expected)
