"""Reports what a training step takes on a TPU or GPU, without having one.

python -m benchmarks.devices.report --preset=base --batch_size=64 \\
    --max_seq_length=512 --precision=bfloat16 --chips=v5e,v6e
python -m benchmarks.devices.report --preset=xxlarge --batch_size=8 \\
    --max_seq_length=512 --precision=bfloat16 --remat=full --largest_batch
python -m benchmarks.devices.report --preset=base --batch_size=64 \\
    --precision=bfloat16 --chips=v5e --num_chips=8
python -m benchmarks.devices.report --preset=large --batch_size=32 \\
    --max_seq_length=512 --precision=bfloat16 --attention=cudnn --chips=h100

TensorFlow writes the step as StableHLO on this machine's CPU. The chip's
compiler takes it, libtpu or XLA's for GPUs (requirements-devices.txt names
what to install). The time is a bound: the longer of the arithmetic at the
chip's peak and of the memory's traffic at its bandwidth, as the compiler counts
them.

With --program_dir the program is written there, for `run_step.py` on a machine
with a GPU or a TPU, and nothing is compiled.
"""

import dataclasses
import functools
import importlib.util
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from absl import flags

from albert_tf.config import OptimizerConfig, TrainingConfig, lookup, require
from albert_tf.io.json_files import write_json
from benchmarks import workload
from benchmarks.devices.chips import (
    CHIPS,
    all_reduce_seconds,
    gpu_description,
    step_seconds,
)
from benchmarks.harness import in_fresh_process
from benchmarks.workload import Workload
from bin import command_line

FLAGS = flags.FLAGS
# The JSON of a step on a chip.
Row = dict[str, Any]

_GIB = 2**30
# Compilers pad rows to this.
BATCH_UNIT = 8
# The compiler of GPUs, for either version of CUDA.
_CUDA_PACKAGES = ("jax_cuda12_plugin", "jax_cuda13_plugin")
_RUN_STEP = os.path.join(os.path.dirname(__file__), "run_step.py")


def define_flags() -> None:
    workload.define_flags()
    flags.DEFINE_list(
        "chips", ["v5e"], f"What to compile for: {', '.join(CHIPS)}."
    )
    flags.DEFINE_enum(
        "num_chips",
        "1",
        ["1", "4", "8"],
        "Data parallelism over so many chips.",
    )
    flags.DEFINE_bool(
        "largest_batch",
        False,
        "Search for the largest batch that fits, from --batch_size on.",
    )
    flags.DEFINE_string(
        "program_dir", None, "Write the program into this directory instead."
    )
    flags.DEFINE_bool(
        "with_state",
        False,
        "With --program_dir: write weights and the first steps' losses too, "
        "so that `run_step.py` compares its own with them.",
    )
    flags.DEFINE_string(
        "output", "device_report.json", "File for the results, as JSON."
    )
    command_line.written_as("output", [".json"])
    command_line.define_settings(
        TrainingConfig(), only=("precision", "remat", "attention")
    )
    command_line.define_settings(OptimizerConfig(), only=["optimizer"])


def main() -> None:
    work = workload.of_flags()
    require(
        bool(FLAGS.program_dir) or not FLAGS.with_state,
        "--with_state is for --program_dir; give that too.",
    )
    if FLAGS.program_dir:
        require(
            FLAGS.num_chips == "1" and not FLAGS.largest_batch,
            "--program_dir writes the step of --batch_size on one chip; leave "
            "out --num_chips and --largest_batch.",
        )
        _write(work, FLAGS.program_dir, 1, FLAGS.with_state)
        print(f"The program is in {FLAGS.program_dir}.")
        return
    for name in FLAGS.chips:
        lookup(CHIPS, name, "chips")
    for name in FLAGS.chips:
        _require_compiler(name)
    rows: list[Row] = []

    def measured(name: str, batch_size: int) -> Row:
        row = _row(dataclasses.replace(work, batch_size=batch_size), name)
        rows.append(row)
        command_line.log(_line(row))
        # The file is written after every row: the next one may be interrupted.
        result = {"command": shlex.join(sys.orig_argv), "results": rows}
        write_json(FLAGS.output, result)
        return row

    for name in FLAGS.chips:
        if FLAGS.largest_batch:
            measure = functools.partial(measured, name)
            largest = largest_batch(measure, work.batch_size)
            print(f"{name}: the largest batch that fits is {largest}.")
        else:
            measured(name, work.batch_size)
    print(f"The results are in {FLAGS.output}.")


def _require_compiler(name: str) -> None:
    """Raises UserError where a chip's compiler is not installed."""
    packages, install = ("libtpu",), "-r requirements-devices.txt"
    if CHIPS[name].gpu:
        packages, install = _CUDA_PACKAGES, "'jax[cuda12]>=0.10,<0.11'"
    require(
        bool(importlib.util.find_spec("jax"))
        and any(map(importlib.util.find_spec, packages)),
        f"--chips={name} needs jax and {' or '.join(packages)}, not installed "
        f"here: pip install {install}.",
    )


def _write(
    work: Workload, directory: str, num_replicas: int, with_state: bool
) -> None:
    """Writes the program in a process of its own, whose memory is freed."""
    in_fresh_process(
        sorted(os.sched_getaffinity(0)),
        _write_here,
        work,
        directory,
        num_replicas,
        with_state,
    )


def _write_here(work: Workload, *arguments: Any) -> None:
    command_line.load_tensorflow()
    from benchmarks.devices.step_program import write_step_program

    write_step_program(work, *arguments)


def _row(work: Workload, name: str) -> Row:
    """Returns memory, work and least seconds of a step on one of the chips."""
    chip, number = CHIPS[name], int(FLAGS.num_chips)
    with tempfile.TemporaryDirectory(prefix="step-") as directory:
        _write(work, directory, number, False)
        if chip.gpu:
            path = os.path.join(directory, "gpu.txtpb")
            with open(path, "w") as file:
                file.write(gpu_description(name))
            target = f"--gpu={path}"
        else:
            target = f"--tpu={name}:{chip.topologies[number]}"
        # A process of its own: libtpu serves one, and writes to its streams.
        done = subprocess.run(
            [sys.executable, _RUN_STEP, directory, target],
            capture_output=True,
            text=True,
        )
    require(
        not done.returncode,
        f"--chips={name}: the compiler ended with status {done.returncode}: "
        f"{' '.join(done.stderr[-500:].split())}",
    )
    found = json.loads(done.stdout.splitlines()[-1])
    row: Row = {
        "chip": name,
        "num_chips": number,
        "preset": FLAGS.preset,
        "batch_size": work.batch_size,
        "seq_length": work.seq_length,
        "precision": work.training.precision,
        "remat": work.training.remat,
        "attention": work.training.attention,
        "capacity_bytes": chip.capacity,
        **found,
    }
    # The compiler of GPUs refuses no program.
    row["fits"] &= row["memory_bytes"] <= row["capacity_bytes"]
    if not row["fits"]:
        return row
    row["bound_seconds"] = step_seconds(
        chip, found["flops"], found["bytes_accessed"]
    )
    row["all_reduce_seconds"] = all_reduce_seconds(
        chip, found["reduced_bytes"], number
    )
    return row


def _line(row: Row) -> str:
    """Returns a row in words."""
    begin = (
        f"{row['chip']} x {row['num_chips']}: {row['preset']}, "
        f"{row['batch_size']} x {row['seq_length']} a chip, "
        f"{row['precision']}, remat {row['remat']}, attention "
        f"{row['attention']}: "
    )
    size = f"{row['memory_bytes'] / _GIB:.2f} GiB"
    if not row["fits"]:
        return f"{begin}does not fit, it needs {size}"
    seconds = row["bound_seconds"] + row["all_reduce_seconds"]
    line = (
        f"{begin}{size}, {row['flops'] / 1e12:.2f} TFLOP, "
        f"{row['bytes_accessed'] / _GIB:.0f} GiB read and written, at least "
        f"{1e3 * row['bound_seconds']:.1f} ms"
    )
    if row["num_chips"] > 1:
        line += (
            f" and {1e3 * row['all_reduce_seconds']:.2f} ms for the sum of "
            f"{row['reduced_bytes'] / 2**20:.0f} MiB over the chips"
        )
    sequences = row["batch_size"] * row["num_chips"] / seconds
    return f"{line}: at most {sequences:,.0f} sequences a second"


def largest_batch(measure: Callable[[int], Row], start: int) -> int:
    """Returns the largest batch that fits, a multiple of 8; 0 if none does.

    Memory grows nearly linearly with the batch, so that a few programs do.
    """
    fitting, failing = 0, math.inf
    sizes: dict[int, float] = {}
    batch_size = max(start // BATCH_UNIT, 1) * BATCH_UNIT
    while failing - fitting > BATCH_UNIT:
        row = measure(batch_size)
        sizes[batch_size] = row["memory_bytes"]
        if row["fits"]:
            fitting = batch_size
        else:
            failing = batch_size
        guess = _batch_of_size(sizes, row["capacity_bytes"])
        batch_size = int(
            max(fitting + BATCH_UNIT, min(guess, failing - BATCH_UNIT))
        )
    return fitting


def _batch_of_size(sizes: Mapping[int, float], capacity: float) -> int:
    """Returns the batch of that size on the line through the closest two."""
    closest = sorted(sizes, key=lambda batch: abs(sizes[batch] - capacity))
    if len(closest) == 1:
        (only,) = closest
        guess = only * capacity / sizes[only]
    else:
        first, second = closest[:2]
        slope = (sizes[second] - sizes[first]) / (second - first)
        # A larger batch may be compiled otherwise, and take no more.
        room = (capacity - sizes[first]) / slope if slope > 0 else 0
        guess = first + room
    return int(guess) // BATCH_UNIT * BATCH_UNIT


if __name__ == "__main__":
    command_line.run(define_flags, main)
