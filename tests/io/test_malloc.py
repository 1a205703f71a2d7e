"""glibc's malloc: arenas, and memory that is kept."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    "glibc" not in platform.libc_ver(), reason="malloc is glibc's"
)


def run(program: str, **variables: str) -> subprocess.CompletedProcess:
    """Runs a program with these variables of malloc in the environment."""
    environment = {k: v for k, v in os.environ.items() if "MALLOC" not in k}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment | variables,
        check=True,
        capture_output=True,
        text=True,
    )


ARENAS = """
import ctypes, os, threading
from albert_tf.io.malloc import limit_arenas

os.cpu_count = lambda: 2
limit_arenas()
library = ctypes.CDLL(None)
together = threading.Barrier(12)

def hold():
    # Each takes memory while all others live: threads that may have arenas
    # of their own get them.
    library.malloc(64)
    together.wait()

threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_stats()
"""


@pytest.mark.parametrize("setting", [None, "5"])
def test_memory_lies_in_one_arena_per_core(setting):
    done = run(ARENAS, **({"MALLOC_ARENA_MAX": setting} if setting else {}))
    # The user's own setting takes precedence.
    assert done.stderr.count("Arena ") == int(setting or 2)


FAULTS = """
import resource
import numpy as np
from albert_tf.io.malloc import keep_freed_memory

keep_freed_memory(2**30)
for number in range(9):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(100 * 2**20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_arrays_lie_where_freed_ones_lay():
    # Mapped anew, each of the eight would cost 25,600 faults of 4 KB.
    assert int(run(FAULTS).stdout) < 1000


def test_the_user_chooses_which_arrays_are_mapped():
    faults = int(run(FAULTS, MALLOC_MMAP_THRESHOLD_="1000000").stdout)
    # Huge pages have 2 MB.
    assert faults >= 8 * 50
