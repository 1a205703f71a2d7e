"""The parameter counts that the paper publishes, each beside the exact one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.config import ModelConfig, PretrainConfig, override, preset
from albert_tf.modeling.parameter_count import (
    PRETRAINING_HEADS,
    ParameterCount,
    parameter_count,
)


@dataclasses.dataclass(frozen=True)
class PublishedCount:
    """A row of the paper: a preset with changes, and its size in millions."""

    name: str
    millions: int
    preset: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def model(self) -> ModelConfig:
        """The row's architecture."""
        changes = preset(self.preset) | self.changes
        return override(PretrainConfig(), changes).model


def _albert_base(
    embedding_size: int, sharing: str, millions: int
) -> PublishedCount:
    return PublishedCount(
        f"E={embedding_size} sharing={sharing}",
        millions,
        "base",
        {"embedding_size": embedding_size, "sharing": sharing},
    )


TABLES: dict[str, tuple[PublishedCount, ...]] = {
    "Table 1, sizes": (
        PublishedCount("BERT base", 108, "bert_base"),
        PublishedCount("BERT large", 334, "bert_large"),
        PublishedCount("BERT xlarge", 1270, "bert_xlarge"),
        PublishedCount("ALBERT base", 12, "base"),
        PublishedCount("ALBERT large", 18, "large"),
        PublishedCount("ALBERT xlarge", 60, "xlarge"),
        PublishedCount("ALBERT xxlarge", 235, "xxlarge"),
    ),
    "Table 3, embedding size": (
        _albert_base(64, "none", 87),
        _albert_base(128, "none", 89),
        _albert_base(256, "none", 93),
        _albert_base(768, "none", 108),
        _albert_base(64, "all", 10),
        _albert_base(128, "all", 12),
        _albert_base(256, "all", 16),
        _albert_base(768, "all", 31),
    ),
    "Table 4, sharing": (
        _albert_base(768, "all", 31),
        _albert_base(768, "attention", 83),
        _albert_base(768, "ffn", 57),
        _albert_base(768, "none", 108),
        _albert_base(128, "all", 12),
        _albert_base(128, "attention", 64),
        _albert_base(128, "ffn", 38),
        _albert_base(128, "none", 89),
    ),
}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A published count beside the exact one.

    Attributes:
        published: the paper's row.
        count: of our model with the heads of pretraining.
        readings: every way in which the published number follows from the
            count, the plainest first; empty if there is none.
    """

    published: PublishedCount
    count: ParameterCount
    readings: tuple[str, ...]

    @property
    def excess(self) -> float:
        """By what share the published number exceeds the encoder's."""
        return self.published.millions * 10**6 / self.count.encoder - 1


def compare(published: PublishedCount) -> Comparison:
    """Returns our exact count beside a row of the paper.

    One reading explains all published numbers but two: the encoder's weights,
    rounded; with the pooler where layers share something, without it where
    nothing is shared, BERT's sizes included. The heads of pretraining are
    counted nowhere. The two are ALBERT xlarge (60 million; 58.7 make 59) and
    xxlarge (235 million; 222.6 make 223), which no way of counting reaches.
    """
    count = parameter_count(published.model, PRETRAINING_HEADS)
    counted = {
        "encoder": count.encoder,
        "encoder without pooler": count.encoder - count.pooler,
        "encoder and heads": count.total,
    }
    # The paper gives three figures at most.
    unit = 10**6 * (10 if published.millions >= 1000 else 1)
    target = published.millions * 10**6
    rounded = [
        f"{name}, rounded"
        for name, weights in counted.items()
        if (weights + unit // 2) // unit * unit == target
    ]
    cut = [
        f"{name}, cut"
        for name, weights in counted.items()
        if weights // unit * unit == target
    ]
    return Comparison(published, count, (*rounded, *cut))
