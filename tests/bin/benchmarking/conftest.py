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
from albert_tf.jobs.workload import Workload
from bin import command_line
from bin.benchmarking import data_stages, machine, training_stages
from bin.benchmarking.workspace import Workspace


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


@pytest.fixture(scope="session")
def text(tmp_path_factory, sentences):
    directory = tmp_path_factory.mktemp("text")
    for number in range(4):
        part = sentences[number * 100 : (number + 1) * 100]
        paragraphs = [" ".join(part[n : n + 5]) for n in range(0, 100, 5)]
        (directory / f"{number}.txt").write_text("\n\n".join(paragraphs))
    return directory


@pytest.fixture
def workspace(tmp_path, text, tiny_directory, work):
    directory = tmp_path / "workspace"
    directory.mkdir()
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
        cores=[0, 1],
    )


@pytest.fixture
def in_process(monkeypatch):
    """Runs everything here, in turns of a few milliseconds."""

    def call(cores, function, *args):
        if function is data_stages.measure_build:
            *args, workers = args
            assert workers == len(cores)
            args.append(1)
        return function(*args)

    monkeypatch.setattr(machine, "in_fresh_process", call)
    monkeypatch.setattr(command_line, "load_tensorflow", lambda: None)
    monkeypatch.setattr(data_stages, "_READING_SECONDS", 0.01)
    monkeypatch.setattr(data_stages, "_BATCH_SIZES", (4, 8))
    monkeypatch.setattr(training_stages, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(training_stages, "_WAITING_SECONDS", 0.0)
    monkeypatch.setattr(
        "albert_tf.cluster.matmul_rate.matmul_rate", lambda dtype: 5e9
    )
