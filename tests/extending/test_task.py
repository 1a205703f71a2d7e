"""The row that docs/extending.md adds: read, trained on and evaluated."""

import pytest

from albert_tf.config import FinetuneConfig, override
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.jobs.finetune import run_finetuning
from albert_tf.jobs.task_evaluation import evaluate_task
from albert_tf.tasks.catalog import TASKS


@pytest.fixture
def task(import_section):
    return import_section("A task", TASKS, "moods")


@pytest.fixture
def data_dir(tmp_path):
    for split in ("train", "dev"):
        lines = ["glad it is fine\n", "sad it is not\n"] * 2
        (tmp_path / f"{split}.txt").write_text("".join(lines))
    return str(tmp_path)


def test_a_row_is_all_that_reading_a_task_needs(task, data_dir):
    examples = task.read(data_dir, "dev")
    assert [(e.texts, e.label) for e in examples[:2]] == [
        (("it is fine",), "glad"),
        (("it is not",), "sad"),
    ]
    assert examples[1].location == "dev.txt:2"
    assert task.kind.labels(examples) == ["glad", "sad"]


@pytest.mark.slow
def test_a_model_of_the_task_is_trained_and_evaluated(
    task, data_dir, tmp_path, pretrained
):
    evaluation = run_finetuning(
        override(
            FinetuneConfig(),
            {**task.settings, "max_seq_length": 16, "num_train_steps": 1},
        ),
        task,
        data_dir=data_dir,
        run_dir=str(tmp_path / "run"),
        initial=find_initial_weights(pretrained),
    )
    found = evaluate_task(
        [str(tmp_path / "run" / "model")],
        task,
        data_dir,
        split="dev",
        batch_size=4,
    )
    assert found.metrics["accuracy"] == evaluation["accuracy"]
