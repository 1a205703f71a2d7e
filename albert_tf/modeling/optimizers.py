"""LAMB and AdamW as Keras optimizers, and the learning-rate schedule.

Both follow the released models' code: decoupled weight decay inside the
update, moments without bias correction unless asked for, layer normalisation
and biases left out of decay and (LAMB) of the layer-wise adaptation. Keras'
own `Lamb` differs in all of that, and matches exclusions against names
("gamma") that no longer tell a layer normalisation apart.
"""

import re

import keras
import numpy as np
from keras import ops

from albert_tf.config import OptimizerConfig

# Variables, by path, that neither decay nor adapt (the original's list).
EXCLUDED_PATTERNS = ("layer_norm", "bias")


class Lamb(keras.optimizers.Optimizer):
    """LAMB (You et al. 2020, algorithm 2) in the form that trained ALBERT.

    m, v are moving averages of g and g². u = m / (√v + ε) + decay · w, and
    w -= lr · r · u with trust ratio r = ‖w‖ / ‖u‖ when both norms are
    positive, else 1. Variables whose path matches a pattern of
    `exclude_from_weight_decay` have no decay; of
    `exclude_from_layer_adaptation`, r = 1.

    With `layer_adaptation` off this is AdamW in the same form.
    """

    def __init__(
        self,
        learning_rate: float | object = 0.00176,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.01,
        bias_correction: bool = False,
        layer_adaptation: bool = True,
        exclude_from_weight_decay: tuple[str, ...] = EXCLUDED_PATTERNS,
        exclude_from_layer_adaptation: tuple[str, ...] = EXCLUDED_PATTERNS,
        name: str = "lamb",
        **kwargs: object,
    ) -> None:
        # The base class' own weight_decay stays off: it acts outside the
        # trust ratio.
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay_rate = weight_decay_rate
        self.bias_correction = bias_correction
        self.layer_adaptation = layer_adaptation
        self.exclude_from_weight_decay_patterns = tuple(
            exclude_from_weight_decay
        )
        self.exclude_from_layer_adaptation_patterns = tuple(
            exclude_from_layer_adaptation
        )

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates both moments of every variable."""
        if self.built:
            return
        super().build(variables)
        self.momentums = []
        self.velocities = []
        self.decays = []
        self.adapts = []
        for variable in variables:
            for slots, slot in (
                (self.momentums, "momentum"),
                (self.velocities, "velocity"),
            ):
                slots.append(
                    self.add_variable_from_reference(
                        reference_variable=variable, name=slot
                    )
                )
            self.decays.append(
                not _matches(
                    variable.path, self.exclude_from_weight_decay_patterns
                )
            )
            self.adapts.append(
                self.layer_adaptation
                and not _matches(
                    variable.path, self.exclude_from_layer_adaptation_patterns
                )
            )

    def _betas(self) -> tuple[float, float]:
        """Returns both decay rates as the update uses them.

        With bias correction the moment and its correction must hold the same
        number: 1 - 0.999 in double precision and 1 - float32(0.999) differ
        by 5e-5 of their value, and the error would not cancel. Without it
        the original multiplies by the double's complement.
        """
        if self.bias_correction:
            return float(np.float32(self.beta_1)), float(
                np.float32(self.beta_2)
            )
        return self.beta_1, self.beta_2

    def update_step(
        self,
        gradient: keras.KerasTensor,
        variable: keras.Variable,
        learning_rate: keras.KerasTensor,
    ) -> None:
        """Updates one variable and its moments."""
        index = self._get_variable_index(variable)
        momentum, velocity = self.momentums[index], self.velocities[index]
        dtype = variable.dtype
        learning_rate = ops.cast(learning_rate, dtype)
        gradient = ops.cast(gradient, dtype)
        beta_1, beta_2 = self._betas()
        m = beta_1 * momentum + (1.0 - beta_1) * gradient
        v = beta_2 * velocity + (1.0 - beta_2) * ops.square(gradient)
        self.assign(momentum, m)
        self.assign(velocity, v)
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, dtype)
            m = m / (1.0 - ops.power(ops.cast(beta_1, dtype), step))
            v = v / (1.0 - ops.power(ops.cast(beta_2, dtype), step))
        update = m / (ops.sqrt(v) + self.epsilon)
        if self.decays[index]:
            update = update + self.weight_decay_rate * variable
        if self.adapts[index]:
            learning_rate = learning_rate * trust_ratio(variable, update)
        self.assign_sub(variable, learning_rate * update)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        config = super().get_config()
        config.update(
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay_rate=self.weight_decay_rate,
            bias_correction=self.bias_correction,
            layer_adaptation=self.layer_adaptation,
            exclude_from_weight_decay=self.exclude_from_weight_decay_patterns,
            exclude_from_layer_adaptation=(
                self.exclude_from_layer_adaptation_patterns
            ),
        )
        return config


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(re.search(pattern, path) for pattern in patterns)


def trust_ratio(
    variable: keras.Variable, update: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns ‖variable‖ / ‖update‖, or 1 where either norm is 0."""
    weight_norm = ops.sqrt(ops.sum(ops.square(variable)))
    update_norm = ops.sqrt(ops.sum(ops.square(update)))
    usable = ops.logical_and(weight_norm > 0, update_norm > 0)
    safe = ops.where(usable, update_norm, ops.ones_like(update_norm))
    return ops.where(usable, weight_norm / safe, ops.ones_like(weight_norm))


def build_optimizer(config: OptimizerConfig) -> Lamb:
    """Returns the optimizer of a configuration, its learning rate unset.

    The learning rate is computed by `learning_rate_at` and handed to
    `update_step`; clipping belongs to the trainer, after the reduction over
    replicas.
    """
    return Lamb(
        learning_rate=config.learning_rate,
        beta_1=config.beta_1,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        weight_decay_rate=config.weight_decay_rate,
        bias_correction=config.bias_correction,
        layer_adaptation=config.optimizer == "lamb",
        name=config.optimizer,
    )


def learning_rate_at(
    step: keras.KerasTensor, config: OptimizerConfig, num_train_steps: int
) -> keras.KerasTensor:
    """Returns the learning rate (scalar float32) of an update.

    Update number n counts from 1, so that the first one moves. Linear warm-up
    to the peak over num_warmup_steps, then polynomial decay over the steps
    that are left, down to 0 after the last: continuous at the joint.
    Differs from google-research/albert: there the decay counts from step 0,
    which makes the rate jump at the joint, and step 0 trains with rate 0.

    Args:
        step: scalar, updates made so far.
        config: the peak rate, warm-up and power.
        num_train_steps: updates of the whole run.
    """
    number = ops.cast(step, "float32") + 1.0
    warmup = float(config.num_warmup_steps)
    decay_steps = max(num_train_steps - warmup, 1.0)
    rising = number / max(warmup, 1.0)
    left = ops.clip(1.0 - (number - 1.0 - warmup) / decay_steps, 0.0, 1.0)
    falling = ops.power(left, config.decay_power)
    return config.learning_rate * ops.where(number < warmup, rising, falling)
