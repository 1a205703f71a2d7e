"""What is timed of fine-tuning: which batches, and how they are counted."""

import numpy as np
import pytest

from albert_tf.config import (
    FeatureConfig,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
)
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import encoder_flops, training_flops
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.classification import Classification
from bin.benchmarking import finetuning_benchmark
from bin.benchmarking.finetuning_benchmark import (
    JOBS,
    PADDINGS,
    measure_batches,
    measure_features,
)
from bin.benchmarking.workload import TaskWork

NUM_EXAMPLES, BATCH, LONGEST = 23, 4, 48


class Clock:
    """Every look at it takes a second."""

    now = 0.0

    def perf_counter(self):
        self.now += 1.0
        return self.now


@pytest.fixture(scope="module")
def task(tiny_tokenizer):
    model = ModelConfig(
        vocab_size=tiny_tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    return TaskWork(
        work=Workload(
            model=model,
            batch_size=BATCH,
            seq_length=LONGEST,
            num_predictions=1,
            training=TrainingConfig(num_train_steps=10),
            optimizer=OptimizerConfig(optimizer="adamw"),
        ),
        kind=Classification(),
        labels=["even", "odd"],
        examples=[
            Example(("bada " * (1 + number % 9),), ("even", "odd")[number % 2])
            for number in range(NUM_EXAMPLES)
        ],
        tokenizer=tiny_tokenizer,
        features=FeatureConfig(max_seq_length=LONGEST),
    )


def lengths(task):
    return sorted(
        2 + len(task.tokenizer.encode(example.texts[0]))
        for example in task.examples
    )


def test_features_are_timed_without_what_comes_once(task, monkeypatch):
    monkeypatch.setattr(finetuning_benchmark, "time", Clock())
    calls = []
    build = FeatureBuilder.build

    def noted(self, examples, *, training):
        calls.append((len(examples), training))
        return build(self, examples, training=training)

    monkeypatch.setattr(FeatureBuilder, "build", noted)
    times = measure_features(task)
    assert calls == [(1, True), (NUM_EXAMPLES, True), (NUM_EXAMPLES, False)]
    assert list(times) == list(JOBS)
    assert set(times.values()) == {(NUM_EXAMPLES, NUM_EXAMPLES, 1.0)}


@pytest.fixture(scope="module")
def measured(task):
    """Two rounds, what was done of which width, and what was said."""
    done, said = [], []
    do = finetuning_benchmark._Side._do

    def noted(self, job, batch):
        done.append((job, batch["input_ids"].shape[1]))
        do(self, job, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuning_benchmark, "matmul_rate", lambda _: 5e9)
        patch.setattr(finetuning_benchmark, "time", Clock())
        patch.setattr(finetuning_benchmark._Side, "_do", noted)
        rounds = list(measure_batches(task, 2, said.append))
    return rounds, done, said


def test_padded_batches_have_the_same_examples_and_more_padding(task, measured):
    (one, _), _, _ = measured
    assert one.ceiling == 5e9
    assert list(one.turns) == list(JOBS)
    for turns in one.turns.values():
        assert list(turns) == list(PADDINGS)
        assert {turn.seconds for turn in turns.values()} == {1.0}
    # The last batch of the epoch goes on into the next.
    assert one.turns["training"]["by length"].num_rows == 24
    evaluated, padded = (one.turns["evaluation"][name] for name in PADDINGS)
    assert evaluated.num_rows == padded.num_rows == NUM_EXAMPLES
    longest_first = lengths(task)[::-1]
    # What fills the last batch up is a copy of its first row.
    longest_first.append(longest_first[20])
    rows = np.array(longest_first).reshape(6, BATCH)
    widths = [
        next(width for width in (16, 24, 32, LONGEST) if width >= longest)
        for longest in rows.max(axis=1)
    ]
    assert len(set(widths)) > 1
    real = rows.sum()
    assert evaluated.padding == pytest.approx(1 - real / (BATCH * sum(widths)))
    assert padded.padding == pytest.approx(1 - real / (BATCH * 6 * LONGEST))


def test_operations_are_those_of_the_widths(task, measured):
    (one, _), _, _ = measured
    shape = {"batch_size": BATCH, "seq_length": LONGEST}
    shape["read_positions_only"] = True
    model = task.work.model
    assert one.turns["training"]["padded"].flops == 6 * training_flops(
        model, num_predictions=0, **shape
    )
    assert one.turns["evaluation"]["padded"].flops == 6 * encoder_flops(
        model, **shape
    )
    for turns in one.turns.values():
        assert turns["by length"].flops < turns["padded"].flops


def test_sides_begin_by_turns_and_every_width_is_compiled_before(measured):
    rounds, done, said = measured
    # Six steps of each job and side in each round.
    warm_up = done[: -2 * 4 * 6]
    assert warm_up and set(warm_up) == {*done}
    assert said == [
        "Every width is compiled, and done once, before it is timed."
    ]
    for job in JOBS:
        orders = [list(one.turns[job]) for one in rounds]
        assert orders == [["by length", "padded"], ["padded", "by length"]]


def test_of_an_evaluation_all_lengths_are_timed(task, monkeypatch):
    monkeypatch.setattr(finetuning_benchmark, "_STEPS", 3)
    monkeypatch.setattr(finetuning_benchmark, "_PADDED_STEPS", 2)
    side = finetuning_benchmark._Side(task, print)
    steps = {
        key: list(finetuning_benchmark._steps(batches, key[1]))
        for key, batches in side._batches.items()
    }
    assert steps == {
        ("training", "by length"): [0, 1, 2],
        ("training", "padded"): [0, 1],
        ("evaluation", "by length"): [0, 2, 5],
        ("evaluation", "padded"): [0, 5],
    }
