"""Writes a whole training step as a StableHLO program.

TensorFlow compiles the step (forward, backward, update) for XLA on a CPU; JAX
compiles and runs the program for any device (`jax_program`), with no TensorFlow
there. The directory holds

- `program.mlir`: the step's StableHLO;
- `arguments.json`: what the program takes, in order, and the names of the
  scalars that it returns;
- `arguments.npz`: a batch; on request the weights and moments too, and the
  scalars of the first steps as TensorFlow computes them.
"""

import json
import os
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute.one_device_strategy import OneDeviceExtended

from albert_tf.training.trainer import Controls, Trainer
from benchmarks.training_probe import make_probe
from benchmarks.workload import Workload, random_batch

CHECKED_STEPS = 3


class _OneOfMany(OneDeviceExtended):
    """The first of some replicas, which are summed over within the program."""

    def __init__(self, strategy: tf.distribute.Strategy, number: int) -> None:
        super().__init__(strategy, "/device:CPU:0")
        self._number = number

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._number

    def _reduce_to(self, reduce_op: Any, value: tf.Tensor, *_: Any) -> Any:
        return gen_xla_ops.xla_all_reduce(
            value, [list(range(self._number))], "Add", "CrossReplica"
        )


class OneOfManyStrategy(tf.distribute.Strategy):
    """Data parallelism of a program for some devices, built on one."""

    def __init__(self, num_replicas: int) -> None:
        super().__init__(_OneOfMany(self, num_replicas))


def write_step_program(
    work: Workload,
    directory: str,
    num_replicas: int = 1,
    with_state: bool = False,
) -> None:
    """Writes the step of a replica, whose rows are the workload's batch.

    With the state, of one replica, it can be checked where it runs; without,
    the program's directory holds the mean and deviation of every variable.
    """
    strategy = OneOfManyStrategy(num_replicas) if num_replicas > 1 else None
    trainer = make_probe(work, strategy=strategy)
    batch = {n: tf.constant(v) for n, v in random_batch(work).items()}
    controls = Controls(
        loss_limit=tf.constant(np.inf, tf.float32),
        stop_requested=tf.constant(0.0),
    )
    step = tf.function(
        lambda batch, controls: trainer.graph_step(batch, controls),
        autograph=False,
        jit_compile=True,
    )
    text = str(step.experimental_get_compiler_ir(batch, controls)("stablehlo"))
    graph = step.get_concrete_function(batch, controls)
    state = _state(graph, trainer)
    description = {
        "num_replicas": num_replicas,
        # TensorFlow orders a graph's arguments and results like this.
        "batch": sorted(batch),
        "controls": Controls._fields,
        "state": [_summary(name, value) for name, value in state],
        "scalars": [
            name
            for name, value in graph.structured_outputs._asdict().items()
            for _ in tf.nest.flatten(value)
        ],
    }
    arrays = {f"batch/{name}": value.numpy() for name, value in batch.items()}
    arrays |= {
        f"controls/{n}": v.numpy() for n, v in controls._asdict().items()
    }
    if with_state:
        arrays |= {f"state/{n}": value for n, (_, value) in enumerate(state)}
        steps = [step(batch, controls) for _ in range(CHECKED_STEPS)]
        arrays["scalars"] = np.array(
            [[float(x) for x in tf.nest.flatten(step)] for step in steps]
        )
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "program.mlir"), "w") as file:
        # XLA's own operation has a StableHLO name that every compiler knows.
        file.write(
            re.sub(r"mhlo\.copy\b", "stablehlo.optimization_barrier", text)
        )
    with open(os.path.join(directory, "arguments.json"), "w") as file:
        json.dump(description, file, indent=1)
    np.savez_compressed(os.path.join(directory, "arguments.npz"), **arrays)


def _state(step: Any, trainer: Trainer) -> list[tuple[str, np.ndarray]]:
    """Returns path and value of each variable that the step takes, in order."""
    by_handle = {
        id(variable.value.handle): variable
        for variable in (*trainer.model.variables, *trainer.optimizer.variables)
    }
    found = []
    for captured in step.captured_inputs:
        variable = by_handle.get(id(captured))
        value = captured if variable is None else variable.value
        name = "" if variable is None else variable.path
        found.append((name, value.numpy()))
    return found


def _summary(name: str, value: np.ndarray) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(value.shape),
        "dtype": str(value.dtype),
        "mean": float(value.mean()),
        "deviation": float(value.std()),
    }
