"""Which batches are timed, and how they are counted."""

import itertools
from types import SimpleNamespace

import pytest

from albert_tf.modeling.accounting import encoder_flops, training_flops
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from bin.benchmarking import finetuning_stages
from bin.benchmarking.finetuning_stages import (
    JOBS,
    PADDINGS,
    Featurisation,
    Finetuning,
    Turn,
    timed_steps,
)

NUM_EXAMPLES, BATCH, LONGEST = 23, 4, 32


@pytest.fixture
def labelled(workspace):
    """A workspace with examples of a task."""
    workspace.task = TASKS["SST-2"]
    workspace.examples = [
        Example(("bada " * (1 + number % 6),), "01"[number % 2])
        for number in range(NUM_EXAMPLES)
    ]
    return workspace


def test_features_are_made_of_all_examples(labelled, monkeypatch):
    # Every look at the clock takes a second.
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(finetuning_stages, "time", clock)
    sides = Featurisation(labelled).sides()
    turns = {job: side() for job, side in sides.items()}
    name = "features for training"
    assert turns["training"] == [
        (name, "examples/s", NUM_EXAMPLES),
        (name, "sequences/s", NUM_EXAMPLES),
        (f"{name}, of 10,000 examples", "s", 10_000 / NUM_EXAMPLES),
    ]


@pytest.mark.slow
def test_padded_batches_have_the_same_examples_and_more_padding(
    labelled, work, tiny_tokenizer, in_process, monkeypatch
):
    steps = []
    step = Finetuning.step

    def noted(self, job, batch):
        steps.append((job, batch["input_ids"].shape[1]))
        return step(self, job, batch)

    monkeypatch.setattr(Finetuning, "step", noted)
    sides = Finetuning(labelled).sides()
    warm_up = set(steps)
    measured = {name: side() for name, side in sides.items()}
    # Nothing is traced within a turn.
    assert set(steps) == warm_up
    assert list(measured) == [
        "matrix multiplication",
        *itertools.product(JOBS, PADDINGS),
    ]
    # The last batch of the epoch goes on into the next.
    assert measured["training", "by length"].num_rows == 24
    by_length, padded = (measured["evaluation", name] for name in PADDINGS)
    assert by_length.num_rows == padded.num_rows == NUM_EXAMPLES
    lengths = [
        2 + len(tiny_tokenizer.encode(one.texts[0]))
        for one in labelled.examples
    ]
    # The last batch is filled up with a copy of its first row.
    real = sum(lengths) + sorted(lengths)[2]
    assert padded.padding == pytest.approx(1 - real / (BATCH * 6 * LONGEST))
    assert 0 < by_length.padding < padded.padding
    # Operations are those of the widths.
    shape = {"batch_size": BATCH, "seq_length": LONGEST}
    shape["read_positions_only"] = True
    assert padded.flops == 6 * encoder_flops(work.model, **shape)
    assert measured["training", "padded"].flops == 6 * training_flops(
        work.model, num_predictions=0, **shape
    )
    for job in JOBS:
        turns = [measured[job, padding] for padding in PADDINGS]
        assert turns[0].flops < turns[1].flops


def test_measurements_are_rates_shares_and_ratios():
    turns = {"matrix multiplication": 200.0}
    for job in JOBS:
        turns[job, "by length"] = Turn(80, 2.0, 100, 0.25)
        turns[job, "padded"] = Turn(30, 3.0, 300, 0.5)
    found = list(Finetuning(None).measurements(turns))
    assert found[:8] == [
        ("matrix multiplication", "GFLOP/s", 2e-7),
        ("training, by length", "rows/s", 40.0),
        ("training, by length, tokens of padding", "%", 25.0),
        ("training, by length", "% of the ceiling", 25.0),
        ("training, padded", "rows/s", 10.0),
        ("training, padded, tokens of padding", "%", 50.0),
        ("training, padded", "% of the ceiling", 50.0),
        ("training, by length to padded", "times", 4.0),
    ]
    assert len(found) == 15


def test_an_evaluation_is_timed_at_all_lengths():
    batches = SimpleNamespace(num_steps=6, training=True)
    assert list(timed_steps(batches, 3)) == [0, 1, 2]
    batches.training = False
    assert list(timed_steps(batches, 3)) == [0, 2, 5]
    assert list(timed_steps(batches, 8)) == [0, 1, 2, 3, 4, 5]
