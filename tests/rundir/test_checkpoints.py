"""Checkpoints are complete, or an earlier one is restored."""

import errno
import itertools
import os
import resource

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.rundir.checkpoints import Checkpoints, remove_leftovers


@pytest.fixture
def variables():
    # Two of one shape: a slot restored by position would not be noticed.
    return {
        "model/dense/kernel": tf.Variable([1.0, 2.0]),
        "lamb/momentum": tf.Variable([3.0, 4.0]),
        "lamb/iterations": tf.Variable(0, dtype=tf.int64),
    }


def fill(variables, number):
    for offset, variable in enumerate(variables.values()):
        variable.assign(tf.cast(variable * 0 + number + offset, variable.dtype))


def values(variables):
    return {path: v.numpy().tolist() for path, v in variables.items()}


def saved(directory, variables, steps=(1, 2, 3), keep=5, best=()):
    checkpoints = Checkpoints(str(directory), variables, keep)
    for step in steps:
        fill(variables, 10 * step)
        checkpoints.save(
            step, {"window": {"sum:loss": step / 3}}, best=step in best
        )
    fill(variables, 0)
    return checkpoints


def test_restores_values_and_state_exactly(tmp_path, variables):
    saved(tmp_path, variables)
    # The order of the variables does not matter.
    turned = dict(reversed(variables.items()))
    restored, problems = Checkpoints(str(tmp_path), turned, 5).restore_latest()
    assert (restored.step, problems) == (3, [])
    assert restored.state == {"window": {"sum:loss": 1.0}}
    assert values(variables) == {
        "model/dense/kernel": [30.0, 30.0],
        "lamb/momentum": [31.0, 31.0],
        "lamb/iterations": 32,
    }


TYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "uint64")


def test_every_dtype_is_restored_bit_by_bit(tmp_path):
    rng = np.random.default_rng(5)
    variables = {
        f"{dtype}/{shape}": tf.Variable(
            np.frombuffer(
                rng.bytes(np.prod(shape, dtype=int) * np.dtype(dtype).itemsize),
                dtype,
            ).reshape(shape)
        )
        for dtype in TYPES
        for shape in ((), (3,), (2, 0), (2, 3, 5))
    }
    # Unequal to itself, or easily lost.
    variables["odd"] = tf.Variable([np.nan, np.inf, -0.0, 1e-45])
    variables["half"] = tf.Variable([1.5, -0.0], dtype=tf.bfloat16)
    variables["truth"] = tf.Variable([True, False, True])
    before = {path: v.numpy().tobytes() for path, v in variables.items()}
    checkpoints = Checkpoints(str(tmp_path), variables, 1)
    checkpoints.save(7, {})
    for variable in variables.values():
        variable.assign(tf.zeros(variable.shape, variable.dtype))
    assert checkpoints.restore_latest()[0].step == 7
    after = {path: v.numpy().tobytes() for path, v in variables.items()}
    assert after == before


def test_safetensors_reads_a_checkpoint(tmp_path, variables):
    saved(tmp_path, variables, steps=(4,))
    arrays = safetensors.numpy.load_file(tmp_path / "step-4")
    assert arrays.pop("sha256").shape == (32,)
    assert {path: a.tolist() for path, a in arrays.items()} == {
        "model/dense/kernel": [40.0, 40.0],
        "lamb/momentum": [41.0, 41.0],
        "lamb/iterations": 42,
    }


def test_retention_of_the_newest_best(tmp_path, variables):
    checkpoints = saved(
        tmp_path, variables, steps=(1, 2, 3, 10, 11), keep=2, best=(1, 2)
    )
    assert checkpoints.steps() == [2, 10, 11]
    # A restart knows of it, too.
    again = Checkpoints(str(tmp_path), variables, 2)
    again.save(12, {}, best=True)
    again.save(13, {})
    assert again.steps() == [12, 13]


def test_a_step_can_be_restored(tmp_path, variables):
    checkpoints = saved(tmp_path, variables)
    assert checkpoints.restore(1).state == {"window": {"sum:loss": 1 / 3}}
    assert values(variables)["lamb/momentum"] == [11.0, 11.0]
    with pytest.raises(UserError, match="step-9 cannot be read: No such file"):
        checkpoints.restore(9)
    flip(tmp_path / "step-1")
    with pytest.raises(UserError, match="step-1 is damaged: of its"):
        checkpoints.restore(1)


def flip(path, place=0.5, bit=0):
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1 << bit
    path.write_bytes(content)


def swap_with_the_one_before(path):
    other = path.with_name("step-2")
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, path.stat().st_size + 1),
        # Without the checksum.
        lambda path: os.truncate(path, path.stat().st_size - 32),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        # The header's length alone, and less than it.
        lambda path: os.truncate(path, 8),
        lambda path: os.truncate(path, 7),
        lambda path: os.truncate(path, 0),
        lambda path: path.write_bytes(bytes(path.stat().st_size)),
        lambda path: path.write_text("{}"),
        swap_with_the_one_before,
    ],
)
def test_a_damaged_checkpoint_is_renamed_and_the_one_before_restored(
    tmp_path, variables, damage
):
    checkpoints = saved(tmp_path, variables)
    damage(tmp_path / "step-3")
    restored, (problem,) = checkpoints.restore_latest()
    assert restored.step == 2
    assert values(variables)["model/dense/kernel"] == [20.0, 20.0]
    aside = tmp_path / "step-3.damaged"
    size = aside.stat().st_size
    fault = f"of its {size} bytes some are missing or have changed since it w"
    if damage is swap_with_the_one_before:
        fault = "it is the checkpoint of step 2"
    assert problem.startswith(f"{tmp_path}/step-3: {fault}")
    assert problem.endswith(f"; set aside as {aside}.")
    assert checkpoints.steps() == [1, 2]
    # The next restore does not meet it again.
    checkpoints.save(3, {})
    assert checkpoints.restore_latest() == (checkpoints.restore(3), [])


def test_every_flipped_bit_is_detected(tmp_path, variables):
    checkpoints = saved(tmp_path, variables, steps=(1,))
    path = tmp_path / "step-1"
    content = path.read_bytes()
    for number in range(64):
        flip(path, number / 63, number % 8)
        with pytest.raises(UserError, match="step-1 is damaged: "):
            checkpoints.restore(1)
        path.write_bytes(content)
    assert checkpoints.restore(1).step == 1


def test_a_bad_sector_is_damage_and_a_lost_connection_is_not(
    tmp_path, variables, monkeypatch
):
    checkpoints = saved(tmp_path, variables)
    number = errno.ESTALE

    def failing(path):
        if path.endswith("step-3"):
            raise OSError(number, os.strerror(number))
        return os.path.getsize(path)

    monkeypatch.setattr("albert_tf.io.files.size", failing)
    with pytest.raises(UserError, match="step-3 cannot be read: Stale"):
        checkpoints.restore_latest()
    assert checkpoints.steps() == [1, 2, 3]
    number = errno.EIO
    restored, (problem,) = checkpoints.restore_latest()
    assert restored.step == 2
    assert "reading it fails (Input/output error)" in problem


def test_all_checkpoints_damaged(tmp_path, variables):
    checkpoints = saved(tmp_path, variables, steps=(1, 2))
    for step in (1, 2):
        flip(tmp_path / f"step-{step}")
    with pytest.raises(UserError, match="No checkpoint in .* is good"):
        checkpoints.restore_latest()
    assert values(variables)["model/dense/kernel"] == [0.0, 0.0]
    # Nor at the next try, when both have been set aside.
    with pytest.raises(UserError, match="No checkpoint in .* is good"):
        checkpoints.restore_latest()


def test_a_checkpoint_of_another_model(tmp_path, variables):
    checkpoints = saved(tmp_path, variables)
    others = {
        "model/dense/kernel": tf.Variable([1.0, 2.0, 3.0]),
        "lamb/momentum": tf.Variable([1, 2]),
        "model/dense/bias": tf.Variable(7.0),
    }
    with pytest.raises(UserError) as error:
        Checkpoints(str(tmp_path), others, 5).restore_latest()
    assert str(error.value) == (
        f"{tmp_path}/step-3 is a checkpoint of another model: "
        "model/dense/bias is missing; "
        "model/dense/kernel is F32 [2] and not F32 [3]; "
        "lamb/momentum is F32 [2] and not I32 [2]; "
        "lamb/iterations is not of this model. "
        "Give the settings that it was made with, or another --run_dir."
    )
    assert others["model/dense/bias"].numpy() == 7.0
    # It is no damage: nothing was set aside.
    assert checkpoints.steps() == [1, 2, 3]
    many = {f"layer/{n}": tf.Variable(0.0) for n in range(40)}
    with pytest.raises(UserError, match="layer/4 is missing and 38 others"):
        Checkpoints(str(tmp_path), many, 5).restore_latest()


def at_call(monkeypatch, owner, name, number, error):
    """Lets the call of that number of a function raise the error."""
    original, calls = getattr(owner, name), itertools.count(1)

    def replaced(*args, **kwargs):
        if next(calls) == number:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, replaced)


def at_write(monkeypatch, number, error):
    """Lets the write of that number to a new file raise the error."""
    original = files.open

    def opened(path, mode="rb"):
        file = original(path, mode)
        if mode == "wb":
            at_call(monkeypatch, file, "write", number, error)
        return file

    monkeypatch.setattr(files, "open", opened)


@pytest.mark.parametrize(
    ("owner", "name", "number", "newest"),
    [
        # Before the data, amid them and before the checksum.
        (files, "open", 1, 4),
        (None, "write", 3, 4),
        (None, "write", 5, 4),
        (os, "fsync", 1, 4),
        (os, "replace", 1, 4),
        (Checkpoints, "_prune", 1, 5),
        (os, "remove", 2, 5),
    ],
)
def test_a_kill_during_a_save(
    tmp_path, variables, monkeypatch, owner, name, number, newest
):
    saved(tmp_path, variables, keep=4, steps=(1, 2, 3, 4))
    # Three old ones are to go, so that one can be gone and others not.
    checkpoints = Checkpoints(str(tmp_path), variables, 2)
    fill(variables, 50)
    # A removal that fails is no other than a kill at its place.
    end = OSError if name == "remove" else KeyboardInterrupt
    with monkeypatch.context() as patch:
        if name == "write":
            at_write(patch, number, end)
        else:
            at_call(patch, owner, name, number, end)
        # A process that is killed cleans nothing up.
        if name != "remove":
            patch.setattr(files, "remove", lambda path: None)
        with pytest.raises(end):
            checkpoints.save(5, {"window": {"sum:loss": 5 / 3}})
    restored, problems = checkpoints.restore_latest()
    assert (restored.step, problems) == (newest, [])
    assert restored.state == {"window": {"sum:loss": newest / 3}}
    assert values(variables)["lamb/momentum"] == [10.0 * newest + 1] * 2
    left = {f"step-{step}" for step in checkpoints.steps()}
    assert set(os.listdir(tmp_path)) == left
    checkpoints.save(6, {})
    assert set(os.listdir(tmp_path)) == {f"step-{newest}", "step-6"}


def test_a_file_that_may_not_grow_is_a_failed_save(tmp_path):
    variables = {"a": tf.Variable(tf.ones([500_000]))}
    checkpoints = Checkpoints(str(tmp_path), variables, 2)
    checkpoints.save(1, {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        for step in (2, 3):
            with pytest.raises(OSError, match="File too large"):
                checkpoints.save(step, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["step-1"]
    assert checkpoints.restore_latest()[0].step == 1


def test_a_report_that_was_half_written_is_removed(tmp_path):
    (tmp_path / "report.html.tmp-17").touch()
    remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_checkpoints_in_a_bucket(tmp_path, variables):
    checkpoints = saved(f"file://{tmp_path}/run", variables, keep=2, best=(1,))
    assert checkpoints.steps() == [1, 2, 3]
    assert checkpoints.best_step() == 1
    (tmp_path / "run" / "step-4.tmp-17").write_bytes(b"half")
    (tmp_path / "run" / "notes.tmp-17").write_bytes(b"somebody's")
    flip(tmp_path / "run" / "step-3")
    restored, (problem,) = checkpoints.restore_latest()
    assert restored.step == 2
    assert values(variables)["lamb/momentum"] == [21.0, 21.0]
    assert f"set aside as file://{tmp_path}/run/step-3.damaged" in problem
    left = {"step-1", "step-2", "step-3.damaged", "notes.tmp-17"}
    assert set(os.listdir(tmp_path / "run")) == left
