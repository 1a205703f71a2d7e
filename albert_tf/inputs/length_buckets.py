"""Batches of a task's examples, bucketed by length within each batch."""

import functools
import math
from collections.abc import Callable

import numpy as np

from albert_tf.config import UserError
from albert_tf.inputs.input_pipeline import Batch, training_positions
from albert_tf.records import counter_rng
from albert_tf.tasks.features import Features

# Every width is a trace of the step, so there are few. From 16 on at most a
# third of the tokens is padding.
_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Steps whose examples are sorted together. More of them waste less padding,
# and leave less to chance which examples meet.
_WINDOW = 64
# Parts of a batch, from the shortest examples to the longest. Batches of one
# length have noisier gradients and learn more slowly.
_PARTS = 4


def bucket_widths(max_seq_length: int) -> tuple[int, ...]:
    """Returns the widths of batches, the last for the longest examples."""
    widths = [width for width in _WIDTHS if width < max_seq_length]
    return (*widths, max_seq_length)


class TaskBatches:
    """Batches of features held in memory, as pure functions of the step.

    `batch(step)` has what `Features.batch` gives, padded to the least of the
    widths that the global batch fits into, `example_weights` float32
    `[batch]` and `example_numbers` int32 `[batch]` within the global batch;
    whole batches of training also `part_widths` int32 `[parts]`: they have
    equal parts of rows, each of examples of about the same length, which need
    these widths.

    In training the order of examples is that of `training_positions`. A
    window of some steps takes its examples from there, sorts them by the width
    they need and cuts them into parts; each batch gets a part of the shortest
    quarter and one of each longer quarter, so that batches are alike, and are
    shuffled. Windows end where epochs do, so that none has an example twice
    but those of a batch that spans two. In evaluation all examples are sorted,
    the longest first, so that what memory needs is known at once.
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
        """Takes the rows.

        Args:
            features: at least one row.
            batch_size: rows of a global batch.
            seed: of the order.
            widths: that a batch may have, rising.
            training: whether steps go on and on, in an order of their own;
                else each row comes once.
            name_of: where a row comes from, for messages.
        """
        if not len(features):
            raise UserError("There are no examples.")
        self.features = features
        self.batch_size = batch_size
        self.seed = seed
        self.widths = widths
        self.training = training
        self.num_steps = -(-len(features) // batch_size)
        self._parts = math.gcd(batch_size, _PARTS)
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

        They are as wide as the whole batch needs, whatever the rows. Rows
        that the batch has not are padding, of weight 0.
        """
        numbers = self.record_numbers(step)
        wanted = np.arange(self.batch_size) if rows is None else np.array(rows)
        real = wanted < len(numbers)
        weights = real.astype(np.float32)
        chosen = numbers[np.where(real, wanted, 0)]
        batch = self.features.batch(chosen, self.width(step))
        if "label_weights" in batch:
            batch["label_weights"] *= real[:, None]
        if self.training and len(wanted) == self.batch_size:
            batch["part_widths"] = self._part_widths(numbers)
        return batch | {
            "example_weights": weights,
            "example_numbers": wanted.astype(np.int32),
        }

    def width(self, step: int) -> int:
        """Returns how many tokens wide the batch of a step is."""
        longest = self._lengths[self.record_numbers(step)].max()
        return self.widths[np.searchsorted(self.widths, longest)]

    def _part_widths(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the widths `[parts]` that the parts of a batch need."""
        longest = self._lengths[numbers].reshape(self._parts, -1).max(axis=1)
        widths = np.array(self.widths, np.int32)
        return widths[np.searchsorted(self.widths, longest)]

    def _window_of(self, step: int) -> tuple[int, int]:
        """Returns the first step of a step's window, and that after it.

        A batch that spans two epochs is of the earlier.
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
        # By the width they need, and not by their very length: the parts
        # are as narrow, and of more different examples.
        widths = np.searchsorted(self.widths, self._lengths[numbers])
        by_width = np.argsort(widths, kind="stable")
        parts = numbers[by_width].reshape(self._parts, steps, -1)
        # Every other quarter the longest first, to even out the batches. In
        # this order few combinations of widths occur, each of which is a trace.
        parts[1::2] = parts[1::2, ::-1].copy()
        batches = parts.swapaxes(0, 1).reshape(steps, size)
        order = counter_rng.shuffled_position(
            np.arange(steps), steps, counter_rng.key(self.seed, "window", start)
        )
        return batches[order]
