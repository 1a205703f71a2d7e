"""Versions, hardware and GPUs of this machine."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata

import tensorflow as tf

_PACKAGES = (
    "albert-tf",
    "tensorflow",
    "keras",
    "numpy",
    "sentencepiece",
    "tensorflow-text",
)

# One directory for each GPU of the driver; WSL 2 has none.
_DRIVER_GPUS = "/proc/driver/nvidia/gpus"
_NVIDIA_SMI_SECONDS = 30.0


def unseen_gpus(
    visible: int,
    *,
    environment: Mapping[str, str] = os.environ,
    driver_gpus: str = _DRIVER_GPUS,
    nvidia_smi: str = "nvidia-smi",
) -> str:
    """Returns a warning if TensorFlow sees none of the NVIDIA GPUs.

    "" when it sees one, when the machine has none, and when the user hides
    them by CUDA_VISIBLE_DEVICES empty or -1.

    Args:
        visible: the number of GPUs that TensorFlow sees.
        environment: the variables of the process.
        driver_gpus: a directory with an entry for each GPU.
        nvidia_smi: the program that lists them on other machines.
    """
    if visible or environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    number = _nvidia_gpus(driver_gpus, nvidia_smi)
    if not number:
        return ""
    return (
        f"NVIDIA GPUs of this machine: {number}; visible to TensorFlow: 0. "
        "Install the CUDA libraries (pip install -r requirements-gpu.txt); in "
        "a container, also ask for the GPUs (docker run --gpus=all, "
        "nvidia.com/gpu). To compute on CPUs, set CUDA_VISIBLE_DEVICES=-1."
    )


def _nvidia_gpus(driver_gpus: str, nvidia_smi: str) -> int:
    """Returns the number of NVIDIA GPUs, found without TensorFlow."""
    if os.path.isdir(driver_gpus):
        return len(os.listdir(driver_gpus))
    if not shutil.which(nvidia_smi):
        return 0
    try:
        listed = subprocess.run(
            [nvidia_smi, "-L"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NVIDIA_SMI_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def describe_environment() -> dict[str, str]:
    """Returns versions, system, processors, memory and devices, by name."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            # Used from a checkout.
            found[package] = "not installed"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        **found,
        "system": platform.platform(),
        "processors": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 2**30:.1f} GiB",
        "devices": ", ".join(map(_device, tf.config.list_physical_devices())),
    }


def _device(device: tf.config.PhysicalDevice) -> str:
    details = tf.config.experimental.get_device_details(device)
    kind = details.get("device_name", device.device_type)
    return f"{kind} ({device.name.removeprefix('/physical_device:')})"


def markdown_table(rows: dict[str, str]) -> str:
    """Returns a table of two columns in Markdown."""
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])
