"""Loss sums and gradients of a replica's share, one micro-batch at a time."""

import collections
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import keras
import tensorflow as tf

Features = Mapping[str, tf.Tensor]


def named_pairs(pairs: Mapping[str, tuple]) -> dict[str, tf.Tensor]:
    """Returns (weighted sum, weight) pairs as `sum:` and `weight:` scalars."""
    found = {}
    for name, (value, weight) in pairs.items():
        found[f"sum:{name}"] = tf.cast(value, tf.float32)
        found[f"weight:{name}"] = tf.cast(weight, tf.float32)
    return found


class GradientComputation:
    """Forward and backward of the rows that a replica holds.

    Several micro-batches go through one compiled loop (gradient accumulation),
    parts of the rows of several widths one after the other; what is reduced
    over replicas happens outside, once.

    Args:
        model: the Keras model.
        objective: see trainer.Objective.
        variables: with respect to which the gradients are taken.
        xla: whether XLA compiles forward and backward.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: object,
        variables: Sequence[keras.Variable],
        *,
        xla: bool,
    ) -> None:
        self._model = model
        self._objective = objective
        self._variables = list(variables)
        self._jit_compile = True if xla else None
        # By width: TensorFlow would warn of many traces of one function.
        self._compute = collections.defaultdict(self._function)

    def _function(self) -> Callable:
        """Returns forward and backward as a compiled function of its own."""
        return tf.function(
            functools.partial(self._forward_and_backward),
            autograph=False,
            jit_compile=self._jit_compile,
        )

    def __call__(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        *,
        micro_batch_size: int,
        num_applications: int | None,
        part_widths: Sequence[int] = (),
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor | None]]:
        """Returns `sum:` and `weight:` scalars, and a gradient per variable.

        Both are sums over the rows. None stands for the gradient of a
        variable that no loss reaches.

        Args:
            features: `[rows, ...]`; micro_batch_size divides the rows.
            keys: `[rows]`, of dropout.
            factors: what each loss's sum is multiplied with, by its name.
            micro_batch_size: rows at a time.
            num_applications: of the model's blocks; None: all.
            part_widths: of equal parts of the rows; what is beyond them is
                padding. Empty: all rows are one part.
        """
        rows, full = keys.shape[0], features["input_ids"].shape[-1]
        widths = part_widths or (full,)
        share = rows // len(widths)
        parts = [(width, share) for width in widths]
        if micro_batch_size == rows:
            # Neighbours of one width are one part.
            parts = [
                (width, share * len(list(group)))
                for width, group in itertools.groupby(widths)
            ]
        sums: dict[str, tf.Tensor] = {}
        totals: list[tf.Tensor | None] = []
        first = 0
        for width, size in parts:
            of_part = slice(first, first + size)
            first += size
            more, gradients = self._accumulated(
                {
                    name: value[of_part, ..., :width]
                    if len(value.shape) > 1 and value.shape[-1] == full
                    else value[of_part]
                    for name, value in features.items()
                }
                if size < rows
                else features,
                keys[of_part],
                functools.partial(
                    self._compute[width],
                    factors=factors,
                    num_applications=num_applications,
                ),
                min(micro_batch_size, size),
            )
            sums = {n: sums[n] + v if sums else v for n, v in more.items()}
            totals = [
                gradient if total is None else total + gradient
                for total, gradient in zip(
                    totals or [None] * len(gradients), gradients, strict=True
                )
            ]
        return sums, totals

    def _accumulated(
        self,
        features: Features,
        keys: tf.Tensor,
        compute_part: Callable,
        micro_batch_size: int,
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor | None]]:
        """Returns the sums over micro-batches of rows of one width."""
        rows = keys.shape[0]
        if rows == micro_batch_size:
            return compute_part(features, keys)
        parts = rows // micro_batch_size

        def split(value: tf.Tensor) -> tf.Tensor:
            shape = (parts, micro_batch_size, *value.shape[1:])
            return tf.reshape(value, shape)

        split_features = {name: split(v) for name, v in features.items()}
        split_keys = split(keys)

        def compute(number: tf.Tensor | int) -> tuple[dict, list]:
            part = {name: v[number] for name, v in split_features.items()}
            return compute_part(part, split_keys[number])

        # The first one says which variables are reached.
        sums, gradients = compute(0)
        reached = [gradient is not None for gradient in gradients]

        def add(number: tf.Tensor, totals: tuple) -> tuple:
            more_sums, more_gradients = compute(number)
            added = (
                {name: totals[0][name] + v for name, v in more_sums.items()},
                [
                    total + gradient
                    for total, gradient in zip(
                        totals[1], _present(more_gradients), strict=True
                    )
                ],
            )
            return number + 1, added

        _, (sums, summed) = tf.while_loop(
            lambda number, _: number < parts,
            add,
            (tf.constant(1), (sums, _present(gradients))),
            parallel_iterations=1,
        )
        remaining = iter(summed)
        return sums, [next(remaining) if is_in else None for is_in in reached]

    def _forward_and_backward(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        num_applications: int | None,
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor | None]]:
        with tf.GradientTape() as tape:
            outputs = self._model(
                features,
                dropout_keys=keys,
                training=True,
                heads_only=True,
                num_applications=num_applications,
            )
            losses = self._objective.losses(outputs, features)
            loss = tf.add_n(
                [value * factors[name] for name, (value, _) in losses.items()]
            )
        found = tape.gradient(loss, [v.value for v in self._variables])
        metrics = self._objective.metrics(outputs, features)
        return named_pairs({**losses, **metrics}), [
            None if gradient is None else tf.convert_to_tensor(gradient)
            for gradient in found
        ]


def _present(gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor]:
    return [gradient for gradient in gradients if gradient is not None]
