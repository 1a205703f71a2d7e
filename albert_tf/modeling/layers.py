"""Base classes of layers, and the embeddings.

H is hidden_size, E embedding_size.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, from_dict, to_dict
from albert_tf.modeling.dropout import ExampleDropout
from albert_tf.modeling.inputs import infers_shapes

# An architecture, or the dictionary that describes it in a Keras file.
Config = ModelConfig | Mapping

# The package name under which Keras files know these classes.
serializable = keras.saving.register_keras_serializable(package="albert_tf")

ACTIVATIONS: dict[str, Callable] = {
    "gelu": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu_exact": lambda x: keras.activations.gelu(x, approximate=False),
    "relu": keras.activations.relu,
}


def initializer(
    config: ModelConfig, scale: float = 1.0
) -> keras.initializers.Initializer:
    """Returns the truncated normal of the released configuration."""
    return keras.initializers.TruncatedNormal(
        stddev=scale * config.initializer_range
    )


def _sinusoids(stddev: float) -> Callable:
    """Returns the positions of "Attention Is All You Need" (section 3.5).

    Sines in the first half of a row, cosines in the second, scaled to a root
    mean square of `stddev`.
    """

    def table(shape: tuple[int, int], dtype: object = None) -> Tensor:
        rows, width = shape
        rates = 10_000.0 ** (-np.arange(-(-width // 2)) / (width / 2))
        angles = np.arange(rows)[:, None] * rates
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        return ops.cast(stddev * math.sqrt(2) * waves[:, :width], dtype)

    return table


def as_model_config(config: Config) -> ModelConfig:
    """Returns the architecture, also from the dictionary of `get_config`."""
    if isinstance(config, ModelConfig):
        return config
    return from_dict(ModelConfig, config, "a layer's config")


def layer_changes(model: keras.Model) -> dict[str, dict]:
    """Returns the changes made to layers after construction, by path.

    That is what their constructors do not know: that they, or some of their
    variables, are frozen, that they are quantized or have a low-rank adapter
    (LoRA). The path is that within the model, which itself is "".
    """
    found = {}
    for path, layer in _layers_by_path(model).items():
        change: dict[str, Any] = {}
        if not layer.trainable:
            change["trainable"] = False
        if layer.quantization_mode:
            change["quantization"] = {
                "mode": layer.quantization_mode,
                "config": keras.saving.serialize_keras_object(
                    layer.quantization_config
                ),
            }
        if getattr(layer, "lora_enabled", False):
            change["lora"] = {
                "rank": layer.lora_rank,
                "lora_alpha": layer.lora_alpha,
            }
        others = {
            name: variable.trainable
            for name, variable in _own_variables(layer).items()
            if variable.trainable != layer.trainable
        }
        if others:
            change["variables_trainable"] = others
        if change:
            found[path] = change
    return found


def apply_layer_changes(
    model: keras.Model, changes: Mapping[str, Mapping]
) -> None:
    """Makes the changes that `layer_changes` returned of a like model."""
    layers = _layers_by_path(model)
    if any("trainable" in change for change in changes.values()):
        # Each is set with all that is below it, so from above.
        for path, layer in layers.items():
            layer.trainable = changes.get(path, {}).get("trainable", True)
    for path, change in changes.items():
        quantization = change.get("quantization")
        if quantization and not layers[path].quantization_mode:
            config = keras.saving.deserialize_keras_object(
                quantization["config"]
            )
            layers[path].quantize(quantization["mode"], config=config)
        if "lora" in change:
            layers[path].enable_lora(**change["lora"])
        variables = _own_variables(layers[path])
        for name, trainable in change.get("variables_trainable", {}).items():
            variables[name].trainable = trainable


def _layers_by_path(model: keras.Model) -> dict[str, keras.layers.Layer]:
    """Returns the layers that have weights, each before those in it."""
    return {
        layer.path[len(model.path) + 1 :]: layer
        for layer in model._flatten_layers()
        if layer.weights
    }


def _own_variables(layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Returns the weights of a layer by name, without those of its parts."""
    return {
        weight.name: weight
        for weight in layer.weights
        if weight.path == f"{layer.path}/{weight.name}"
    }


class CompositeLayer(keras.layers.Layer):
    """A layer of parts, which are built with it."""

    def build(self, input_shape: object = None) -> None:
        """Creates the weights of the parts that have none yet."""
        for part in self._flatten_layers(include_self=False, recursive=False):
            if not part.built:
                part.build((None, None, getattr(part, "input_width", None)))
        self.built = True


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
        layer = keras.layers.Dense(
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


@serializable
class Embeddings(ConfiguredLayer):
    """Word + position + segment embeddings, normalised: `[batch, seq, E]`."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        config = self.config
        self.layer_norm = self.make_layer_norm(
            input_width=config.embedding_size
        )
        self.dropout = self.make_dropout(config.hidden_dropout_prob)

    def build(self, input_shape: object = None) -> None:
        """Creates the three tables and the normalisation."""
        config = self.config
        normal = positions = initializer(config)
        if config.position_init == "sinusoidal":
            positions = _sinusoids(config.initializer_range)
        for table, rows, initial in (
            ("word_embeddings", config.vocab_size, normal),
            ("token_type_embeddings", config.type_vocab_size, normal),
            ("position_embeddings", config.max_position_embeddings, positions),
        ):
            weight = self.add_weight(
                shape=(rows, config.embedding_size),
                initializer=initial,
                name=table,
            )
            setattr(self, table, weight)
        super().build(input_shape)

    def call(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        """Returns `[batch, seq, E]` for ids `[batch, seq]`."""
        words = ops.take(self.word_embeddings, input_ids, axis=0)
        if self.config.type_vocab_size == 1:
            segment_ids = ops.zeros_like(segment_ids)
        # A product with the one-hot rows: for two segments cheaper than a
        # gather, whose gradient would be a scatter.
        segments = ops.matmul(
            ops.one_hot(
                ops.reshape(segment_ids, (-1,)),
                self.config.type_vocab_size,
                dtype=words.dtype,
            ),
            ops.cast(self.token_type_embeddings, words.dtype),
        )
        segments = ops.reshape(segments, ops.shape(words))
        positions = self._first_positions(words)
        hidden = self.layer_norm(words + segments + positions)
        return self.dropout(hidden, keys=dropout_keys, training=training)

    def _first_positions(self, words: Tensor) -> Tensor:
        """Returns `[1, seq, E]` for words `[batch, seq, E]`."""
        positions = ops.cast(self.position_embeddings, words.dtype)
        length = ops.shape(words)[1]
        if infers_shapes():
            # A stand-in may be longer than the table.
            positions = ops.broadcast_to(positions[:1], ops.shape(words)[1:])
        else:
            positions = positions[:length]
        return ops.expand_dims(positions, 0)
