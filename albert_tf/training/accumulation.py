"""Sums over the rows of a batch, computed one piece after the other.

Micro-batches save memory (gradient accumulation). On one CPU the rows are
first divided into parts of different widths, so that less is padding.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence

import tensorflow as tf

from albert_tf.training.training_loss import WeightedSums

Features = dict[str, tf.Tensor]
# Losses and metrics; and the gradient of each variable that a loss reaches, by
# path.
Results = tuple[WeightedSums, dict[str, tf.Tensor]]
# A function of the features and the keys of some rows.
Compute = Callable[[Features, tf.Tensor], Results]


def accumulate(
    compute: Compute,
    features: Features,
    keys: tf.Tensor,
    *,
    micro_batch_size: int,
    part_widths: Sequence[int],
    sequence_features: Collection[str],
) -> Results:
    """Returns the sums of `compute` over all rows.

    Args:
        compute: what is computed of each piece.
        features: `[rows, ...]`; micro_batch_size divides the rows.
        keys: `[rows]`, of dropout.
        micro_batch_size: rows of a piece; smaller parts are a piece each.
        part_widths: sequence lengths of equal parts of the rows, beyond which
            there is only padding. Empty: all rows are one part.
        sequence_features: the features whose last axis is the sequence.
    """
    num_rows, full = keys.shape[0], features["input_ids"].shape[-1]
    results = []
    for rows, width in _parts(
        num_rows, part_widths or (full,), merge=micro_batch_size == num_rows
    ):
        size, part = rows.stop - rows.start, features
        if size < num_rows or width < full:
            part = {
                name: value[rows, ..., :width]
                if name in sequence_features
                else value[rows]
                for name, value in features.items()
            }
        results.append(
            _over_micro_batches(
                compute, part, keys[rows], min(micro_batch_size, size)
            )
        )
    return functools.reduce(_add, results)


def _parts(
    num_rows: int, widths: Sequence[int], *, merge: bool
) -> Iterator[tuple[slice, int]]:
    """Yields rows and width of each part, or of merged parts of one width."""
    runs = [[width] for width in widths]
    if merge:
        runs = [list(run) for _, run in itertools.groupby(widths)]
    part_size, start = num_rows // len(widths), 0
    for run in runs:
        stop = start + len(run) * part_size
        yield slice(start, stop), run[0]
        start = stop


def _over_micro_batches(
    compute: Compute, features: Features, keys: tf.Tensor, size: int
) -> Results:
    """Returns the sums over the micro-batches of rows of one width."""
    num_micro_batches = keys.shape[0] // size
    if num_micro_batches == 1:
        return compute(features, keys)

    def split(value: tf.Tensor) -> tf.Tensor:
        return tf.reshape(value, (num_micro_batches, size, *value.shape[1:]))

    stack = tf.nest.map_structure(split, (features, keys))

    def results_of(index: tf.Tensor | int) -> Results:
        return compute(*tf.nest.map_structure(lambda v: v[index], stack))

    _, results = tf.while_loop(
        lambda index, _: index < num_micro_batches,
        lambda index, total: (index + 1, _add(total, results_of(index))),
        (tf.constant(1), results_of(0)),
        parallel_iterations=1,
    )
    return results


def _add(total: Results, more: Results) -> Results:
    return tf.nest.map_structure(tf.add, total, more)
