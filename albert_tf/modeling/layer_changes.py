"""Changes made to layers after construction, which a Keras file keeps."""

from collections.abc import Mapping
from typing import Any

import keras


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
