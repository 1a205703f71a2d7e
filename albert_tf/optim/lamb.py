"""LAMB, and without layer adaptation AdamW, as a Keras optimizer.

They follow the released models' code: decoupled weight decay inside the update,
moments without bias correction by default, layer normalisation and biases
excluded from decay and (LAMB) from layer adaptation. Keras' own `Lamb` differs
in all of that, and matches exclusions against variable names ("gamma"), which
do not identify a layer normalisation.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.kernels import compiled, traced
from albert_tf.optim.sparse_gradients import SparseGradients
from albert_tf.optim.variable_rules import (
    EXCLUDED_PATTERNS,
    check_no_keras_decay,
    exclusions,
    matches,
    path_of,
)

# A variable of more values is updated in one compiled pass over memory. Smaller
# ones are faster uncompiled (a half to three quarters of the time), and
# compiling takes a tenth of a second for every shape.
MAX_UNCOMPILED = 2**15


class _Rule(NamedTuple):
    """What decides a variable's update beside tensors; see Lamb.

    Attributes:
        beta_1, beta_2, epsilon: of the moments.
        decay: the rate of weight decay.
        bias_correction: whether moments are divided by 1 - βᵗ.
        adapts: whether there is a trust ratio.
        large: whether the variable is updated in one compiled pass.
    """

    beta_1: float
    beta_2: float
    epsilon: float
    decay: float
    bias_correction: bool
    adapts: bool
    large: bool


@keras.saving.register_keras_serializable(package="albert_tf")
class Lamb(SparseGradients):
    """LAMB (You et al. 2020, algorithm 2) in the form that trained ALBERT.

    m, v are moving averages of g and g². u = m / (√v + ε) + decay · w, and
    w -= lr · r · u with trust ratio r = ‖w‖ / ‖u‖ when both norms are
    positive, else 1. Variables whose path matches a pattern (a regular
    expression, found anywhere) of `exclude_from_weight_decay` have no decay;
    of `exclude_from_layer_adaptation`, r = 1. `decays` and `adapts` hold the
    result for each variable, in the order of building.

    By default m and v are used uncorrected, as in the released models. With
    `bias_correction` they are divided by 1 - βᵗ first, as in the paper and
    tensorflow-addons. With `layer_adaptation` off this is AdamW.

    Arithmetic and moments are float32 for float16 and bfloat16 variables,
    which could not hold g² nor β. Such variables move only by what their type
    resolves, so mixed precision (float32 variables) trains better. Norms
    neither overflow nor vanish, but g² of a gradient above 1.8e19 is infinite,
    and so is v from then on: u is then decay · w alone.
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
        exclude_from_weight_decay: Sequence[str] = EXCLUDED_PATTERNS,
        exclude_from_layer_adaptation: Sequence[str] = EXCLUDED_PATTERNS,
        name: str = "lamb",
        **kwargs: object,
    ) -> None:
        # It would act beside the update, outside the trust ratio.
        check_no_keras_decay(self, kwargs)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.weight_decay_rate = weight_decay_rate
        self.bias_correction = bias_correction
        self.layer_adaptation = layer_adaptation
        self.exclude_from_weight_decay_patterns = exclusions(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )
        self.exclude_from_layer_adaptation_patterns = exclusions(
            "exclude_from_layer_adaptation", exclude_from_layer_adaptation
        )

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates both moments of every variable, and the trust ratios."""
        if self.built:
            return
        super().build(variables)
        self.momentums = []
        self.velocities = []
        self.last_trust_ratios = []  # None where a variable does not adapt
        undecayed = self.exclude_from_weight_decay_patterns
        unadapted = self.exclude_from_layer_adaptation_patterns
        paths = [path_of(variable) for variable in variables]
        self.decays = [not matches(path, undecayed) for path in paths]
        self.adapts = [
            self.layer_adaptation and not matches(path, unadapted)
            for path in paths
        ]
        for variable, path, adapts in zip(
            variables, paths, self.adapts, strict=True
        ):
            # This is `add_variable_from_reference` for another type.
            prefix = path.replace("/", "_").replace(":", "_")
            add_moment = functools.partial(
                self.add_variable,
                variable.shape,
                dtype=keras.backend.result_type(
                    keras.backend.standardize_dtype(variable.dtype), "float32"
                ),
                layout=getattr(variable, "_layout", None),
            )
            self.momentums.append(add_moment(name=f"{prefix}_momentum"))
            self.velocities.append(add_moment(name=f"{prefix}_velocity"))
            self.last_trust_ratios.append(
                self.add_variable(
                    (), "zeros", "float32", name=f"{prefix}_trust_ratio"
                )
                if adapts
                else None
            )

    def trust_ratios(self) -> dict[str, float]:
        """Returns the last trust ratio of each adapted variable, by path.

        A variable that was never updated has none. Not for use inside a
        compiled function; there read the variables in `last_trust_ratios`,
        which are 0 before the first update.

        Raises:
            ValueError: for two variables with one path.
        """
        ratios: dict[str, float] = {}
        for variable, ratio in zip(
            self._trainable_variables, self.last_trust_ratios, strict=True
        ):
            path = path_of(variable)
            if path in ratios:
                raise ValueError(
                    f"{self.name} was given two variables with the path "
                    f"{path}; give each variable once, and layers "
                    "different names."
                )
            ratios[path] = 0.0
            if ratio is not None:
                ratios[path] = float(ops.convert_to_numpy(ratio))
        return {path: ratio for path, ratio in ratios.items() if ratio}

    def exclude_from_weight_decay(
        self, var_list: list | None = None, var_names: list | None = None
    ) -> None:
        """Raises NotImplementedError: it would act on Keras' own decay."""
        raise NotImplementedError(
            "Lamb chooses variables by path: give it the patterns, "
            "Lamb(exclude_from_weight_decay=[...])."
        )

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        """Updates one variable, its moments and its trust ratio."""
        index = self._get_variable_index(variable)
        momentum, velocity = self.momentums[index], self.velocities[index]
        beta_1, beta_2 = self.beta_1, self.beta_2
        if self.bias_correction:
            # The moment and its correction must use the same number: 1 - 0.999
            # in double precision and 1 - float32(0.999) differ by 5e-5 of
            # their value. Without it the original uses doubles.
            beta_1, beta_2 = np.array([beta_1, beta_2], np.float32).tolist()
        rule = _Rule(
            beta_1,
            beta_2,
            self.epsilon,
            decay=self.weight_decay_rate if self.decays[index] else 0.0,
            bias_correction=self.bias_correction,
            adapts=self.adapts[index],
            large=math.prod(momentum.shape) > MAX_UNCOMPILED,
        )
        m, v, update, ratio = traced(_update, rule)(
            gradient,
            momentum,
            velocity,
            variable,
            learning_rate,
            self.iterations,
        )
        self.assign(momentum, m)
        self.assign(velocity, v)
        if self.adapts[index]:
            self.assign(self.last_trust_ratios[index], ratio)
        self.assign_sub(variable, update)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "weight_decay_rate": self.weight_decay_rate,
            "bias_correction": self.bias_correction,
            "layer_adaptation": self.layer_adaptation,
            "exclude_from_weight_decay": list(
                self.exclude_from_weight_decay_patterns
            ),
            "exclude_from_layer_adaptation": list(
                self.exclude_from_layer_adaptation_patterns
            ),
        }


def _update(
    rule: _Rule,
    gradient: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    weight: Tensor,
    learning_rate: Tensor,
    iterations: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns both moments, what the weight loses, and the trust ratio."""
    dtype = momentum.dtype
    wide_weight = ops.cast(weight, dtype)
    m, v, update = (compiled if rule.large else functools.partial)(
        _moments_and_update, rule
    )(ops.cast(gradient, dtype), momentum, velocity, wide_weight, iterations)
    ratio = None
    if rule.adapts:
        update, ratio = adapt(wide_weight, update)
    update = ops.cast(learning_rate, dtype) * update
    return m, v, ops.cast(update, weight.dtype), ratio


def _moments_and_update(
    rule: _Rule,
    gradient: Tensor,
    momentum: Tensor,
    velocity: Tensor,
    weight: Tensor,
    iterations: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns both moments and the update before layer adaptation."""
    beta_1, beta_2 = rule.beta_1, rule.beta_2
    m = beta_1 * momentum + (1.0 - beta_1) * gradient
    v = beta_2 * velocity + (1.0 - beta_2) * ops.square(gradient)
    first, second = m, v
    if rule.bias_correction:
        step = ops.cast(iterations + 1, m.dtype)
        first = m / (1.0 - ops.power(ops.cast(beta_1, m.dtype), step))
        second = v / (1.0 - ops.power(ops.cast(beta_2, m.dtype), step))
    update = first / (ops.sqrt(second) + rule.epsilon)
    if rule.decay:
        update = update + rule.decay * weight
    return m, v, update


def adapt(weight: Tensor, update: Tensor) -> tuple[Tensor, Tensor]:
    """Returns r · update and r = ‖weight‖ / ‖update‖, 1 if a norm is 0.

    Norms are taken of values divided by the largest one, since float32 holds
    squares of 1e-19 to 1e19 only; and r · update is made from the update's
    direction, so that it is right where r itself is beyond float32.
    """
    weight_size = ops.max(ops.abs(weight), initial=0.0)
    update_size = ops.max(ops.abs(update), initial=0.0)
    usable = ops.logical_and(weight_size > 0.0, update_size > 0.0)
    weight_size = ops.where(usable, weight_size, 1.0)
    update_size = ops.where(usable, update_size, 1.0)
    direction = update / update_size
    norms = [
        ops.sqrt(ops.sum(ops.square(values)))
        for values in (weight / weight_size, direction)
    ]
    length = weight_size * (norms[0] / norms[1])
    length = ops.where(usable, length, 1.0)
    return length * direction, length / update_size
