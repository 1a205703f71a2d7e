"""Peak memory of a process, and free memory."""

import subprocess
import sys

import numpy as np

from albert_tf.cluster.memory import free_memory


def test_peak_memory_is_a_process_own():
    """Not that of the process that started it, which holds far more."""
    held = np.ones(40_000_000)
    code = (
        "import numpy\n"
        "from albert_tf.cluster.memory import peak_resident\n"
        "before = peak_resident()\n"
        "held = numpy.ones(6_000_000)\n"
        "del held\n"
        "print(before, peak_resident())"
    )
    done = subprocess.check_output([sys.executable, "-c", code])
    before, after = map(int, done.split())
    assert 10**7 < before < held.nbytes
    assert before + 3 * 10**7 < after < held.nbytes


def test_free_memory():
    assert 2**26 < free_memory() < 2**44
