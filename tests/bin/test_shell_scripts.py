"""bin/environment.sh: which Python, and an environment left half made."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def shell(command, cwd, **environment):
    return subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f". {ROOT}/bin/environment.sh; {command}",
        ],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )


def executable(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{content}\n")
    path.chmod(0o755)
    return str(path)


# A Python that serves, makes environments and has pip, all in name only.
STUB = """
case "$*" in
    -c*) exit 0 ;;
    "-m venv --clear .venv")
        rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip --version") [ -e .venv/whole ] ;;
    "-m pip install"*) touch .venv/whole; echo "installed: $*" ;;
esac
"""


def test_an_unsuitable_python_is_refused(tmp_path):
    old = executable(tmp_path / "python2", "exit 1")
    done = shell("find_python", tmp_path, PYTHON=old)
    assert done.returncode != 0
    assert f"3.11, 3.12 or 3.13 is needed, and {old} is not" in done.stderr


@pytest.mark.parametrize("left", ["nothing", "no pip", "dangling"])
def test_an_environment_that_does_not_work_is_made_anew(tmp_path, left):
    (tmp_path / "a.txt").write_text("package")
    python = tmp_path / ".venv/bin/python"
    if left == "no pip":
        executable(python, "exit 1")
    elif left == "dangling":
        python.parent.mkdir(parents=True)
        python.symlink_to(tmp_path / "gone")
    stub = executable(tmp_path / "stub", STUB)
    done = shell("make_environment a.txt", tmp_path, PYTHON=stub)
    assert done.returncode == 0, done.stderr
    assert "installed: -m pip install" in done.stdout
    # A second time nothing is left to do, until the file changes.
    assert shell("make_environment a.txt", tmp_path, PYTHON=stub).stdout == ""
    (tmp_path / "a.txt").write_text("package and another")
    again = shell("make_environment a.txt", tmp_path, PYTHON=stub)
    assert "installed" in again.stdout
    assert "venv" not in again.stdout.replace(".venv/bin/python", "")


def test_a_failed_installation_is_tried_again(tmp_path):
    (tmp_path / "a.txt").write_text("package")
    stub = executable(
        tmp_path / "stub",
        STUB.replace('echo "installed: $*"', "exit 3"),
    )
    for _ in range(2):
        done = shell("make_environment a.txt", tmp_path, PYTHON=stub)
        assert done.returncode == 3
        assert "pip install -r a.txt" in done.stdout
