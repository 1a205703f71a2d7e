"""CHIPS: TPUs and GPUs that a step is compiled for, by published figures."""

from typing import NamedTuple

_GIB = 2**30


class Gpu(NamedTuple):
    """What XLA's compiler asks of an NVIDIA GPU.

    Attributes:
        capability: its compute capability.
        cores: its streaming multiprocessors.
        clock: GHz.
        fpus, threads: of a core, for float32 and at a time.
        shared_memory: bytes of a core.
        cache: bytes of the second level.
    """

    capability: tuple[int, int]
    cores: int
    clock: float
    fpus: int
    threads: int
    shared_memory: int
    cache: int


class Chip(NamedTuple):
    """A row of CHIPS; figures of Google's and NVIDIA's pages on it.

    Attributes:
        flops: FLOP/s of bfloat16 products.
        bytes_per_second: of the high-bandwidth memory.
        capacity: bytes of that memory.
        link: bytes a second that a chip sends to its neighbours together.
        topologies: of TPUs, names of slices for libtpu by their number of
            chips.
        gpu: of GPUs, what their compiler asks beside these figures.
    """

    flops: float
    bytes_per_second: float
    capacity: int
    link: float
    topologies: dict[int, str]
    gpu: Gpu | None = None


_FLAT = {1: "2x2", 4: "2x2", 8: "2x4"}
_CUBIC = {1: "2x2x1", 4: "2x2x1", 8: "2x2x2"}
_HOPPER = Gpu((9, 0), 132, 1.98, 128, 2048, 228 << 10, 50 << 20)
CHIPS = {
    "v4": Chip(275e12, 1228e9, 32 * _GIB, 300e9, _CUBIC),
    "v5e": Chip(197e12, 819e9, 16 * _GIB, 200e9, _FLAT),
    "v5p": Chip(459e12, 2765e9, 95 * _GIB, 600e9, _CUBIC),
    "v6e": Chip(918e12, 1640e9, 32 * _GIB, 400e9, _FLAT),
    "a100": Chip(
        312e12,
        2039e9,
        79 * _GIB,
        300e9,
        {},
        Gpu((8, 0), 108, 1.41, 64, 2048, 164 << 10, 40 << 20),
    ),
    "l4": Chip(
        121e12,
        300e9,
        22 * _GIB,
        32e9,
        {},
        Gpu((8, 9), 58, 2.04, 128, 1536, 100 << 10, 48 << 20),
    ),
    "h100": Chip(989e12, 3352e9, 79 * _GIB, 450e9, {}, _HOPPER),
    "h200": Chip(989e12, 4800e9, 140 * _GIB, 450e9, {}, _HOPPER),
}


def gpu_description(name: str) -> str:
    """Returns XLA's GpuTargetConfigProto of a GPU in CHIPS, as text."""
    chip = CHIPS[name]
    gpu = chip.gpu
    assert gpu is not None
    major, minor = gpu.capability
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {gpu.cores}
  clock_rate_ghz: {gpu.clock}
  fpus_per_core: {gpu.fpus}
  threads_per_core_limit: {gpu.threads}
  shared_memory_per_core: {gpu.shared_memory}
  shared_memory_per_block_optin: {gpu.shared_memory - 1024}
  l2_cache_size: {gpu.cache}
  memory_bandwidth: {int(chip.bytes_per_second)}
  device_memory_size: {chip.capacity}
  shared_memory_per_block: {48 << 10}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  registers_per_core_limit: {1 << 16}
  registers_per_block_limit: {1 << 16}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
}}
platform_name: "CUDA"
device_description_str: "{name}"
dnn_version_info {{ major: 9 }}
runtime_version {{ major: 12 minor: 9 }}
"""


def step_seconds(chip: Chip, flops: float, bytes_accessed: float) -> float:
    """Returns the least seconds of a step: products and memory overlap."""
    return max(flops / chip.flops, bytes_accessed / chip.bytes_per_second)


def all_reduce_seconds(chip: Chip, size: float, num_chips: int) -> float:
    """Returns the least seconds of a sum of `size` bytes over the chips.

    Every chip sends a part to the next and receives one, twice around the ring.
    """
    return 2 * size * (num_chips - 1) / num_chips / chip.link
