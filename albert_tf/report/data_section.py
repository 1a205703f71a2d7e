"""The examples of a task in a report: numbers, labels, lengths, duplicates."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.report.figures import draw_histograms
from albert_tf.report.page import Figure, Paragraph, Part, Section, Table
from albert_tf.tasks.duplicates import duplicates_line
from albert_tf.tasks.feature_building import unknown_share
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.tokenizer_base import Tokenizer

_MAX_LABELS = 30


def data_section(
    kind: Kind,
    examples: Mapping[str, Sequence[Any]],
    features: Mapping[str, Features],
    tokenizer: Tokenizer,
) -> Section:
    """Returns the examples of each split, "train" among them, as a section."""
    parts: list[Part] = [_counts(examples, features, tokenizer)]
    for split in examples:
        if split != "train":
            parts.append(
                _duplicates(kind, examples["train"], examples[split], split)
            )
    if kind.labelled:
        parts += _labels(examples)
    lengths = {name: of_split.lengths for name, of_split in features.items()}
    caption = "Tokens of the rows, after truncation."
    histogram = draw_histograms(lengths, "tokens")
    return Section("Data", [*parts, Figure(histogram, caption, "lengths.png")])


def _counts(
    examples: Mapping[str, Sequence[Any]],
    features: Mapping[str, Features],
    tokenizer: Tokenizer,
) -> Table:
    rows = []
    for split, of_split in examples.items():
        found = features[split]
        truncated = len(found.truncated) / len(of_split)
        rows.append(
            [
                split,
                f"{len(of_split):,}",
                f"{len(found):,}",
                f"{found.lengths.mean():.1f}",
                f"{found.lengths.max()}",
                f"{truncated:.1%}",
                f"{unknown_share(found, tokenizer):.1%}",
            ]
        )
    header = ["split", "examples", "rows", "mean tokens", "longest"]
    return Table(
        [*header, "truncated", "unknown"],
        rows,
        "A row is one input of the model; unknown is the share of tokens that "
        "its vocabulary lacks.",
    )


def _duplicates(
    kind: Kind, train: Sequence[Any], held_out: Sequence[Any], split: str
) -> Paragraph:
    line = duplicates_line(kind, train, held_out, split)
    none = f"No example of {split} has all the texts of a training example."
    return Paragraph(line or none)


def _labels(examples: Mapping[str, Sequence[Any]]) -> list[Part]:
    """Returns the share of each label in each split, of texts with one."""
    counts = {
        split: collections.Counter(
            label
            for example in of_split
            if isinstance(label := getattr(example, "label", None), str)
        )
        for split, of_split in examples.items()
    }
    total = sum(counts.values(), collections.Counter())
    if not total:
        return []
    rows = [
        [label, *(f"{of[label] / of.total():.1%}" for of in counts.values())]
        for label, _ in total.most_common(_MAX_LABELS)
    ]
    caption = "Shares of the labels."
    if len(total) > _MAX_LABELS:
        caption += f" The {_MAX_LABELS} most frequent of {len(total)}."
    return [Table(["label", *counts], rows, caption)]
