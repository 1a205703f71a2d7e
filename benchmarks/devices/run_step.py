"""Compiles a step program with JAX, and runs it where there is the device.

python run_step.py STEP --repeats=20
python run_step.py STEP --tpu=v5e:2x2
python run_step.py STEP --gpu=h100.txtpb

This file alone, `jax`, and the directory STEP that `benchmarks.devices.report
--program_dir` writes are needed. The first command compiles the step for JAX's
first device (a GPU, a TPU, this CPU), compares its scalars with TensorFlow's
where the directory has them, and times it. The others compile it for a TPU
without one (`libtpu`), or for a GPU (`jax[cuda12]`, and XLA's
GpuTargetConfigProto of it as text). All print one line of JSON.
"""

import argparse
import json
import math
import os
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

WARM_UP = 3


class Program:
    """A directory that `step_program.write_step_program` has written.

    Attributes:
        text: the StableHLO.
        description: of the arguments, in the program's order.
    """

    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "program.mlir")) as file:
            self.text = file.read()
        with open(os.path.join(directory, "arguments.json")) as file:
            self.description = json.load(file)
        self._arrays = np.load(os.path.join(directory, "arguments.npz"))

    def arguments(self) -> list[np.ndarray]:
        """Returns a batch, the controls, and weights and moments.

        Where their values are not in the directory, they are random ones of the
        same mean and deviation.
        """
        description, arrays = self.description, self._arrays
        found = [arrays[f"batch/{name}"] for name in description["batch"]]
        found += [arrays[f"controls/{n}"] for n in description["controls"]]
        rng = np.random.default_rng(0)
        for number, variable in enumerate(description["state"]):
            if f"state/{number}" in arrays:
                found.append(arrays[f"state/{number}"])
            else:
                values = rng.normal(
                    variable["mean"], variable["deviation"], variable["shape"]
                )
                found.append(values.astype(variable["dtype"]))
        return found

    def scalars(self) -> np.ndarray | None:
        """Returns TensorFlow's scalars of the first steps, if they are there.

        `[steps, scalars]`.
        """
        return self._arrays.get("scalars")

    def replaced(self) -> dict[int, int]:
        """Returns result number -> number of the argument that it replaces."""
        pairs = re.findall(
            r"parameter_number = (\d+) : i64\}, "
            r"output_index = array<i64: (\d+)>",
            self.text,
        )
        return {int(result): int(argument) for argument, result in pairs}

    def reduced_bytes(self) -> int:
        """Returns the bytes that each replica adds to those of the others."""
        types = re.findall(
            r"stablehlo\.all_reduce\".*?\n *\}\).*?\) -> tensor<(.*?)>",
            self.text,
            re.DOTALL,
        )
        return sum(
            math.prod(map(int, sizes)) * int(re.sub(r"\D", "", dtype)) // 8
            for *sizes, dtype in (found.split("x") for found in types)
        )


def compiled(program: Program, devices: Sequence[Any]) -> Any:
    """Returns the executable for the devices, a replica on each.

    Raises:
        Exception: JAX's own, for a program that does not fit the device.
    """
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jaxlib import xla_client
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module = ir.Module.parse(program.text)
    client = devices[0].client
    options = compiler.get_compile_options(
        num_replicas=len(devices),
        num_partitions=1,
        device_assignment=np.array([[device.id] for device in devices]),
    )
    devices = xla_client.DeviceList(tuple(devices))
    # A topology without devices compiles only.
    if client.runtime_type == "compile_only_runtime":
        return client.compile(module, devices, options)
    return client.compile_and_load(module, devices, options)


def report(executable: Any) -> dict[str, float]:
    """Returns the bytes in memory and the work of a step on one device."""
    memory = executable.get_compiled_memory_stats()
    costs = _costs(executable)
    # Results that replace an argument take no memory of their own.
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {
        "memory_bytes": memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + results,
        "temporary_bytes": memory.temp_size_in_bytes,
        "flops": costs.get("flops", 0.0),
        "bytes_accessed": costs.get("bytes accessed", 0.0),
    }


def _costs(executable: Any) -> dict[str, float]:
    """Returns the compiler's counts, which custom kernels are not part of."""
    import jax

    try:
        costs = executable.cost_analysis()
        return costs[0] if isinstance(costs, list) else costs
    except jax.errors.JaxRuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        # The GPU's compiler has none where there is no GPU. Its program has.
        from jaxlib import _jax

        (module,) = executable.hlo_modules()
        host = jax.devices("cpu")[0].client
        return _jax.hlo_module_cost_analysis(host, module)


def run(program: Program, repeats: int) -> dict[str, Any]:
    """Returns seconds of a step on JAX's first device, and how it compares."""
    import jax

    device = jax.devices()[0]
    begin = time.perf_counter()
    executable = compiled(program, [device])
    found = {
        "device": device.device_kind,
        "compile_seconds": time.perf_counter() - begin,
        **report(executable),
    }
    arguments = [jax.device_put(a, device) for a in program.arguments()]
    replaced = program.replaced()
    scalars = list(program.description["scalars"])

    def step() -> Any:
        """Returns the step's scalars; its other results are arguments then."""
        sharded = executable.execute_sharded(arguments)
        results = [
            parts[0]
            for parts in sharded.disassemble_into_single_device_arrays()
        ]
        for result, argument in replaced.items():
            arguments[argument] = results[result]
        return results[: len(scalars)]

    def timed(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            last = step()
        last[0].block_until_ready()
        return (time.perf_counter() - begin) / number

    first = np.array([np.asarray(step(), np.float64) for _ in range(WARM_UP)])
    loss = scalars.index("loss")
    found["losses"] = first[:, loss].tolist()
    expected = program.scalars()
    if expected is not None:
        difference = np.abs(first - expected[:WARM_UP])
        found["largest_relative_difference"] = float(
            np.max(difference / (np.abs(expected[:WARM_UP]) + 1e-6))
        )
    found["step_seconds"] = statistics.median(timed(1) for _ in range(repeats))
    # The next step is dispatched while one runs, as in training.
    found["back_to_back_seconds"] = timed(repeats)
    return found


def tpu_devices(topology: str) -> Sequence[Any]:
    """Returns the chips of a topology, which this machine need not have."""
    os.environ.update(
        # A cloud's metadata server is not asked.
        TPU_SKIP_MDS_QUERY="1",
        # Others may compile too: no device is taken.
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    )
    return _topology("tpu", topology)


def gpu_devices(description: str, number: int = 1) -> Sequence[Any]:
    """Returns GPUs of one machine, which this machine need not have.

    `description` is XLA's GpuTargetConfigProto as text.
    """
    # No device is taken, on which kernels could be tried out.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_autotune_level=0"
    return _topology(
        "cuda", "gpu", target_config=description, topology=f"1x1x{number}"
    )


def _topology(platform: str, name: str, **options: str) -> Sequence[Any]:
    import jax
    from jax.experimental import topologies

    # Otherwise JAX looks for devices of the platform.
    jax.config.update("jax_platforms", "cpu")
    return topologies.get_topology_desc(
        platform=platform, topology_name=name, **options
    ).devices


def compile_for(program: Program, devices: Sequence[Any]) -> dict[str, Any]:
    """Returns the report of a step on devices that compile only.

    As many as there are replicas take part. `fits` is False where a TPU's
    memory does not hold the step; then there are `memory_bytes` and
    `capacity_bytes` alone, as the compiler reports them.
    """
    devices = devices[: program.description["num_replicas"]]
    begin = time.perf_counter()
    try:
        executable = compiled(program, devices)
    except Exception as error:
        # JAX has one class for all that a compiler reports.
        sizes = needed_and_available(str(error))
        if not sizes:
            raise
        return {
            "fits": False,
            "memory_bytes": sizes[0],
            "capacity_bytes": sizes[1],
        }
    return {
        "fits": True,
        "device": devices[0].device_kind,
        "compile_seconds": time.perf_counter() - begin,
        "reduced_bytes": program.reduced_bytes(),
        **report(executable),
    }


def needed_and_available(message: str) -> list[float]:
    """Returns the bytes that a program needs, and those that a chip has.

    They are the first sizes, such as 17.90G, in a compiler's message that its
    memory is exhausted. Of another message there are none.
    """
    if "RESOURCE_EXHAUSTED" not in message:
        return []
    return [
        float(number) * 2.0 ** (10 * (1 + "KMGT".index(unit)))
        for number, unit in re.findall(r"\b([\d.]+)([KMGT])\b", message)[:2]
    ]


def main() -> None:
    """Prints the report of one program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("step", help="Directory of the program.")
    parser.add_argument("--tpu", help="Topology to compile for: v5e:2x2.")
    parser.add_argument("--gpu", help="File that describes a GPU to XLA.")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    import jax

    # Counters of steps have 64 bits.
    jax.config.update("jax_enable_x64", True)
    program = Program(arguments.step)
    if arguments.tpu:
        found = compile_for(program, tpu_devices(arguments.tpu))
    elif arguments.gpu:
        with open(arguments.gpu) as file:
            description = file.read()
        replicas = program.description["num_replicas"]
        found = compile_for(program, gpu_devices(description, replicas))
    else:
        found = run(program, arguments.repeats)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
