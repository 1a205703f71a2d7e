"""The supervisor: restarts, progress and signals."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from program_runner import run_program

from bin.supervise import newest_step

ROOT = Path(__file__).resolve().parents[2]


def supervised(*flags, script):
    """Returns (exit status, lines on the error stream without their time)."""
    command = (sys.executable, "-c", script)
    flags = ("--backoff_secs=0.05", *flags)
    done = run_program("supervise", *flags, "--", *command)
    lines = done.stderr.splitlines()
    times = [re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", ln) for ln in lines]
    assert all(times)
    return done.status, [line[20:] for line in lines]


def counting(path, then):
    """Returns a script that counts its runs in a file, `run`, then does."""
    return (
        "import os, signal, sys, pathlib\n"
        f"path = pathlib.Path({str(path)!r})\n"
        "run = 1 + (int(path.read_text()) if path.exists() else 0)\n"
        f"path.write_text(str(run))\n{then}"
    )


def test_an_exit_status_that_no_restart_helps_is_returned():
    assert supervised(script="raise SystemExit(1)") == (1, [])


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit(75)", 75),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("sys.exit(143)", 143),
    ],
)
def test_it_starts_again_until_all_is_well(tmp_path, end, status):
    script = counting(tmp_path / "runs", f"if run < 3: {end}")
    line = f"supervise: exit status {status}; starting again in {{}} seconds."
    lines = [line.format(pause) for pause in (0.05, 0.1)]
    assert supervised(script=script) == (0, lines)


def test_it_gives_up_without_progress(tmp_path):
    script = counting(tmp_path / "runs", "sys.exit(75)")
    status, lines = supervised(script=script)
    assert status == 75
    assert (tmp_path / "runs").read_text() == "4"
    assert [float(line.split()[-2]) for line in lines[:3]] == [0.05, 0.1, 0.2]
    assert lines[3:] == [
        "supervise: exit status 75; 3 restarts have brought no newer "
        "checkpoint: given up."
    ]


def test_checkpoints_are_progress(tmp_path):
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    script = counting(
        tmp_path / "runs",
        f"open({str(checkpoints)!r} + f'/step-{{min(run, 5) * 10}}', 'w')\n"
        "sys.exit(75)",
    )
    status, lines = supervised(
        f"--progress_dir={tmp_path / 'run'}",
        "--max_restarts_without_progress=1",
        script=script,
    )
    assert status == 75
    # Five runs that progress, one that does not.
    assert (tmp_path / "runs").read_text() == "6"
    assert lines[0] == (
        "supervise: exit status 75 after step 10; starting again in 0.05 "
        "seconds."
    )
    assert len(lines) == 6


def test_the_newest_step(tmp_path):
    assert newest_step(None) == newest_step(str(tmp_path)) == -1
    (tmp_path / "checkpoints").mkdir()
    assert newest_step(str(tmp_path)) == -1
    for name in ("step-9", "step-10", "step-11.tmp", "corrupt-step-12"):
        (tmp_path / "checkpoints" / name).touch()
    assert newest_step(str(tmp_path)) == 10


# The tests themselves may run under nohup.
TERMINAL = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


def supervisor(*flags, script, prefix=TERMINAL):
    return subprocess.Popen(
        [
            *prefix,
            *(sys.executable, "-m", "bin.supervise", *flags, "--"),
            *(sys.executable, "-c", script),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
)
def test_a_signal_is_passed_on_and_ends_all(number):
    script = (
        "import signal, sys, time\n"
        "def end(number, frame): sys.exit(128 + number)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "signal.signal(signal.SIGINT, end)\n"
        "signal.signal(signal.SIGHUP, end)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    process = supervisor(script=script)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    # 143 is an end that would be started again, had nobody asked for it.
    assert (process.returncode, out, errors) == (128 + number, "", "")


def test_with_nohup_a_closed_terminal_does_not_end_it():
    script = "print('ready', flush=True); print(input())"
    process = supervisor(script=script, prefix=["nohup"])
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGHUP)
    out, _ = process.communicate("the end", timeout=30)
    assert (process.returncode, out) == (0, "the end\n")


def test_a_signal_ends_the_pause():
    process = supervisor("--backoff_secs=600", script="raise SystemExit(75)")
    assert "starting again in 300 seconds" in process.stderr.readline()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143


def test_user_errors():
    for command, message in (
        ([], "supervise: no command; it follows the flags, after --."),
        (["--", "no-such"], "supervise: no-such: No such file or directory"),
    ):
        assert run_program("supervise", *command).error == message
