"""A tiny workspace whose stages run in the tests' own process, quickly."""

import pytest
from training_fixtures import SMALL_MODEL

from albert_tf.config import (
    FeatureConfig,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainingDataConfig,
    TrainingConfig,
    override,
)
from benchmarks import data, harness, serving, training
from benchmarks.workload import Workload
from benchmarks.workspace import Workspace
from bin import command_line


@pytest.fixture(scope="session")
def work():
    return Workload(
        model=override(
            ModelConfig(),
            SMALL_MODEL | {"vocab_size": 200, "num_hidden_layers": 1},
        ),
        batch_size=4,
        seq_length=32,
        num_predictions=5,
        training=TrainingConfig(num_train_steps=10),
        optimizer=OptimizerConfig(optimizer="adamw"),
    )


@pytest.fixture
def workspace(tmp_path, sentences, tiny_directory, work):
    directory, text = tmp_path / "workspace", tmp_path / "text"
    directory.mkdir()
    text.mkdir()
    for number in range(4):
        part = sentences[number * 100 : (number + 1) * 100]
        paragraphs = [" ".join(part[n : n + 5]) for n in range(0, 100, 5)]
        (text / f"{number}.txt").write_text("\n\n".join(paragraphs))
    return Workspace(
        str(directory),
        inputs=[str(text)],
        tokenizer=str(tiny_directory),
        vocab_size=200,
        config=PretrainingDataConfig(
            record_kind="static",
            sentence_splitter="newline",
            dupe_factor=2,
            max_seq_length=32,
        ),
        masking=MaskingConfig(),
        work=work,
        features=FeatureConfig(max_seq_length=32),
        cores=[0],
    )


@pytest.fixture
def in_process(monkeypatch):
    """Runs everything here, in turns of a few milliseconds."""

    def call(cores, function, *args):
        return function(*args)

    for module in (harness, data, training):
        monkeypatch.setattr(module, "in_fresh_process", call)
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: None)
    threads = "tensorflow.config.threading.set_intra_op_parallelism_threads"
    monkeypatch.setattr(threads, lambda number: None)
    monkeypatch.setattr(command_line, "load_tensorflow", lambda: None)
    monkeypatch.setattr(data, "_READING_SECONDS", 0.01)
    monkeypatch.setattr(training, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(serving, "_SECONDS", 0.0)
    monkeypatch.setattr(serving, "_CLIENT_SECONDS", 0.01)
    monkeypatch.setattr(
        "albert_tf.cluster.matmul_rate.matmul_rate", lambda dtype: 5e9
    )
