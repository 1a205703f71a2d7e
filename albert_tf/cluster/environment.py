"""Versions, hardware and GPUs of this machine.

TensorFlow is loaded only to list its devices.
"""

import contextlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from albert_tf.config import markdown_table

if TYPE_CHECKING:
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


def source_commit() -> str | None:
    """Returns the commit of this source, None outside of a Git checkout."""
    root = Path(__file__).resolve().parents[2]
    # A package that is installed within another checkout has none.
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def unseen_gpus(visible: int) -> str:
    """Returns a warning if TensorFlow sees none of the NVIDIA GPUs, else "".

    `visible` is the number that it sees. CUDA_VISIBLE_DEVICES empty or -1 hides
    them on purpose.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    number = 0 if visible or hidden else _nvidia_gpus()
    if not number:
        return ""
    return (
        f"NVIDIA GPUs of this machine: {number}; visible to TensorFlow: 0. "
        "Install the CUDA libraries (pip install -r requirements-gpu.txt); in "
        "a container, also ask for the GPUs (docker run --gpus=all, "
        "nvidia.com/gpu). To compute on CPUs, set CUDA_VISIBLE_DEVICES=-1."
    )


def _nvidia_gpus() -> int:
    """Returns the number of NVIDIA GPUs, found without TensorFlow."""
    if os.path.isdir(_DRIVER_GPUS):
        return len(os.listdir(_DRIVER_GPUS))
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NVIDIA_SMI_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


def usable_cpus() -> int:
    """Returns the number of CPUs that this process may use."""
    # macOS does not restrict a process to some of them.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """Returns the name of the CPU, as Linux knows it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment() -> dict[str, str]:
    """Returns versions, system and hardware, by name."""
    import tensorflow as tf

    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            # Used from a checkout.
            found[package] = "not installed"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return found | {
        "system": platform.platform(),
        "processors": str(usable_cpus()),
        "processor": cpu_model(),
        "memory": f"{memory / 2**30:.1f} GiB",
        "devices": ", ".join(map(_device, tf.config.list_physical_devices())),
    }


def describe_environment() -> str:
    """Returns versions, system and hardware, as a table in Markdown."""
    return markdown_table(["", ""], environment().items())


def _device(device: "tf.config.PhysicalDevice") -> str:
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(device)
    kind = details.get("device_name", device.device_type)
    return f"{kind} ({device.name.removeprefix('/physical_device:')})"
