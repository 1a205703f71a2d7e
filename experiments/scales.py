"""SCALES: what a table's rows are at a size that a machine can train.

Rows are written in the paper's numbers. A scale says which number of its own
stands for one of the paper's, and what all its models have alike.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.config import PretrainConfig, override, preset


@dataclasses.dataclass(frozen=True)
class Scale:
    """A row of SCALES.

    Attributes:
        preset: the settings that all models start from.
        settings: what differs from the preset, for all models.
        numbers: by setting, our number for each of the paper's; a setting
            that is not here keeps the paper's. A row whose number is not
            there has no counterpart at this scale.
        vocab_size, max_seq_length: of the shards.
        description: what readers of a table must know of the scale, with
            names in braces for its numbers, see `caption`.
    """

    preset: str
    settings: Mapping[str, Any]
    numbers: Mapping[str, Mapping[Any, Any]]
    vocab_size: int
    max_seq_length: int
    description: str

    @property
    def caption(self) -> str:
        """The description, with the numbers of the scale's ALBERT-base."""
        settings = {**preset(self.preset), **self.settings}
        config = override(PretrainConfig(), settings)
        return self.description.format(
            preset=self.preset,
            width=config.model.hidden_size,
            layers=config.model.num_hidden_layers,
            steps=config.training.num_train_steps,
            batch=config.training.train_batch_size,
            length=self.max_seq_length,
            rate=config.optimizer.learning_rate,
        )

    def config(
        self, row: Mapping[str, Any], seed: int
    ) -> PretrainConfig | None:
        """Returns the pretraining of a row, in the paper's numbers.

        None where the scale has no counterpart of the row.
        """
        changes = dict(row)
        for name, value in row.items():
            if name in self.numbers:
                if value not in self.numbers[name]:
                    return None
                changes[name] = self.numbers[name][value]
        # All of the paper's models have these proportions.
        if "hidden_size" in changes:
            width = changes["hidden_size"]
            changes |= {
                "intermediate_size": 4 * width,
                "num_attention_heads": max(width // 64, 1),
            }
        shards = {
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_seq_length,
            "seed": seed,
        }
        start = override(PretrainConfig(), preset(self.preset))
        return override(start, {**self.settings, **changes, **shards})


# Our widths and depths for the paper's. Deep models have small output kernels:
# 1 / sqrt(2 x applications), as GPT-2's.
_DEPTHS = {1: 1, 3: 2, 6: 3, 12: 4, 24: 8, 48: 16}
_GROUPS = {1: 1, 2: 2, 12: 4}
_TRAINING = "{steps:,} steps of {batch:,} sequences of {length} tokens"
_SMALL = (
    "{width} wide and {layers} layers for the paper's 768 and 12, "
    f"{_TRAINING}. "
    "Except where a table compares recipes (recipe, initialization, peers), "
    "all rows have the optimizer, the initial weights and the schedule of the "
    "preset {preset}, with which models of this size learn; LAMB with the "
    "paper's do not. They differ in nothing but what the table varies."
)

SCALES: dict[str, Scale] = {
    "tiny": Scale(
        preset="tiny",
        settings={
            "embedding_size": 32,
            "num_hidden_layers": 4,
            "output_init_scale": 0.354,
        },
        numbers={
            "embedding_size": {64: 16, 128: 32, 256: 64, 768: 128}
            | {1024: 192, 2048: 256},
            "hidden_size": {
                **{768: 128, 1024: 192, 2048: 256, 4096: 320, 6144: 384}
            },
            "num_hidden_layers": _DEPTHS,
            "num_hidden_groups": _GROUPS,
            "depth_schedule": {"half first": "0:2,750:4"},
        },
        vocab_size=8000,
        max_seq_length=64,
        description=f"Scale tiny: {_SMALL}",
    ),
    "mini": Scale(
        preset="mini",
        settings={
            "embedding_size": 64,
            "num_hidden_layers": 4,
            "output_init_scale": 0.354,
        },
        numbers={
            "embedding_size": {64: 32, 128: 64, 256: 128, 768: 256}
            | {1024: 320, 2048: 384},
            "hidden_size": {
                **{768: 256, 1024: 320, 2048: 384, 4096: 512, 6144: 640}
            },
            "num_hidden_layers": _DEPTHS,
            "num_hidden_groups": _GROUPS,
            "depth_schedule": {"half first": "0:2,3000:4"},
        },
        vocab_size=8000,
        max_seq_length=64,
        description=f"Scale mini: {_SMALL}",
    ),
    "paper": Scale(
        preset="base_v1",
        settings={},
        numbers={"depth_schedule": {"half first": "0:6,62500:12"}},
        vocab_size=30_000,
        max_seq_length=512,
        description=(
            f"Scale paper: the paper's own settings, {_TRAINING} with LAMB at "
            "{rate}."
        ),
    ),
}
