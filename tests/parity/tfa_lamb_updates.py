"""Runs tensorflow_addons.optimizers.LAMB on recorded problems.

    python tfa_lamb_updates.py problems.npz updates.npz

A program for the environment of requirements-tfa.txt (Python 3.11,
TensorFlow 2.15.1): it imports nothing of this project. For each problem
number N of 0 to `num_problems` - 1 the input holds the scalars
`N/learning_rate`, `N/weight_decay`, `N/beta_1`, `N/beta_2` and `N/epsilon`,
the patterns `N/no_decay` and `N/no_adaptation`, and of each variable
`N/weight/<name>` and `N/gradients/<name>` `[steps, ...]`. The output holds
`N/after/<name>` `[steps, ...]`.
"""

import sys

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

# tensorflow-addons takes an empty list for "as for the decay".
NEVER = "(?!)"


def run_problem(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns `after/<name>` for every variable of one problem."""
    optimizer = tfa.optimizers.LAMB(
        learning_rate=float(arrays["learning_rate"]),
        weight_decay=float(arrays["weight_decay"]),
        beta_1=float(arrays["beta_1"]),
        beta_2=float(arrays["beta_2"]),
        epsilon=float(arrays["epsilon"]),
        exclude_from_weight_decay=[NEVER, *arrays["no_decay"].tolist()],
        exclude_from_layer_adaptation=[
            NEVER,
            *arrays["no_adaptation"].tolist(),
        ],
    )
    variables = {
        key.removeprefix("weight/"): tf.Variable(
            value, name=key.removeprefix("weight/")
        )
        for key, value in arrays.items()
        if key.startswith("weight/")
    }
    after = {name: [] for name in variables}
    steps = len(arrays[f"gradients/{next(iter(variables))}"])
    for step in range(steps):
        optimizer.apply_gradients(
            [
                (tf.constant(arrays[f"gradients/{name}"][step]), variable)
                for name, variable in variables.items()
            ]
        )
        for name, variable in variables.items():
            after[name].append(variable.numpy())
    return {f"after/{name}": np.stack(steps) for name, steps in after.items()}


def main(problems_path: str, updates_path: str) -> None:
    """Writes the updates of every problem."""
    with np.load(problems_path) as file:
        stored = {name: file[name] for name in file.files}
    updates = {}
    for number in range(int(stored["num_problems"])):
        prefix = f"{number}/"
        arrays = {
            name.removeprefix(prefix): value
            for name, value in stored.items()
            if name.startswith(prefix)
        }
        for name, value in run_problem(arrays).items():
            updates[prefix + name] = value
    np.savez(updates_path, **updates)


if __name__ == "__main__":
    main(*sys.argv[1:])
