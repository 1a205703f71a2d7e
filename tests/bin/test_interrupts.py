"""Signals that end a program: one line, and nothing half-written."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bin import interrupts

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

WRITER = """
import signal, time
from albert_tf.io import files
from bin import command_line, interrupts

# Under nohup it is ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def main():
    with files.replacing({path!r}) as file, interrupts.ending_by_exception():
        file.write(b"half")
        print("writing", flush=True)
        time.sleep(60)

command_line.run(lambda: None, main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_half_written_is_removed(tmp_path, number):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER.format(path=str(tmp_path / "out"))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert error == "-c: interrupted; start the same command again.\n"
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def no_ignored_interrupts():
    """Lets processes have SIGINT where these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("no_ignored_interrupts")
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


def test_an_ignored_signal_does_not_end_the_context():
    # nohup ignores it.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.ending_by_exception():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signals_have_their_own_handlers_again_after_the_context():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with interrupts.ending_by_exception():
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
