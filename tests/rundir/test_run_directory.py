"""A run directory belongs to one run, and to one job at a time."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.rundir import run_directory
from albert_tf.rundir.run_directory import (
    check_not_in_use,
    claim,
    extended,
    locked,
    record_changes,
)

ROOT = Path(__file__).resolve().parents[2]
HOLDER = """
import sys, time
from albert_tf.rundir.run_directory import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def other_job(run_dir):
    """Another process that holds the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def quick(monkeypatch):
    """Does not wait for minutes; waits are as long to one another."""
    monkeypatch.setattr(run_directory, "_RENEWAL_SECONDS", 0.04)
    monkeypatch.setattr(run_directory, "_SILENCE_SECONDS", 0.6)


def test_a_directory_is_claimed_and_claimed_again(tmp_path):
    run_dir = tmp_path / "deep" / "run"
    with locked(str(run_dir)):
        assert os.listdir(run_dir) == ["lock"]
        claim(str(run_dir), {"seed": 1})
        claim(str(run_dir), {"seed": 1})
    assert os.listdir(run_dir) == ["config.json"]
    assert json.loads((run_dir / "config.json").read_text()) == {"seed": 1}
    with pytest.raises(UserError, match="another configuration .*seed"):
        claim(str(run_dir), {"seed": 2})


def described(**changes):
    config = override(PretrainConfig(), {"num_train_steps": 100, **changes})
    return {"job": "pretrain", "config": to_dict(config)}


def test_settings_that_may_change_are_recorded(tmp_path):
    run_dir = str(tmp_path)
    assert claim(run_dir, described()) == {}
    other = described(log_steps=7, on_nonfinite="skip")
    changes = claim(run_dir, other)
    assert changes == {"log_steps": [100, 7], "on_nonfinite": ["stop", "skip"]}
    record_changes(run_dir, other, changes, 40)
    assert claim(run_dir, other) == {}
    last = described(log_steps=7)
    record_changes(run_dir, last, claim(run_dir, last), 60)
    assert read_json(tmp_path / "config.json") == last | {
        "changes": [
            {"after_step": 40, "settings": changes},
            {"after_step": 60, "settings": {"on_nonfinite": ["skip", "stop"]}},
        ]
    }


@pytest.mark.parametrize(
    ("changes", "extends", "said"),
    [
        ({"seed": 1}, False, "training.seed: 1 here, 12345 there); give the"),
        (
            {"log_steps": 7, "learning_rate": 0.5},
            False,
            "(config.optimizer.learning_rate: 0.5 here, 0.00176 there); give",
        ),
        (
            {"num_train_steps": 200},
            False,
            "num_train_steps: 200 here, 100 there); give the same settings to "
            "go on with it, with --extend_to_steps=200 where it is to be that",
        ),
        ({"num_train_steps": 90}, True, "(it has 100 steps already); give"),
        ({"num_train_steps": 200, "seed": 1}, True, "(config.training.seed: 1"),
    ],
)
def test_settings_that_may_not_change_are_refused(
    tmp_path, changes, extends, said
):
    claim(str(tmp_path), described())
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UserError) as error:
        claim(str(tmp_path), described(**changes), extends=extends)
    assert said in str(error.value)
    assert (tmp_path / "config.json").read_bytes() == before


def test_the_first_command_is_told_that_its_run_was_extended(tmp_path):
    claim(str(tmp_path), described(num_train_steps=200))
    with pytest.raises(UserError, match="with --extend_to_steps=200 where it"):
        claim(str(tmp_path), described())


def test_only_a_run_that_has_begun_is_extended(tmp_path):
    with pytest.raises(UserError, match="run that has begun, and .* holds non"):
        claim(str(tmp_path), described(), extends=True)
    assert os.listdir(tmp_path) == []


def test_an_extension_is_longer_than_the_run():
    config = override(PretrainConfig(), {"num_train_steps": 100})
    assert extended(config, RuntimeConfig()) is config
    longer = extended(config, RuntimeConfig(extend_to_steps=101))
    assert longer.training.num_train_steps == 101
    with pytest.raises(UserError, match="=100 is not more than the 100 steps"):
        extended(config, RuntimeConfig(extend_to_steps=100))


@pytest.mark.parametrize("name", ["lock", "config.json.tmp-71"])
def test_what_a_killed_job_left_is_no_foreign_content(tmp_path, name):
    (tmp_path / name).write_text("")
    with locked(str(tmp_path)):
        claim(str(tmp_path), {})
    assert "config.json" in os.listdir(tmp_path)


def test_a_foreign_directory_is_refused_and_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(UserError, match="is not a run directory"):
        claim(str(tmp_path), {})
    with (
        pytest.raises(UserError, match="is not a run directory"),
        locked(str(tmp_path)),
    ):
        pass
    assert os.listdir(tmp_path) == ["letter.txt"]
    with pytest.raises(UserError, match="is not a run directory"):
        claim(str(tmp_path / "letter.txt"), {})


def test_a_directory_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "run")
    said = "cannot be used as run directory: Not a directory. Give a --run_dir"
    with pytest.raises(UserError, match=said):
        claim(below, {})
    with pytest.raises(UserError, match=said), locked(below):
        pass
    run_dir = str(tmp_path / "run")
    claim(run_dir, {})

    def refusing(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # A run that goes on writes no config.json: the lock is what tells.
    monkeypatch.setattr(os, "open", refusing)
    with (
        pytest.raises(UserError, match="directory: Read-only file system"),
        locked(run_dir),
    ):
        pass


def test_a_second_job_is_refused_and_told_of_the_first(tmp_path):
    with other_job(tmp_path / "run") as first:
        with pytest.raises(UserError) as error, locked(str(tmp_path / "run")):
            pass
        year = time.strftime("%Y", time.gmtime())
        assert str(error.value).startswith(
            f"{tmp_path}/run is in use by process {first.pid} on "
            f"{socket.gethostname()}, which runs since {year}-"
        )
        # It did not free the first one's lock.
        with pytest.raises(UserError), locked(str(tmp_path / "run")):
            pass
    # The first was killed: no sign of it stands in the way.
    assert os.listdir(tmp_path / "run") == ["lock"]
    with locked(str(tmp_path / "run")):
        holder = json.loads((tmp_path / "run" / "lock").read_text())
        assert holder["pid"] == os.getpid()
    assert os.listdir(tmp_path / "run") == []


def test_only_a_lock_that_is_held_is_in_use(tmp_path):
    check_not_in_use(str(tmp_path / "none"))
    with (
        other_job(tmp_path) as first,
        pytest.raises(UserError, match=f"in use by process {first.pid} on"),
    ):
        check_not_in_use(str(tmp_path))
    # Its job was killed.
    assert os.listdir(tmp_path) == ["lock"]
    check_not_in_use(str(tmp_path))
    check_not_in_use(f"file://{tmp_path}")


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("pretrain", ["--train_data=a", "--eval_data=a"]),
        ("finetune", ["--task=MRPC", "--data_dir=a", "--init_from=a"]),
    ],
)
def test_a_second_job_is_refused_before_tensorflow_is_loaded(
    tmp_path, program, flags
):
    # Loading it would fail.
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    with other_job(tmp_path / "run"):
        second = subprocess.run(
            [
                *(sys.executable, "-m", f"bin.{program}"),
                *flags,
                f"--run_dir={tmp_path}/run",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
    assert second.returncode == 1
    assert second.stderr.startswith(
        f"{program}: {tmp_path}/run is in use by process "
    )


def test_it_is_free_again_when_the_job_fails(tmp_path):
    with pytest.raises(RuntimeError), locked(str(tmp_path)):
        raise RuntimeError
    assert not any(t.name == "lock" for t in threading.enumerate())
    with locked(str(tmp_path)):
        pass


@pytest.mark.parametrize("another", [False, True])
def test_a_lock_that_went_with_its_holder_is_made_anew(
    tmp_path, monkeypatch, another
):
    """The holder ends between our opening the file and our locking it."""
    path = tmp_path / "lock"
    original, calls = run_directory.fcntl.flock, 0

    def flock(*arguments):
        nonlocal calls
        calls += 1
        if calls == 1:
            path.unlink()
            if another:
                path.touch()
        original(*arguments)

    monkeypatch.setattr(run_directory.fcntl, "flock", flock)
    with locked(str(tmp_path)):
        assert path.exists()
        with pytest.raises(UserError, match="in use by process"):
            locked(str(tmp_path)).__enter__()
    assert calls == 3


def write_foreign_lock(path, count):
    content = {"pid": 7, "host": "elsewhere", "since": "2026", "renewed": count}
    with files.open(path, "w") as file:
        file.write(json.dumps(content))


@contextlib.contextmanager
def a_job_elsewhere(path):
    """Renews a lock that the system does not hold."""
    ended = threading.Event()

    def renew():
        count = 0
        while not ended.wait(0.05):
            count += 1
            write_foreign_lock(path, count)

    write_foreign_lock(path, 0)
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(params=["disk", "disk without locks", "bucket"])
def anywhere(request, tmp_path, monkeypatch):
    if request.param == "disk without locks":

        def flock(*_):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(run_directory.fcntl, "flock", flock)
    return f"file://{tmp_path}" if request.param == "bucket" else str(tmp_path)


def test_a_job_on_another_machine_is_noticed_by_its_renewals(anywhere, quick):
    files.makedirs(anywhere)
    with (
        a_job_elsewhere(f"{anywhere}/lock"),
        pytest.raises(UserError, match="process 7 on elsewhere, which runs s"),
        locked(anywhere),
    ):
        pass


def test_a_job_that_died_elsewhere_is_taken_over(anywhere, quick):
    files.makedirs(anywhere)
    write_foreign_lock(f"{anywhere}/lock", 3)
    with locked(anywhere):
        with files.open(f"{anywhere}/lock", "r") as file:
            first = json.load(file)
        assert (first["pid"], first["renewed"]) == (os.getpid(), 1)
        until = time.monotonic() + 5
        renewed = first
        while renewed == first and time.monotonic() < until:
            with (
                contextlib.suppress(ValueError),
                files.open(f"{anywhere}/lock", "r") as file,
            ):
                renewed = json.load(file)
        assert renewed["renewed"] > 1
    assert files.listdir(anywhere) == []


def test_of_two_that_begin_at_once_in_a_bucket_one_gives_way(
    tmp_path, monkeypatch
):
    run_dir = f"file://{tmp_path}"
    monkeypatch.setattr(
        run_directory.time,
        "sleep",
        lambda _: write_foreign_lock(f"{run_dir}/lock", 1),
    )
    with pytest.raises(UserError, match="process 7 on else"), locked(run_dir):
        pass
    # It is the other's.
    assert files.listdir(run_dir) == ["lock"]


def test_a_full_disk_does_not_end_the_renewals(tmp_path, quick, monkeypatch):
    with locked(str(tmp_path)):
        original, failures = os.pwrite, []

        def pwrite(*arguments):
            if len(failures) < 2:
                failures.append(arguments)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return original(*arguments)

        monkeypatch.setattr(os, "pwrite", pwrite)
        before = (tmp_path / "lock").read_text()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if (tmp_path / "lock").read_text() not in (before, ""):
                break
        assert len(failures) == 2
        assert (tmp_path / "lock").read_text() != before
