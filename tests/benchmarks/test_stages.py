"""Every stage on a tiny corpus: what is timed is what the product does."""

import importlib.util
import itertools
import math
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.config import UserError, override
from albert_tf.modeling import attention, recomputation
from albert_tf.modeling.recomputation import recomputed
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from benchmarks import finetuning, libraries, serving, training
from benchmarks.harness import run_stage
from benchmarks.libraries import LIBRARIES, TRAINING, check_peers
from benchmarks.speed import STAGES
from benchmarks.workload import random_batch


@pytest.mark.slow
def test_every_stage_runs_on_a_tiny_corpus(workspace, in_process):
    workspace.task = TASKS["SST-2"]
    workspace.examples = [
        Example(("bada " * (1 + number % 6),), "01"[number % 2])
        for number in range(23)
    ]
    measured = {
        name: {
            (row["side"], row["measure"]): row["values"][0]
            for row in run_stage(stage, workspace, 1)
        }
        # These two measure the memory of a process of its own.
        for name, stage in STAGES.items()
        if name not in ("recomputation", "attention")
    }
    assert all(min(found.values()) > 0 for found in measured.values())
    assert {name: len(found) for name, found in measured.items()} == {
        "data_preparation": 3,
        "reading": 12,
        "training": 6,
        "memory": 2,
        "featurisation": 4,
        "finetuning": 4,
        "serving": 17,
    }


@pytest.mark.slow
def test_each_side_of_recomputation_is_measured_with_its_setting(
    workspace, in_process, monkeypatch
):
    """Counts calls: that memory is saved is tested with the model."""
    calls = []
    monkeypatch.setattr(
        recomputation,
        "recomputed",
        lambda *given: calls.append(given) or recomputed(*given),
    )

    def step_memory(work):
        calls.clear()
        norm = training._gradient_step(work)()
        return {"gradient norm": norm, "recomputed": 1 + len(calls)}

    monkeypatch.setattr(training, "step_memory", step_memory)
    rows = run_stage(STAGES["recomputation"], workspace, 1)
    found = {(row["side"], row["measure"]): row["values"][0] for row in rows}
    norm = found["--remat=none", "gradient norm"]
    for remat, count in (("none", 1), ("selective", 2), ("full", 2)):
        assert found[f"--remat={remat}", "recomputed"] == count
        assert found[f"--remat={remat}", "gradient norm"] == pytest.approx(norm)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_each_form_of_attention_is_measured(work, precision, monkeypatch):
    monkeypatch.setattr(attention, "LONGEST_CHUNK", 8)
    chunks = []
    map_chunks = attention.map_chunks
    monkeypatch.setattr(
        attention,
        "map_chunks",
        lambda *given: chunks.append(given) or map_chunks(*given),
    )
    work = changed(work, training={"precision": precision})
    one, other = (
        training._attention_step(name, work)()
        for name in training.ATTENTION_FUNCTIONS.values()
    )
    assert chunks
    assert one == pytest.approx(other, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("ours", "float32"),
        *itertools.product(LIBRARIES, ("float32", "bfloat16")),
    ],
)
def test_a_library_trains_and_computes_in_every_variant(work, name, precision):
    peers = [] if name == "ours" else [name]
    packages = LIBRARIES[name].packages if peers else ()
    if any(importlib.util.find_spec(p) is None for p in packages):
        pytest.skip(f"{name} is not installed")
    work = changed(work, training={"precision": precision})
    sides = libraries.all_sides(work, peers)
    for side, (make, variant) in sides.items():
        if not side.startswith(name):
            continue
        jobs = make(work, random_batch(work), variant)
        pooled = np.asarray(jobs[libraries.POOLED](), np.float32)
        assert pooled.shape == (4, 16)
        assert (np.abs(pooled) <= 1).all()
        assert jobs[libraries.STATES]().shape == (4, 32, 16)
        if "weights" not in variant:
            # Untrained: uniform over 200 pieces, and over 2 orders.
            expected = math.log(200) + math.log(2)
            assert jobs[TRAINING]() == pytest.approx(expected, abs=0.3)


def changed(work, **parts):
    changes = {n: override(getattr(work, n), c) for n, c in parts.items()}
    return work.__class__(**vars(work) | changes)


def test_a_peer_that_cannot_do_the_work(monkeypatch, work):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="torch and transformers, not inst"):
        check_peers(["transformers"], work)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert check_peers(["keras_hub"] * 2, work) == ["keras_hub"]
    unshared = changed(work, model={"sharing": "none"})
    with pytest.raises(UserError, match="sharing=none: .* whole layers"):
        check_peers(["keras_hub"], unshared)
    scaled = changed(work, training={"precision": "float16"})
    with pytest.raises(UserError, match="precision='float16' is not one of"):
        check_peers(["keras_hub"], scaled)


def test_an_evaluation_is_timed_at_all_lengths():
    batches = SimpleNamespace(num_steps=6, training=True)
    assert list(finetuning.timed_steps(batches, 3)) == [0, 1, 2]
    batches.training = False
    assert list(finetuning.timed_steps(batches, 3)) == [0, 2, 5]


def test_clients_call_at_the_same_time(monkeypatch):
    # So long that no client ends before the last one has started.
    monkeypatch.setattr(serving, "_CLIENT_SECONDS", 60)
    together = threading.Barrier(serving._CLIENTS)

    def classify(request):
        # Passes only when all clients wait in a call.
        together.wait(timeout=30)
        together.abort()

    with pytest.raises(threading.BrokenBarrierError):
        serving.seconds_of_clients(classify, ["text"])


def test_another_model_is_not_compared():
    sides = {
        "ours": lambda texts: np.full((len(texts), 2), 0.5),
        "peer": lambda texts: np.full((len(texts), 2), [0.4, 0.6]),
    }
    with pytest.raises(UserError, match=r"peer differ from ours by 0\.1:"):
        serving.check_same_model(sides, ["text"])


def test_corpus_and_vocabulary_are_made(workspace, monkeypatch):
    def build(directory, *, workers, progress):
        os.makedirs(os.path.join(directory, "train"))
        with open(os.path.join(directory, "train/a.txt"), "w") as file:
            file.write("A word of text in it.\n" * 100)

    monkeypatch.setattr("benchmarks.workspace.build_sample_corpus", build)
    workspace.inputs, workspace.tokenizer = [], None
    workspace.vocab_size = 26
    assert workspace.model_config().vocab_size == 26
    # Without a task, paragraphs are the examples.
    assert workspace.task_inputs.examples[0].texts[0].startswith("A word")
