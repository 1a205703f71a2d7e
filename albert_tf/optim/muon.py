"""Muon and NorMuon as Keras optimizers."""

import re
import types
from collections.abc import Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.optim.sparse_gradients import SparseGradients
from albert_tf.optim.variable_rules import (
    EXCLUDED_PATTERNS,
    KERAS_DECAYS,
    check_no_keras_decay,
    exclusions,
    matches,
)


@keras.saving.register_keras_serializable(package="albert_tf")
class Muon(SparseGradients, keras.optimizers.Muon):
    """Muon (Jordan et al. 2024) with decoupled weight decay by path.

    Matrices move along the momentum made orthogonal, scaled to a root mean
    square of 0.2 of the learning rate (Liu et al. 2025), so that one rate
    serves them and the embeddings and vectors, which AdamW updates. The matrix
    products of making it orthogonal have `compute_dtype`; Jordan et al. use
    bfloat16.
    """

    def __init__(
        self,
        learning_rate: float | object = 0.004,
        weight_decay_rate: float = 0.01,
        exclude_from_weight_decay: Sequence[str] = EXCLUDED_PATTERNS,
        compute_dtype: str = "float32",
        name: str = "muon",
        **kwargs: object,
    ) -> None:
        # Keras' own decays would apply beside the update, to every variable.
        own: dict[str, object] = dict.fromkeys(KERAS_DECAYS)
        check_no_keras_decay(self, kwargs)
        super().__init__(learning_rate, name=name, **{**kwargs, **own})
        self.weight_decay_rate = weight_decay_rate
        self.exclude_from_weight_decay_patterns = exclusions(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )
        self.compute_dtype = compute_dtype

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the moments of every variable."""
        super().build(variables)
        patterns = self.exclude_from_weight_decay_patterns
        self.decays = [not matches(v.path, patterns) for v in variables]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        """Updates one variable and its moments."""
        if self.decays[self._get_variable_index(variable)]:
            decay = ops.cast(learning_rate, variable.dtype)
            decay = decay * self.weight_decay_rate
            self.assign_sub(variable, decay * variable)
        super().update_step(gradient, variable, learning_rate)

    def _should_use_adamw(self, variable: keras.Variable) -> bool:
        if any(re.search(p, variable.path) for p in self.exclude_layers):
            return True
        # A model's name, which a user chooses, comes before that of a layer.
        rest = variable.path.partition("/")[2]
        path = rest if "/" in rest else variable.path
        return super()._should_use_adamw(
            types.SimpleNamespace(shape=variable.shape, path=path)
        )

    def zeropower_via_newtonschulz5(self, x: Tensor, steps: int) -> Tensor:
        """Returns `x`, `[inputs, outputs]`, made nearly orthogonal.

        Its type is that of `x`; the products are computed in `compute_dtype`.
        """
        # float16 cannot hold the norm of large gradients, so it becomes 1.
        unit = x / (ops.norm(x) + 1e-7)
        result = super().zeropower_via_newtonschulz5(
            ops.cast(unit, self.compute_dtype), steps
        )
        return ops.cast(result, x.dtype)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "exclude_from_weight_decay": list(
                self.exclude_from_weight_decay_patterns
            ),
            "compute_dtype": self.compute_dtype,
        }


@keras.saving.register_keras_serializable(package="albert_tf")
class NorMuon(Muon):
    """NorMuon (Li et al. 2025, algorithm 1): Muon with a rate for each neuron.

    Muon moves some of a matrix's outputs much farther than others. Here those
    of each output (a column of the kernel) are divided by the root of v, a
    moving average of their mean square, and all of them by one number: their
    root mean square is 0.2 of the learning rate.
    """

    def __init__(
        self,
        learning_rate: float | object = 0.004,
        neuron_beta: float = 0.95,
        name: str = "normuon",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, name=name, **kwargs)
        self.neuron_beta = neuron_beta

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates the moments of every variable and every neuron."""
        if self.built:
            return
        super().build(variables)
        self.neuron_velocities = [
            self.add_variable(
                variable.shape[1:],
                dtype=variable.dtype,
                name=f"{variable.path.replace('/', '_')}_neuron_velocity",
            )
            if velocity is None
            else None
            for variable, velocity in zip(
                variables, self.adam_velocities, strict=True
            )
        ]

    def _muon_update_step(
        self,
        gradient: Tensor,
        variable: keras.Variable,
        learning_rate: Tensor,
        momentum: keras.Variable,
    ) -> None:
        velocity = self.neuron_velocities[self._get_variable_index(variable)]
        beta = self.neuron_beta
        self.assign(momentum, self.momentum * momentum + gradient)
        ahead = gradient + self.momentum * momentum
        update = self.zeropower_via_newtonschulz5(
            ahead if self.nesterov else momentum, self.ns_steps
        )
        square = ops.mean(ops.square(update), axis=0)
        self.assign(velocity, beta * velocity + (1.0 - beta) * square)
        # Without a gradient the update is 0.
        update = update / (ops.sqrt(velocity) + self.epsilon)
        size = ops.sqrt(ops.mean(ops.square(update))) + self.epsilon
        self.assign_sub(variable, learning_rate * self.rms_rate / size * update)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "neuron_beta": self.neuron_beta}
