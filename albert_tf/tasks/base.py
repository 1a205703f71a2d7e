"""What a task is: a row that reads examples and names its metrics."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.config import UserError


@dataclasses.dataclass(frozen=True)
class Example:
    """One text, or a pair, and what is to be said of it.

    Attributes:
        texts: one or two.
        label: the name of a class, or a number as it is written; None where
            the file does not tell.
        place: file and line, for messages.
    """

    texts: tuple[str, ...]
    label: str | None
    place: str = dataclasses.field(default="", compare=False)


Metric = Callable[[np.ndarray, np.ndarray], float]


@dataclasses.dataclass(frozen=True)
class Task:
    """A task as data.

    Attributes:
        name: as in `--task`.
        read_examples: (data_dir, split) -> examples of "train" or "dev".
        metrics: name -> function of (label ids, predicted ids), both
            `[examples]`, giving a float.
        baselines: the same, for what a prediction must beat.
    """

    name: str
    read_examples: Callable[[str, str], list[Example]]
    metrics: Mapping[str, Metric]
    baselines: Mapping[str, Metric]


def label_names(examples: Sequence[Example]) -> list[str]:
    """Returns the labels that occur, sorted."""
    return sorted({example.label for example in examples})


def label_numbers(
    examples: Sequence[Example], labels: Sequence[str], place: str
) -> np.ndarray:
    """Returns label ids `[examples]`, or raises UserError for a new label."""
    numbers = {name: number for number, name in enumerate(labels)}
    unknown = sorted({e.label for e in examples} - set(labels))
    if unknown:
        raise UserError(
            f"{place} has the labels {', '.join(unknown)}, which the model "
            f"does not know; its labels are {', '.join(labels)}."
        )
    return np.array([numbers[e.label] for e in examples], np.int32)


def pack_single(
    token_ids: Sequence[Sequence[int]],
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    longest: int = 0,
    multiple: int = 1,
) -> dict[str, np.ndarray]:
    """Returns the model's inputs for single texts.

    Each row is [CLS] tokens [SEP], the tokens cut to max_seq_length - 2,
    padded to the longest row, or to a text of `longest` tokens where that is
    more, rounded up to a `multiple` where max_seq_length allows.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 `[batch, seq]`.
    """
    rows = [[cls_id, *ids[: max_seq_length - 2], sep_id] for ids in token_ids]
    widest = max([longest + 2, *map(len, rows)])
    width = min(-(-widest // multiple) * multiple, max_seq_length)
    input_ids = np.full((len(rows), width), pad_id, np.int32)
    input_mask = np.zeros((len(rows), width), np.int32)
    for number, row in enumerate(rows):
        input_ids[number, : len(row)] = row
        input_mask[number, : len(row)] = 1
    return {
        "input_ids": input_ids,
        "input_mask": input_mask,
        "segment_ids": np.zeros_like(input_ids),
    }
