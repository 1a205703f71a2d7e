"""The work that is measured, and what does it.

Every side of a comparison, this project and others, does the same work: it
trains on one batch of random tokens, and computes the encoder's outputs of it:
the pooled ones, as a classifier needs them, and all of them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from albert_tf.config import FeatureConfig
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.tokenizer_base import Tokenizer


@dataclasses.dataclass(frozen=True)
class TaskWork:
    """What is fine-tuned.

    Attributes:
        work: the architecture, the batch size, the precision.
        kind: of the examples.
        labels: of the model.
        examples: that tell their answers.
        tokenizer: of the model.
        features: how examples become features.
    """

    work: Workload
    kind: Kind
    labels: Sequence[str]
    examples: Sequence[Any]
    tokenizer: Tokenizer
    features: FeatureConfig


# What a side does, by the name of its method.
JOBS = {
    "train_step": "training",
    "forward": "forward",
    "states": "forward to every state",
}


class Side(Protocol):
    """A library at the work.

    Attributes:
        does: for people, by job: how it does it, where libraries differ.
        flops: operations that it carries out, by job (see accounting.py);
            without a job that it does not do, or only as another work.
    """

    does: Mapping[str, str]
    flops: Mapping[str, int]

    def train_step(self) -> float:
        """Makes one update and returns the loss before it."""

    def forward(self) -> np.ndarray:
        """Returns the pooled outputs `[batch, hidden]`, without dropout.

        A side may leave out what they do not depend on.
        """

    def states(self) -> np.ndarray:
        """Returns every state `[batch, seq, hidden]`, without dropout."""
