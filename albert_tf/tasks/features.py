"""Sequences of many lengths, concatenated in flat arrays."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Features:
    """Model inputs of examples, not padded yet.

    A row of a batch is one sequence, or `choices` of them. The tokens of all
    sequences are concatenated.

    Attributes:
        sequences: int32 `[tokens]` by name, `input_ids` among them; weights
            may be float32.
        offsets: int64 `[num_sequences + 1]`, where each sequence starts.
        scalars: `[rows]` by name: labels, positions.
        padding: values by name; 0 for the others.
        example_numbers: int64 `[rows]`, the example of each row: of the first
            example at least one, then of the next, and so on.
        choices: sequences of a row; 0: one, without an axis for them.
        decoding: int32 `[tokens]` by name, for `Kind.scores` alone.
        truncated: numbers of the examples that did not fit.
        answer_lengths: of each question the tokens of the shortest gold answer
            that can be predicted; 0 without one, -1 if none can be. Empty for
            other kinds.
    """

    sequences: Mapping[str, np.ndarray]
    offsets: np.ndarray
    scalars: Mapping[str, np.ndarray]
    padding: Mapping[str, int]
    example_numbers: np.ndarray
    choices: int = 0
    decoding: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    truncated: Sequence[int] = ()
    answer_lengths: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.example_numbers)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of the longest sequence of each row, int64 `[rows]`."""
        lengths = np.diff(self.offsets)
        return lengths.reshape(len(self), -1).max(axis=1)

    def rows_of_examples(self) -> list[list[int]]:
        """Returns the numbers of the rows of each example, in order."""
        groups = itertools.groupby(
            range(len(self)), key=self.example_numbers.tolist().__getitem__
        )
        return [list(rows) for _, rows in groups]

    def batch(
        self, rows: np.ndarray, width: int | None = None
    ) -> dict[str, np.ndarray]:
        """Returns padded inputs of rows, by default as wide as the longest.

        The sequences, and `input_mask`, int32 `[batch, width]` or `[batch,
        choices, width]`; the scalars `[batch]`.
        """
        per_row = self.choices or 1
        numbers = (rows[:, None] * per_row + np.arange(per_row)).ravel()
        starts = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - starts
        columns = np.arange(lengths.max() if width is None else width)
        real = columns < lengths[:, None]
        indices = np.where(real, starts[:, None] + columns, 0)
        shape: tuple[int, ...] = (len(rows), len(columns))
        if self.choices:
            shape = (len(rows), self.choices, len(columns))
        padded = {
            name: np.where(real, values[indices], self.padding.get(name, 0))
            for name, values in self.sequences.items()
        }
        padded["input_mask"] = real
        return {
            name: values.astype(
                np.float32 if values.dtype.kind == "f" else np.int32
            ).reshape(shape)
            for name, values in padded.items()
        } | {name: values[rows] for name, values in self.scalars.items()}

    def row(self, number: int, name: str) -> np.ndarray:
        """Returns the values of a row without choices, `[tokens of it]`."""
        values = {**self.sequences, **self.decoding}[name]
        return values[self.offsets[number] : self.offsets[number + 1]]


def flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values of all rows, int32, and where each row begins."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.empty(offsets[-1], np.int32)
    for row, start, end in zip(rows, offsets[:-1], offsets[1:], strict=True):
        values[start:end] = row
    return values, offsets


def concatenated(parts: Sequence[Features]) -> Features:
    """Returns the rows of consecutive parts of the examples."""
    first = parts[0]
    offsets, numbers, truncated = [np.zeros(1, np.int64)], [], []
    tokens = examples = 0
    for part in parts:
        offsets.append(part.offsets[1:] + tokens)
        tokens += part.offsets[-1]
        numbers.append(part.example_numbers + examples)
        truncated += [number + examples for number in part.truncated]
        examples += int(part.example_numbers[-1]) + 1

    def joined(field: str) -> dict[str, np.ndarray]:
        return {
            name: np.concatenate([getattr(part, field)[name] for part in parts])
            for name in getattr(first, field)
        }

    return Features(
        sequences=joined("sequences"),
        offsets=np.concatenate(offsets),
        scalars=joined("scalars"),
        padding=first.padding,
        example_numbers=np.concatenate(numbers),
        choices=first.choices,
        decoding=joined("decoding"),
        truncated=truncated,
        answer_lengths=[n for part in parts for n in part.answer_lengths],
    )
