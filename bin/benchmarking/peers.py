"""Who does the work that is measured: this project and other libraries."""

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.config import UserError
from albert_tf.jobs.workload import Workload
from bin.benchmarking import keras_hub_peer, transformers_peer
from bin.benchmarking.workload import Side


@dataclasses.dataclass(frozen=True)
class SideKind:
    """How a side is made.

    Libraries are imported only when a side is made.

    Attributes:
        name: on the command line and in tables.
        packages: what must be installed beside requirements.txt.
        variants: the ways to do a piece of work, of which the fastest is to
            be taken; a UserError where there is none.
        make: makes the side that does it in one of these ways.
    """

    name: str
    packages: tuple[str, ...]
    variants: Callable[[Workload], Sequence[str]]
    make: Callable[[Workload, Mapping[str, np.ndarray], str], Side]


def _our_side(
    work: Workload, batch: Mapping[str, np.ndarray], variant: str
) -> Side:
    from bin.benchmarking.our_side import OurSide

    return OurSide(work, batch)


OURS = SideKind("ours", (), lambda work: ("as set",), _our_side)

PEERS: dict[str, SideKind] = {
    row.name: row
    for row in (
        SideKind(
            "transformers",
            ("torch", "transformers"),
            transformers_peer.variants,
            transformers_peer.TransformersSide,
        ),
        SideKind(
            "keras_hub",
            ("keras_hub",),
            keras_hub_peer.variants,
            keras_hub_peer.KerasHubSide,
        ),
    )
}


def find_peers(names: Sequence[str]) -> tuple[SideKind, ...]:
    """Returns the rows of PEERS of these names.

    Raises:
        UserError: for an unknown name, or one that is not installed.
    """
    for name in names:
        if name not in PEERS:
            raise UserError(
                f"against={name!r} is not one of {', '.join(PEERS)}."
            )
    peers = tuple(PEERS[name] for name in dict.fromkeys(names))
    missing = [
        package
        for peer in peers
        for package in peer.packages
        if importlib.util.find_spec(package) is None
    ]
    if missing:
        raise UserError(
            f"A comparison with {' and '.join(p.name for p in peers)} needs "
            f"{' and '.join(missing)}, not installed here: "
            "pip install -r requirements-parity.txt."
        )
    return peers
