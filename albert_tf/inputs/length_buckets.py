"""Batches of a task's examples, bucketed by length within each batch."""

import functools
from collections.abc import Callable

import numpy as np

from albert_tf.config import require
from albert_tf.inputs.input_pipeline import Batch, training_positions
from albert_tf.inputs.part_widths import longest_rows, num_parts
from albert_tf.records import counter_rng
from albert_tf.tasks.features import Features

# There are few, since every width is a trace of the step. From 16 on at most
# a third of the tokens is padding.
_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Steps whose examples are sorted together. A larger window wastes less padding
# and mixes examples less.
_WINDOW = 64


def bucket_widths(max_seq_length: int) -> tuple[int, ...]:
    """Returns the sequence lengths of batches, rising to the longest."""
    widths = [width for width in _WIDTHS if width < max_seq_length]
    return (*widths, max_seq_length)


class TaskBatches:
    """Batches of features held in memory, as pure functions of the step.

    `batch(step)` is `Features.batch`, padded to the smallest width that fits
    the global batch, with `example_weights` float32 `[batch]` and
    `example_numbers` int32 `[batch]` within the global batch. Whole training
    batches also have `part_widths` int32 `[parts]`, the widths of equal parts
    of the rows with examples of similar length.

    In training the order of examples is that of `training_positions`. The
    examples of a window of steps are sorted by width and cut into quarters;
    each batch gets a part of every quarter, so that batches are alike, and
    the batches are shuffled. Windows end with epochs, so that only batches of
    an epoch's last window can have an example twice: the next epoch fills the
    last of them. An evaluation takes each once, the longest first, so that the
    peak of memory is known at once.
    """

    def __init__(
        self,
        features: Features,
        *,
        batch_size: int,
        seed: int,
        widths: tuple[int, ...],
        training: bool = False,
        name_of: Callable[[int], str] = "row {}".format,
    ) -> None:
        """Sorts the rows by length.

        `widths` are the sequence lengths of batches, rising; `name_of` gives
        a row's location for messages.
        """
        require(len(features) > 0, "There are no examples.")
        self.features = features
        self.batch_size = batch_size
        self.seed = seed
        self.widths = widths
        self.training = training
        self.num_steps = -(-len(features) // batch_size)
        self._parts = num_parts(batch_size)
        self.record_name = name_of
        self._lengths = np.minimum(features.lengths, widths[-1])
        self._longest_first = np.argsort(-self._lengths, kind="stable")
        self._window = functools.lru_cache(maxsize=2)(self._sorted_window)

    def record_numbers(self, step: int) -> np.ndarray:
        """Returns the numbers of the rows of a step, `[batch]` or fewer."""
        if not self.training:
            start = step * self.batch_size
            return self._longest_first[start : start + self.batch_size]
        start, end = self._window_of(step)
        return self._window(start, end)[step - start]

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns rows of the global batch of a step; None: all of it.

        Always with the width of the whole batch. Rows beyond the batch are
        padding with weight 0.
        """
        numbers = self.record_numbers(step)
        wanted = np.arange(self.batch_size) if rows is None else np.array(rows)
        real = wanted < len(numbers)
        chosen = numbers[np.where(real, wanted, 0)]
        width = int(self._part_widths(numbers, 1)[0])
        batch = self.features.batch(chosen, width)
        if "label_weights" in batch:
            batch["label_weights"] *= real[:, None]
        if self.training and len(wanted) == self.batch_size:
            batch["part_widths"] = self._part_widths(numbers, self._parts)
        weights = batch.get("example_weights", np.float32(1))
        return batch | {
            "example_weights": weights * real.astype(np.float32),
            "example_numbers": wanted.astype(np.int32),
        }

    def _part_widths(self, numbers: np.ndarray, parts: int) -> np.ndarray:
        """Returns the widths `[parts]` of the parts of a batch."""
        longest = longest_rows(self._lengths[numbers], parts)
        widths = np.array(self.widths, np.int32)
        return widths[np.searchsorted(self.widths, longest)]

    def _window_of(self, step: int) -> tuple[int, int]:
        """Returns the first step of a step's window, and the one after it.

        A batch that spans two epochs belongs to the earlier one.
        """
        size, count = self.batch_size, len(self.features)
        epoch = step * size // count
        first = -(-epoch * count // size)
        start = first + (step - first) // _WINDOW * _WINDOW
        return start, min(start + _WINDOW, -(-(epoch + 1) * count // size))

    def _sorted_window(self, start: int, end: int) -> np.ndarray:
        """Returns the rows `[steps, batch]` of these steps."""
        steps, size = end - start, self.batch_size
        numbers = training_positions(
            np.arange(start * size, end * size), len(self.features), self.seed
        )
        # They are sorted by width, not length: the parts are as narrow, and mix
        # more examples.
        widths = np.searchsorted(self.widths, self._lengths[numbers])
        by_width = np.argsort(widths, kind="stable")
        parts = numbers[by_width].reshape(self._parts, steps, -1)
        # Every other quarter the longest first, so that batches are alike and
        # few combinations of widths occur, each of which is a trace.
        parts[1::2] = parts[1::2, ::-1].copy()
        batches = parts.swapaxes(0, 1).reshape(steps, size)
        order = counter_rng.shuffled_position(
            np.arange(steps), steps, counter_rng.key(self.seed, "window", start)
        )
        return batches[order]
