"""Times a training step of transformers' ALBERT on this machine's GPU or CPU.

python -m benchmarks.devices.run_peer --preset=base --batch_size=64 \\
    --max_seq_length=512 --repeats=20

The peer of `run_step.py`, on the same card: `AlbertForPreTraining` with SDPA,
`torch.compile`, bfloat16 autocast and fused AdamW, on a batch of the same shape
without padding. This repository, `torch` and `transformers` are needed, no
TensorFlow. Prints one line of JSON.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from absl import flags

from benchmarks import workload
from benchmarks.workload import Workload, random_batch
from bin import command_line
from experiments.programs.transformers_albert import (
    albert_of_transformers,
    inputs_of_transformers,
)

FLAGS = flags.FLAGS
WARM_UP = 3


def define_flags() -> None:
    workload.define_flags()
    flags.DEFINE_integer("repeats", 20, "Steps to time.", lower_bound=1)
    flags.DEFINE_bool("compile", True, "Whether torch.compile is used.")


def make_step(work: Workload, device: str, is_compiled: bool) -> Callable:
    """Returns a function that trains one step and returns its loss."""
    import torch

    torch.manual_seed(work.training.seed)
    model = albert_of_transformers(work.model, "sdpa").to(device).train()
    arrays = inputs_of_transformers(random_batch(work))
    inputs = {
        name: torch.tensor(array, device=device)
        for name, array in arrays.items()
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if is_compiled else model

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = forward(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def run(
    work: Workload, repeats: int, is_compiled: bool = True
) -> dict[str, Any]:
    """Returns seconds of a step, its first losses, and the peak of memory.

    Memory is in bytes, of a GPU only.
    """
    import torch

    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    step = make_step(work, device, is_compiled)

    def timed(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            last = step()
        # Reading the value waits for the device.
        float(last)
        return (time.perf_counter() - begin) / number

    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if has_gpu else "cpu",
        "losses": [float(step()) for _ in range(WARM_UP)],
        "step_seconds": statistics.median(timed(1) for _ in range(repeats)),
        "back_to_back_seconds": timed(repeats),
    }
    if has_gpu:
        found["memory_bytes"] = torch.cuda.max_memory_allocated()
    return found


def main() -> None:
    print(json.dumps(run(workload.of_flags(), FLAGS.repeats, FLAGS.compile)))


if __name__ == "__main__":
    command_line.run(define_flags, main)
