"""CHIPS: the TPUs that a step is compiled for, by their published figures."""

from typing import NamedTuple

_GIB = 2**30


class Chip(NamedTuple):
    """A row of CHIPS; figures of Google's pages on the TPU of that name.

    Attributes:
        topologies: names of slices for libtpu, by their number of chips.
        flops: FLOP/s of bfloat16 products.
        bytes_per_second: of the high-bandwidth memory.
        capacity: bytes of that memory.
        link: bytes a second that a chip sends to its neighbours together.
    """

    topologies: dict[int, str]
    flops: float
    bytes_per_second: float
    capacity: int
    link: float


CHIPS = {
    "v4": Chip(
        {1: "2x2x1", 4: "2x2x1", 8: "2x2x2"},
        275e12,
        1228e9,
        32 * _GIB,
        300e9,
    ),
    "v5e": Chip(
        {1: "2x2", 4: "2x2", 8: "2x4"}, 197e12, 819e9, 16 * _GIB, 200e9
    ),
    "v5p": Chip(
        {1: "2x2x1", 4: "2x2x1", 8: "2x2x2"},
        459e12,
        2765e9,
        95 * _GIB,
        600e9,
    ),
    "v6e": Chip(
        {1: "2x2", 4: "2x2", 8: "2x4"}, 918e12, 1640e9, 32 * _GIB, 400e9
    ),
}


def step_seconds(chip: Chip, flops: float, bytes_accessed: float) -> float:
    """Returns the least seconds of a step: products and memory overlap."""
    return max(flops / chip.flops, bytes_accessed / chip.bytes_per_second)


def all_reduce_seconds(chip: Chip, size: float, num_chips: int) -> float:
    """Returns the least seconds of a sum of `size` bytes over the chips.

    Every chip sends a part to the next and receives one, twice around the ring.
    """
    return 2 * size * (num_chips - 1) / num_chips / chip.link
