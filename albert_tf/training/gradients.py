"""Loss sums and gradients of a replica's share, one micro-batch at a time."""

from collections.abc import Mapping, Sequence

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

    Several micro-batches go through one compiled loop that adds up; what is
    reduced over replicas happens outside, once.

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
        self._compute = tf.function(
            self._forward_and_backward,
            autograph=False,
            jit_compile=True if xla else None,
        )

    def __call__(
        self,
        features: Features,
        keys: tf.Tensor,
        factors: Mapping[str, tf.Tensor],
        *,
        micro_batch_size: int,
        num_applications: int | None,
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
        """
        rows = keys.shape[0]
        if rows == micro_batch_size:
            return self._compute(features, keys, factors, num_applications)
        parts = rows // micro_batch_size

        def split(value: tf.Tensor) -> tf.Tensor:
            shape = (parts, micro_batch_size, *value.shape[1:])
            return tf.reshape(value, shape)

        split_features = {name: split(v) for name, v in features.items()}
        split_keys = split(keys)

        def compute(number: tf.Tensor | int) -> tuple[dict, list]:
            part = {name: v[number] for name, v in split_features.items()}
            return self._compute(
                part, split_keys[number], factors, num_applications
            )

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
