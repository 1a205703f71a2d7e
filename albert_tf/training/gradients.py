"""Losses and gradients of a replica's batch, with gradient accumulation."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from albert_tf.training.training_loss import TrainingLoss, WeightedSums

Features = dict[str, tf.Tensor]
# Losses and metrics; and the gradient of each variable that a loss reaches, by
# path.
Results = tuple[WeightedSums, dict[str, tf.Tensor]]


def as_float32(sums: WeightedSums) -> WeightedSums:
    """Returns the sums and weights in float32, whatever the precision."""
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), sums)


class TracePerShape:
    """A function that is compiled separately for each shape of batches.

    A single tf.function would warn of its many traces; with `reduce_retracing`
    it would relax them, and sum in another order than a resumed run, which has
    seen other shapes.
    """

    def __init__(self, function: Callable, *, xla: bool = False) -> None:
        self._function = function
        self._xla = xla
        self._by_shape: dict[tuple, Callable] = {}

    def __call__(
        self, shape: Sequence[int], *args: object, **options: object
    ) -> Any:
        """Returns the result, by the trace for the batch's shape and options.

        `shape` is that of `input_ids`; the other arguments are the function's.
        """
        key = tuple(shape), tuple(options.items())
        if key not in self._by_shape:
            # TensorFlow counts the traces of functions with the same code
            # together, and warns of several; a partial has no code.
            self._by_shape[key] = tf.function(
                functools.partial(self._function, **options),
                autograph=False,
                jit_compile=True if self._xla else None,
            )
        return self._by_shape[key](*args)


class GradientComputation:
    """Forward and backward pass of a replica's batch.

    Micro-batches go through one compiled loop (gradient accumulation), parts
    of the rows with different widths one after the other. Nothing is reduced
    over replicas.
    """

    def __init__(
        self,
        model: keras.Model,
        training_loss: TrainingLoss,
        variables: Sequence[keras.Variable],
        *,
        xla: bool,
    ) -> None:
        """Prepares the gradients of `variables`; XLA compiles the whole."""
        self._model = model
        self._training_loss = training_loss
        self._variables = list(variables)
        self._compute = TracePerShape(self._forward_and_backward, xla=xla)

    def __call__(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        *,
        micro_batch_size: int,
        num_applications: int | None,
        part_widths: Sequence[int] = (),
    ) -> Results:
        """Returns losses, metrics and gradients over all rows.

        Args:
            features: `[rows, ...]`; micro_batch_size divides the rows.
            keys: `[rows]`, of dropout.
            factors: the multiplier of each loss's sum, by its name; others
                are reported only.
            num_applications: of the model's blocks; None: all.
            part_widths: sequence lengths of equal parts of the rows, beyond
                which there is only padding. Empty: all rows are one part.
        """
        num_rows, full = keys.shape[0], features["input_ids"].shape[-1]

        def compute(features: Features, keys: tf.Tensor) -> Results:
            return self._compute(
                features["input_ids"].shape,
                features,
                keys,
                factors,
                num_applications=num_applications,
            )

        results = []
        for rows, width in _parts(
            num_rows, part_widths or (full,), merge=micro_batch_size == num_rows
        ):
            size = rows.stop - rows.start
            cut = features
            if size < num_rows or width < full:
                cut = self._cut(features, rows, width)
            results.append(
                _accumulate(
                    compute, cut, keys[rows], min(micro_batch_size, size)
                )
            )
        return functools.reduce(_add, results)

    def _cut(self, features: Features, rows: slice, width: int) -> Features:
        """Returns rows of the features, sequences cut to a width."""
        sequences = self._training_loss.sequence_features
        return {
            name: value[rows, ..., :width] if name in sequences else value[rows]
            for name, value in features.items()
        }

    def _forward_and_backward(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        num_applications: int | None,
    ) -> Results:
        with tf.GradientTape() as tape:
            outputs = self._model(
                features,
                dropout_keys=keys,
                training=True,
                heads_only=True,
                num_applications=num_applications,
            )
            losses = self._training_loss.losses(outputs, features)
            loss = self._training_loss.minimized(losses, factors)
        gradients = tape.gradient(
            loss, {v.path: v.value for v in self._variables}
        )
        metrics = self._training_loss.metrics(outputs, features)
        return as_float32({**losses, **metrics}), {
            path: tf.convert_to_tensor(gradient)
            for path, gradient in gradients.items()
            if gradient is not None
        }


def _accumulate(
    compute: Callable[[Features, tf.Tensor], Results],
    features: Features,
    keys: tf.Tensor,
    micro_batch_size: int,
) -> Results:
    """Returns the sums over the micro-batches of rows of one width."""
    num_micro_batches = keys.shape[0] // micro_batch_size
    if num_micro_batches == 1:
        return compute(features, keys)

    def split(value: tf.Tensor) -> tf.Tensor:
        shape = (num_micro_batches, micro_batch_size, *value.shape[1:])
        return tf.reshape(value, shape)

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
