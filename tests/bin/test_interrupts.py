"""Ctrl-C while a program starts: one line and status 130."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A library that turns what is raised in its import into an error of its own.
SLOW_LIBRARY = """
import os, time
os.write(1, b"importing\\n")
try:
    time.sleep(60)
except BaseException as error:
    raise ImportError("initialization failed") from error
"""


@pytest.mark.parametrize("package", ["absl", "tensorflow"])
def test_an_import_is_interrupted_in_one_line(tmp_path, package):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(SLOW_LIBRARY)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "bin.convert", "--from_path=a"),
            *("--to_path=b", "--to_format=keras"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert error == "convert: interrupted; start the same command again.\n"
    assert process.returncode == 130
