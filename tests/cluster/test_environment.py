"""Descriptions of the machine, and GPUs that TensorFlow misses."""

import platform

import pytest
import tensorflow as tf

from albert_tf.cluster.environment import (
    describe_environment,
    markdown_table,
    unseen_gpus,
)


def test_versions_and_machine():
    found = describe_environment()
    assert found["python"] == platform.python_version()
    assert found["tensorflow"] == tf.__version__
    assert int(found["processors"]) >= 1
    assert "CPU" in found["devices"]
    table = markdown_table(found).splitlines()
    assert len(table) == 2 + len(found)
    assert f"| python | {platform.python_version()} |" in table


@pytest.fixture
def driver(tmp_path):
    """The driver's list of two GPUs."""
    for bus in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
    return str(tmp_path / "gpus")


@pytest.fixture
def nvidia_smi(tmp_path):
    """An nvidia-smi that lists one GPU, with its two MIG instances."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" = -L ] && printf "GPU 0: NVIDIA A100 (UUID: GPU-1)\\n'
        '  MIG 3g.20gb Device 0:\\n  MIG 3g.20gb Device 1:\\n"\n'
    )
    program.chmod(0o755)
    return str(program)


def test_gpus_that_the_driver_lists_and_tensorflow_does_not_see(driver):
    problem = unseen_gpus(0, environment={}, driver_gpus=driver)
    assert problem == (
        "NVIDIA GPUs of this machine: 2; visible to TensorFlow: 0. Install the "
        "CUDA libraries (pip install -r requirements-gpu.txt); in a container, "
        "also ask for the GPUs (docker run --gpus=all, nvidia.com/gpu). To "
        "compute on CPUs, set CUDA_VISIBLE_DEVICES=-1."
    )


def test_gpus_that_only_nvidia_smi_lists(tmp_path, nvidia_smi):
    problem = unseen_gpus(
        0,
        environment={"CUDA_VISIBLE_DEVICES": "0"},
        driver_gpus=str(tmp_path / "none"),
        nvidia_smi=nvidia_smi,
    )
    assert problem.startswith("NVIDIA GPUs of this machine: 1; visible")


def test_gpus_in_use_hidden_on_purpose_or_absent(driver, tmp_path):
    for visible, environment in (
        (1, {}),
        (0, {"CUDA_VISIBLE_DEVICES": ""}),
        (0, {"CUDA_VISIBLE_DEVICES": "-1"}),
    ):
        assert not unseen_gpus(
            visible, environment=environment, driver_gpus=driver
        )
    (tmp_path / "empty").mkdir()
    for directory in ("empty", "none"):
        assert not unseen_gpus(
            0,
            environment={},
            driver_gpus=str(tmp_path / directory),
            nvidia_smi=str(tmp_path / "no"),
        )
