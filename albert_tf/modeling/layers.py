"""Base classes of layers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from albert_tf.config import ModelConfig, from_dict, to_dict
from albert_tf.modeling.dropout import ExampleDropout

# An architecture, or the dictionary that describes it in a Keras file.
Config = ModelConfig | Mapping

# The package name under which Keras files know these classes.
serializable = keras.saving.register_keras_serializable(package="albert_tf")

ACTIVATIONS: dict[str, Callable] = {
    "gelu": lambda x: keras.activations.gelu(x, approximate=True),
    # ONNX lacks the complementary error function, which Keras' has.
    "gelu_exact": lambda x: 0.5 * x * (1.0 + keras.ops.erf(x * math.sqrt(0.5))),
    "relu": keras.activations.relu,
}


def initializer(
    config: ModelConfig, scale: float = 1.0
) -> keras.initializers.Initializer:
    """Returns the truncated normal of the released configuration."""
    return keras.initializers.TruncatedNormal(
        stddev=scale * config.initializer_range
    )


def as_model_config(config: Config) -> ModelConfig:
    """Returns the architecture, also from the dictionary of `get_config`."""
    if isinstance(config, ModelConfig):
        return config
    return from_dict(ModelConfig, config, "a layer's config")


class CompositeLayer(keras.layers.Layer):
    """A layer of parts, which are built with it."""

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of the parts that have none yet."""
        for part in self._flatten_layers(include_self=False, recursive=False):
            if not part.built:
                part.build((None, None, getattr(part, "input_width", None)))
        self.built = True


class Dense(keras.layers.Dense):
    """Keras' dense layer, whose low-rank adapter learns after a load too."""

    def load_own_variables(self, store: Mapping) -> None:
        """Loads the weights, which an adapter's product was added to.

        Keras then sets both factors to 0, where neither has a gradient.
        """
        a = keras.ops.copy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if a is not None:
            self.lora_kernel_a.assign(a)

    def quantize(
        self,
        mode: str | None = None,
        type_check: bool = True,
        config: object = None,
    ) -> None:
        """Quantizes the weights, which Keras refuses in other subclasses."""
        super().quantize(mode, type_check=False, config=config)


class ConfiguredLayer(CompositeLayer):
    """A layer whose constructor takes the architecture."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = as_model_config(config)

    def make_dense(
        self,
        name: str,
        width: int,
        input_width: int | None = None,
        scale: float = 1.0,
        **options: Any,
    ) -> keras.layers.Dense:
        """Returns a dense layer with ALBERT's initializer, times `scale`.

        It reads hidden states, or vectors of `input_width`.
        """
        layer = Dense(
            width,
            kernel_initializer=initializer(self.config, scale),
            name=name,
            dtype=self.dtype_policy,
            **options,
        )
        layer.input_width = input_width or self.config.hidden_size
        return layer

    def make_layer_norm(
        self, name: str = "layer_norm", input_width: int | None = None
    ) -> keras.layers.LayerNormalization:
        """Returns layer normalisation of hidden states, or as `make_dense`."""
        layer = keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_eps,
            name=name,
            dtype=self.dtype_policy,
        )
        layer.input_width = input_width or self.config.hidden_size
        return layer

    def make_dropout(self, rate: float) -> ExampleDropout:
        """Returns dropout in the layer's precision."""
        return ExampleDropout(rate, dtype=self.dtype_policy)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "config": to_dict(self.config)}
