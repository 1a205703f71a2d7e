"""This machine: its cores, fresh processes on some of them, a description."""

import concurrent.futures
import contextlib
import importlib.metadata
import multiprocessing
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_PACKAGES = (
    "numpy",
    "tensorflow",
    "keras",
    "sentencepiece",
    "nltk",
    "torch",
    "transformers",
    "keras_hub",
)

Result = TypeVar("Result")


def available_cores() -> list[int]:
    """Returns the usable logical CPUs, one of every physical core first."""
    seen: set[str] = set()
    first, rest = [], []
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _siblings(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return first + rest


def _siblings(cpu: int) -> str:
    """Returns the logical CPUs that share a core with `cpu`."""
    path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().strip()
    return str(cpu)


def in_fresh_process(
    cores: Sequence[int],
    function: Callable[..., Result],
    *args: object,
) -> Result:
    """Returns the result of `function` in a fresh process pinned to `cores`."""
    before = os.sched_getaffinity(0)
    # The process starts with this thread's cores, and NumPy's threads too.
    os.sched_setaffinity(0, cores)
    try:
        with concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as pool:
            return pool.submit(function, *args).result()
    finally:
        os.sched_setaffinity(0, before)


def describe_machine() -> dict[str, Any]:
    """Returns hardware, load and versions, on which measurements depend."""
    cores = available_cores()
    distributions = importlib.metadata.packages_distributions()
    return {
        "cpu": cpu_model(),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(cores),
        "usable_cores": len({_siblings(cpu) for cpu in cores}),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE")
        * os.sysconf("SC_PHYS_PAGES"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        # A distribution may have another name, such as tensorflow-cpu.
        "packages": {
            package: importlib.metadata.version(distributions[package][0])
            if package in distributions
            else None
            for package in _PACKAGES
        },
    }


def cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
