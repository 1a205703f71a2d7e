"""Descriptions of the machine, and GPUs that TensorFlow misses."""

import os
import platform

import pytest
import tensorflow as tf

from albert_tf.cluster import environment
from albert_tf.cluster.environment import describe_environment, unseen_gpus


def test_versions_and_machine():
    lines = describe_environment().splitlines()
    found = dict(line.strip("| ").split(" | ", 1) for line in lines[2:])
    assert found["python"] == platform.python_version()
    assert found["tensorflow"] == tf.__version__
    assert int(found["processors"]) >= 1
    assert "CPU" in found["devices"]


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch, tmp_path):
    """A machine without GPUs, and nothing hidden."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(environment, "_DRIVER_GPUS", str(tmp_path / "gpus"))


def test_the_cpus_of_a_system_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert environment.usable_cpus() == os.cpu_count()


def test_gpus_that_the_driver_lists(tmp_path, monkeypatch):
    """Reported unless TensorFlow sees one or they are hidden on purpose."""
    assert not unseen_gpus(0)
    (tmp_path / "gpus").mkdir()
    assert not unseen_gpus(0)
    for bus in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "gpus" / bus).mkdir()
    assert unseen_gpus(0).startswith(
        "NVIDIA GPUs of this machine: 2; visible to TensorFlow: 0. Install the "
    )
    assert not unseen_gpus(1)
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not unseen_gpus(0)


def test_gpus_that_only_nvidia_smi_lists(tmp_path, monkeypatch):
    """One GPU, with its two MIG instances."""
    program = tmp_path / "programs/nvidia-smi"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" = -L ] && printf "GPU 0: NVIDIA A100 (UUID: GPU-1)\\n'
        '  MIG 3g.20gb Device 0:\\n  MIG 3g.20gb Device 1:\\n"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert unseen_gpus(0).startswith("NVIDIA GPUs of this machine: 1; visible")
