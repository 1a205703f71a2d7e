"""Scripts: bin/environment.sh, bin/test, and those of docs/launching.md."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def bash(*arguments, cwd=None, **environment):
    return subprocess.run(
        ["bash", *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
    )


def shell(command, cwd, **environment):
    command = f". {ROOT}/bin/environment.sh; {command}"
    return bash("-euo", "pipefail", "-c", command, cwd=cwd, **environment)


def executable(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{content}\n")
    path.chmod(0o755)
    return str(path)


# A Python that serves, makes environments and has pip, all in name only.
STUB = """
case "$*" in
    -c*) exit 0 ;;
    "-m venv --clear "*)
        rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip --version") [ -e "$(dirname "$0")/../whole" ] ;;
    "-m pip install"*)
        touch "$(dirname "$0")/../whole"; echo "installed: $*" ;;
    "-m pytest"*) echo "tested by $0: $*" ;;
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


def test_an_environment_without_pip_gets_one(tmp_path):
    """uv makes environments without pip."""
    (tmp_path / "a.txt").touch()
    executable(tmp_path / ".venv/bin/python", STUB)
    mine = tmp_path / ".venv/mine"
    mine.touch()
    done = shell("make_environment a.txt", tmp_path, PYTHON="no")
    assert done.returncode == 0, done.stderr
    assert mine.exists()


def test_an_environment_that_can_have_no_pip_stays(tmp_path):
    lacks = STUB.replace("esac", '"-m ensurepip") exit 1 ;;\nesac')
    (tmp_path / "a.txt").touch()
    executable(tmp_path / ".venv/bin/python", lacks)
    done = shell("make_environment a.txt", tmp_path, PYTHON="no")
    assert done.returncode == 1
    assert ".venv has no pip, and its Python cannot install it" in done.stderr


def test_the_path_of_python_may_have_blanks(tmp_path):
    stub = executable(tmp_path / "my tools/stub", STUB)
    done = shell("find_python", tmp_path, PYTHON=stub)
    assert done.stdout == f"{stub}\n"


def test_a_change_in_a_file_that_is_included_is_installed(tmp_path):
    (tmp_path / "a.txt").write_text("-r requirements-b.txt")
    stub = executable(tmp_path / "stub", STUB)
    for content in ("package", "package>2"):
        (tmp_path / "requirements-b.txt").write_text(content)
        done = shell("make_environment a.txt", tmp_path, PYTHON=stub)
        assert "installed" in done.stdout


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


@pytest.fixture
def root(tmp_path):
    """A repository with bin/test and files of requirements."""
    root = tmp_path / "repository"
    (root / "bin").mkdir(parents=True)
    for name in ("bin/test", "bin/environment.sh"):
        (root / name).write_text((ROOT / name).read_text())
    for name in ("", "-dev", "-parity"):
        (root / f"requirements{name}.txt").write_text(f"package{name}")
    return root


@pytest.mark.parametrize("every", [True, False])
def test_slow_tests_are_run_when_all_are(tmp_path, root, every):
    python = executable(tmp_path / "stub", STUB)
    given = [*["--all"] * every, "-k", "one"]
    done = bash(str(root / "bin/test"), *given, PYTHON=python)
    tested = done.stdout.splitlines()[-1]
    assert tested.startswith(f"tested by {root}/.venv/bin/python"), done.stderr
    assert tested.endswith(" -k one")
    assert ("-m not slow" in tested) is not every
    assert "--all" not in tested
    assert "\nbin/test --all " in (ROOT / ".ci/run").read_text()


def test_parity_uses_an_environment_of_its_own(tmp_path, root):
    python = executable(tmp_path / "stub", STUB)
    done = bash(
        *(str(root / "bin/test"), "--parity", "-k", "one"), PYTHON=python
    )
    tested = done.stdout.splitlines()[-1]
    environment = f"{root}/.venv-parity/bin/python"
    assert tested.startswith(f"tested by {environment}"), done.stderr
    assert "-o python_files=parity_*.py -o testpaths=tests/parity" in tested
    assert tested.endswith(" -k one")
    assert not (root / ".venv").exists()


def ranges(file):
    """{package: its versions} of a requirement file's own lines."""
    lines = (ROOT / file).read_text().splitlines()
    found = (
        re.match(r"([\w-]+)(?:\[[\w-]+\])?([<>=][^ ]*)", line) for line in lines
    )
    return {match[1]: match[2] for match in found if match}


def test_requirement_files_agree():
    here, gpu, tpu, dev, parity = (
        ranges(f"requirements{name}.txt")
        for name in ("", "-gpu", "-tpu", "-dev", "-parity")
    )
    both = dev.keys() & parity.keys()
    assert both == {"pytest", "pytest-xdist", "hypothesis", "onnxruntime"}
    assert all(dev[name] == parity[name] for name in both)
    assert gpu == {"tensorflow": here["tensorflow"]}
    assert here.pop("tensorflow") == here.pop("tensorflow-text")
    assert tpu.pop("tensorflow-tpu") == "==2.20.*"
    assert here == tpu


def launching(heading, language):
    """Returns the first block of a language after a heading."""
    text = (ROOT / "docs/launching.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2]
    return section.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_image_copies_what_is_there():
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = set(re.findall(r"^COPY (\S+) \S+$", image, re.MULTILINE))
    # All that the programs import, and every one of the requirements.
    imported = {"albert_tf", "data_prep", "experiments", "bin"}
    assert copied == {*imported, "requirements*.txt"}
    assert all((ROOT / name).is_dir() for name in imported)
    sent = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    assert copied == set(re.findall(r"^!(\S+)$", sent, re.MULTILINE))
    names = re.findall(r"REQUIREMENTS=(\S+)", image)
    assert names == ["requirements-gpu.txt", "requirements.txt"]
    assert all((ROOT / name).is_file() for name in names)


def test_the_image_runs_programs_as_another_user_than_root():
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^([A-Z]+) (.+)$", image, re.MULTILINE))
    assert json.loads(lines["ENTRYPOINT"]) == ["python", "-m"]
    (program,) = json.loads(lines["CMD"])
    path = ROOT / f"{program.replace('.', '/')}.py"
    assert '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    assert lines["USER"] == "1000:1000"


# What srun does for a run: starts, and ends with a status when it is told to.
SRUN = f"""#!{sys.executable}
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(os.environ["STATUS"])))
print("started", *sys.argv[1:5], flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("status", "requeued"),
    # Saved, or lost a worker; another start does not help the other ends.
    [
        (143, "scontrol requeue 17\n"),
        (75, "scontrol requeue 17\n"),
        *((74, ""), (0, "")),
    ],
)
def test_slurm_at_its_time_limit(tmp_path, status, requeued):
    executable(tmp_path / "python", f'exec {sys.executable} "$@"')
    executable(tmp_path / "scontrol", 'echo "scontrol $*"')
    pathlib.Path(executable(tmp_path / "srun", "")).write_text(SRUN)
    script = executable(tmp_path / "job", launching("SLURM", "bash"))
    with subprocess.Popen(
        ["bash", script],
        cwd=ROOT,
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "17",
            "STATUS": str(status),
        },
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout.readline() == (
            "started --kill-on-bad-exit=1 python -m bin.pretrain\n"
        )
        job.send_signal(signal.SIGUSR1)
        said, _ = job.communicate(timeout=60)
    assert said == requeued
    assert job.returncode == status
