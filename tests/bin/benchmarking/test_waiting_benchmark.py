"""What is waited for, by a clock of our own."""

import pytest

from albert_tf.config import (
    MaskingConfig,
    ModelConfig,
    PretrainingDataConfig,
    TrainingConfig,
)
from albert_tf.jobs.workload import Workload
from bin.benchmarking import waiting_benchmark
from data_prep.pretraining.pretraining_data import build_pretraining_data


def test_a_round_tells_waiting_from_training(monkeypatch):
    class Clock:
        now = 0.0

        def perf_counter(self):
            return self.now

    clock, trained = Clock(), []

    class Side:
        def train_on(self, batch):
            clock.now += 3.0
            trained.append(batch)

    def batches():
        for number in range(5):
            clock.now += 0.5
            yield number

    monkeypatch.setattr(waiting_benchmark, "time", clock)
    one = waiting_benchmark._round(Side(), batches(), 4, 16)
    assert one == waiting_benchmark.Waiting(
        num_sequences=64, seconds=14.0, waiting=2.0
    )
    assert trained == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def shards(tmp_path_factory, sentences, tiny_directory):
    directory = tmp_path_factory.mktemp("waiting")
    text = directory / "text.txt"
    text.write_text("\n".join(sentences[:200]))
    build_pretraining_data(
        [str(text)],
        str(directory / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=PretrainingDataConfig(
            sentence_splitter="newline",
            document_separator="file",
            max_seq_length=32,
        ),
        masking=MaskingConfig(),
    )
    return str(directory / "shards")


@pytest.mark.slow
def test_training_is_fed_from_shards(shards):
    work = Workload(
        model=ModelConfig(
            vocab_size=200,
            embedding_size=8,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=32,
        ),
        batch_size=4,
        seq_length=32,
        num_predictions=5,
        training=TrainingConfig(),
    )
    rounds = list(
        waiting_benchmark.measure_waiting(
            shards,
            work,
            masking_config=MaskingConfig(),
            seconds=0.01,
            repeats=2,
        )
    )
    assert len(rounds) == 2
    for one in rounds:
        assert one.num_sequences % 4 == 0 and one.num_sequences > 0
        assert 0 <= one.waiting <= one.seconds
