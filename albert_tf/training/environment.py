"""What a run runs on: versions and machine."""

import os
import platform
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
