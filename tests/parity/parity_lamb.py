"""Lamb with bias correction against tensorflow-addons' LAMB.

Random updates of both. tensorflow-addons runs in an interpreter of its own
(requirements-tfa.txt), named by the environment variable ALBERT_TFA_PYTHON.
"""

import os
import subprocess

import keras
import numpy as np
import pytest

from albert_tf.optim import lamb
from albert_tf.optim.lamb import Lamb

NUM_PROBLEMS = 24
NUM_STEPS = 6
# TensorFlow ends names in ":0".
PATTERNS = ("bias", "layer_norm", "^kernel", r"_[02]\b")
# Relative to the largest number of the variable; a float32 has 1.2e-7.
BOUND = 5e-7


def draw_problem(rng):
    """Returns one problem as tfa_lamb_updates.py reads it, less its number."""

    def patterns():
        chosen = rng.choice(PATTERNS, rng.integers(0, 3), replace=False)
        return chosen.astype("<U16")

    arrays = {
        "learning_rate": 10 ** rng.uniform(-4, -0.5),
        "weight_decay": rng.choice([0.0, 0.01, 0.2]),
        "beta_1": rng.choice([0.0, 0.9, 0.99]),
        "beta_2": rng.choice([0.9, 0.999]),
        "epsilon": rng.choice([1e-6, 1e-3]),
        "no_decay": patterns(),
        "no_adaptation": patterns(),
    }
    for number in range(5):
        kind = rng.choice(["kernel", "bias", "layer_norm_gamma"])
        shape = tuple(rng.integers(1, 7, size=rng.integers(1, 4)))
        weight = rng.normal(size=shape) * 10 ** rng.uniform(-4, 3)
        gradients = rng.normal(size=(NUM_STEPS, *shape))
        gradients *= 10 ** rng.uniform(-6, 3)
        weight *= rng.random() > 0.1
        gradients *= rng.random() > 0.1
        arrays[f"weight/{kind}_{number}"] = weight.astype("float32")
        arrays[f"gradients/{kind}_{number}"] = gradients.astype("float32")
    return arrays


@pytest.fixture(scope="module")
def problems():
    return [
        draw_problem(np.random.default_rng(seed))
        for seed in range(NUM_PROBLEMS)
    ]


@pytest.fixture(scope="module")
def updates_of_tensorflow_addons(problems, tmp_path_factory):
    """The weights after every step, by `<problem>/after/<name>`."""
    python = os.environ.get("ALBERT_TFA_PYTHON")
    if not python:
        pytest.skip(
            "ALBERT_TFA_PYTHON names no Python 3.11 with requirements-tfa.txt"
        )
    directory = tmp_path_factory.mktemp("lamb")
    arrays = {"num_problems": len(problems)}
    for number, problem in enumerate(problems):
        for name, value in problem.items():
            arrays[f"{number}/{name}"] = value
    np.savez(directory / "problems.npz", **arrays)
    script = os.path.join(os.path.dirname(__file__), "tfa_lamb_updates.py")
    finished = subprocess.run(
        [python, script, "problems.npz", "updates.npz"],
        cwd=directory,
        # Not this process' packages and not its backend.
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "KERAS_BACKEND")
        },
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    with np.load(directory / "updates.npz") as file:
        return {name: file[name] for name in file.files}


def our_updates(problem):
    """Returns the weights `[steps, ...]` after each update, by name."""
    names = [n[7:] for n in problem if n.startswith("weight/")]
    variables = [
        keras.Variable(problem[f"weight/{name}"], name=name) for name in names
    ]
    optimizer = Lamb(
        learning_rate=float(problem["learning_rate"]),
        beta_1=float(problem["beta_1"]),
        beta_2=float(problem["beta_2"]),
        epsilon=float(problem["epsilon"]),
        weight_decay_rate=float(problem["weight_decay"]),
        bias_correction=True,
        exclude_from_weight_decay=problem["no_decay"].tolist(),
        exclude_from_layer_adaptation=problem["no_adaptation"].tolist(),
    )
    optimizer.build(variables)
    after = {name: [] for name in names}
    for step in range(NUM_STEPS):
        optimizer.apply(
            [
                keras.ops.convert_to_tensor(problem[f"gradients/{n}"][step])
                for n in names
            ]
        )
        for name, variable in zip(names, variables, strict=True):
            after[name].append(keras.ops.convert_to_numpy(variable))
    return {name: np.stack(steps) for name, steps in after.items()}


@pytest.mark.parametrize("most_uncompiled", [-1, lamb.MAX_UNCOMPILED])
def test_updates_equal_those_of_tensorflow_addons(
    most_uncompiled,
    problems,
    updates_of_tensorflow_addons,
    record_difference,
    monkeypatch,
):
    monkeypatch.setattr(lamb, "MAX_UNCOMPILED", most_uncompiled)
    largest = 0.0
    compared = 0
    moved = 0
    for number, problem in enumerate(problems):
        for name, ours in our_updates(problem).items():
            theirs = updates_of_tensorflow_addons[f"{number}/after/{name}"]
            assert theirs.shape == ours.shape == (NUM_STEPS, *theirs.shape[1:])
            difference = np.abs(ours - theirs).max()
            scale = np.abs(theirs).max()
            assert np.isfinite(difference)
            largest = max(largest, difference / scale if scale else difference)
            compared += 1
            before = problem[f"weight/{name}"]
            moved += np.abs(theirs[-1] - before).max() > 1e-3 * scale
    assert compared == len(updates_of_tensorflow_addons) == 5 * NUM_PROBLEMS
    # Else there would be nothing to compare.
    assert moved > compared / 2
    record_difference(
        "LAMB",
        f"weights after each of {NUM_STEPS} updates, tensorflow-addons "
        f"0.23.0, {compared} variables",
        float(largest),
        BOUND,
    )
