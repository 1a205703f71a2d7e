"""The step's program by JAX against TensorFlow's own step, and for a TPU.

A process of its own runs each: `run_step.py` is a program that needs no more
than JAX. The two programs beside it, of a peer and of attention alone, run.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from albert_tf.config import (
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    override,
)
from benchmarks.devices import chips
from benchmarks.devices.step_program import write_step_program
from benchmarks.workload import Workload

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = {
    "vocab_size": 97,
    "embedding_size": 6,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 32,
}


def written(directory, remat="none", **options):
    work = Workload(
        model=override(ModelConfig(), MODEL),
        batch_size=4,
        seq_length=32,
        num_predictions=5,
        training=TrainingConfig(num_train_steps=10, remat=remat),
        optimizer=OptimizerConfig(num_warmup_steps=2),
    )
    write_step_program(work, str(directory), **options)
    return str(directory)


def run(directory, *flags):
    done = subprocess.run(
        [sys.executable, "benchmarks/devices/run_step.py", directory, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("remat", ["none", "full"])
def test_jax_takes_tensorflows_steps(tmp_path, remat):
    directory = written(tmp_path, remat, with_state=True)
    found = run(directory, "--repeats=2")
    assert found["largest_relative_difference"] < 1e-4
    assert len(set(found["losses"])) == len(found["losses"])


def assert_reported(found, number):
    assert found["fits"]
    assert (found["reduced_bytes"] > 0) == (number > 1)
    assert 0 < found["memory_bytes"] < 2**30
    assert found["flops"] > 0 and found["bytes_accessed"] > 0


@pytest.mark.parametrize(
    "name", [name for name, chip in chips.CHIPS.items() if not chip.gpu]
)
@pytest.mark.parametrize("number", [1, 4, 8])
def test_a_tpus_compiler_takes_the_step(tmp_path, name, number):
    directory = written(tmp_path, num_replicas=number)
    topology = chips.CHIPS[name].topologies[number]
    found = run(directory, f"--tpu={name}:{topology}")
    assert_reported(found, number)


@pytest.mark.skipif(
    not importlib.util.find_spec("jax_cuda12_plugin"),
    reason="jax[cuda12] is 5 GB, and not in requirements-parity.txt",
)
@pytest.mark.parametrize(
    "name", [name for name, chip in chips.CHIPS.items() if chip.gpu]
)
@pytest.mark.parametrize("number", [1, 4])
def test_a_gpus_compiler_takes_the_step(tmp_path, name, number):
    directory = written(tmp_path, num_replicas=number)
    description = tmp_path / "gpu.txtpb"
    description.write_text(chips.gpu_description(name))
    found = run(directory, f"--gpu={description}")
    assert_reported(found, number)


def lines_of(module, *flags):
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.devices.{module}", *flags],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_peer_learns_its_batch():
    flags = ["--preset=tiny", "--batch_size=2", "--max_seq_length=32"]
    (found,) = lines_of("run_peer", *flags, "--repeats=1", "--nocompile")
    first, *_, last = found["losses"]
    assert last < first
    assert found["step_seconds"] > 0 and found["back_to_back_seconds"] > 0


def test_chunks_of_attention_take_less_memory():
    flags = ["--lengths=1024", "--num_tokens=1024", "--num_heads=2"]
    whole, chunks = lines_of("run_attention", *flags, "--repeats=1")
    assert (whole["form"], chunks["form"]) == ("with_weights", "plain")
    assert chunks["temporary_bytes"] < whole["temporary_bytes"]
    assert whole["seconds"] > 0 and chunks["seconds"] > 0


def test_a_tpus_compiler_takes_attention_alone():
    flags = ["--lengths=512", "--num_tokens=512", "--num_heads=2"]
    plain, pallas = lines_of(
        "run_attention", *flags, "--forms=plain,pallas", "--chip=v5e"
    )
    assert plain["memory_bytes"] > 0 and "seconds" not in plain
    # What a kernel computes is not counted.
    assert 0 < pallas["flops"] < plain["flops"]
