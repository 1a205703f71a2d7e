"""Checkpoints are whole, or another one is taken."""

import json
import os

import pytest
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.training.checkpoints import Checkpoints


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


def saved(directory, variables, steps=(1, 2, 3), keep=5):
    checkpoints = Checkpoints(str(directory), variables, keep)
    for step in steps:
        fill(variables, 10 * step)
        checkpoints.save(step, {"window": {"sum:loss": step / 3}})
    fill(variables, 0)
    return checkpoints


def test_restores_values_and_state_exactly(tmp_path, variables):
    checkpoints = saved(tmp_path, variables)
    restored, problems = checkpoints.restore_latest()
    assert (restored.step, problems) == (3, [])
    assert restored.state == {"window": {"sum:loss": 1.0}}
    assert values(variables) == {
        "model/dense/kernel": [30.0, 30.0],
        "lamb/momentum": [31.0, 31.0],
        "lamb/iterations": 32,
    }


def test_order_of_variables_does_not_matter(tmp_path, variables):
    saved(tmp_path, variables)
    turned = dict(reversed(variables.items()))
    Checkpoints(str(tmp_path), turned, 5).restore_latest()
    assert values(variables)["lamb/momentum"] == [31.0, 31.0]


def test_keeps_the_newest_and_leaves_nothing_else(tmp_path, variables):
    checkpoints = saved(tmp_path, variables, steps=(1, 2, 10, 11), keep=2)
    assert checkpoints.steps() == [10, 11]
    assert sorted(os.listdir(tmp_path)) == ["step-10", "step-11"]


def test_an_unfinished_checkpoint_does_not_exist(tmp_path, variables):
    checkpoints = saved(tmp_path, variables)
    (tmp_path / "writing").mkdir()
    (tmp_path / "writing" / "variables.index").write_bytes(b"half")
    assert checkpoints.restore_latest()[0].step == 3
    checkpoints.save(4, {})
    assert not (tmp_path / "writing").exists()


def cut(path):
    os.truncate(path, os.path.getsize(path) - 1)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "name", "said"),
    [
        (cut, "variables.data-00000-of-00001", "bytes and not"),
        (flip, "variables.data-00000-of-00001", "has changed"),
        (flip, "variables.index", "has changed"),
        (os.remove, "variables.index", "is missing"),
        (os.remove, "manifest.json", "manifest.json"),
        (cut, "manifest.json", None),
        (lambda p: p.write_text("{}"), "manifest.json", "has no 'files'"),
    ],
)
def test_falls_back_to_the_one_before(tmp_path, variables, damage, name, said):
    checkpoints = saved(tmp_path, variables)
    if damage is cut and name == "manifest.json":
        os.truncate(tmp_path / "step-3" / name, 20)
        said = "not valid JSON"
    else:
        damage(tmp_path / "step-3" / name)
    restored, problems = checkpoints.restore_latest()
    assert restored.step == 2
    assert values(variables)["model/dense/kernel"] == [20.0, 20.0]
    (problem,) = problems
    assert said in problem
    assert "set aside" in problem
    assert (tmp_path / "step-3.damaged").is_dir()


def test_never_starts_afresh_over_lost_work(tmp_path, variables):
    checkpoints = saved(tmp_path, variables, steps=(1, 2))
    for step in (1, 2):
        os.remove(tmp_path / f"step-{step}" / "manifest.json")
    with pytest.raises(UserError, match="No checkpoint in .* is good"):
        checkpoints.restore_latest()
    assert values(variables)["model/dense/kernel"] == [0.0, 0.0]
    # Nor at the next try, when both have been set aside.
    with pytest.raises(UserError, match="No checkpoint in .* is good"):
        checkpoints.restore_latest()


def test_no_checkpoint_yet(tmp_path, variables):
    checkpoints = Checkpoints(str(tmp_path / "new"), variables, 1)
    assert checkpoints.restore_latest() == (None, [])


def test_manifest_names_every_file(tmp_path, variables):
    saved(tmp_path, variables, steps=(1,))
    manifest = json.loads((tmp_path / "step-1" / "manifest.json").read_text())
    on_disk = set(os.listdir(tmp_path / "step-1")) - {"manifest.json"}
    assert set(manifest["files"]) == on_disk
