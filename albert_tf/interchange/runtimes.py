"""Models as one file for other runtimes: LiteRT, ONNX and Keras.

They take token ids, for which the tokenizer's files lie beside them.
"""

import importlib.util
import os
from collections.abc import Callable, Collection

import tensorflow as tf

from albert_tf.config import require
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import replacing_directory
from albert_tf.interchange.task_record import TaskRecord
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.modeling.models import AlbertModel
from albert_tf.text.tokenizer_base import Tokenizer

LABELS_FILE = "labels.json"


def save_litert(loaded: LoadedModel, path: str, *, int8: bool = False) -> None:
    """Writes the `tokens` signature, with `int8` its matrices as such."""
    module, function = _tokens(loaded)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    files.write(path, converter.convert())


def save_onnx(loaded: LoadedModel, path: str) -> None:
    """Writes the `tokens` signature, with tf2onnx."""
    tf2onnx = importlib.import_module("tf2onnx")
    _, function = _tokens(loaded)
    tf2onnx.convert.from_function(
        function, function.input_signature, opset=18, output_path=path
    )


def require_tf2onnx() -> None:
    """Raises UserError where tf2onnx is not installed."""
    require(
        importlib.util.find_spec("tf2onnx") is not None,
        "An ONNX file needs the package tf2onnx: pip install tf2onnx.",
    )


def save_keras(loaded: LoadedModel, path: str) -> None:
    """Writes the model, which Keras loads after `albert_tf.models()`."""
    loaded.model.save(path)


def _tokens(
    loaded: LoadedModel,
) -> tuple[tf.Module, tf.types.experimental.PolymorphicFunction]:
    """Returns the `tokens` signature without labels, and its module."""
    # TensorFlow Text, which the module needs, is not needed elsewhere here.
    from albert_tf.interchange.signatures import ServingModule

    # Micro-batches are a loop, which not every runtime has.
    module = ServingModule(loaded, micro_batch_tokens=None)
    signature = module.described["tokens"]

    def tokens(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            name: value
            for name, value in signature.call(*inputs).items()
            if value.dtype != tf.string
        }

    return module, tf.function(tokens, signature.inputs, autograph=False)


def save_directory(
    name: str,
    write: Callable[[LoadedModel, str], None],
    directory: str,
    model: AlbertModel,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    replaces: Collection[str],
    task: TaskRecord | None = None,
) -> None:
    """Writes a directory of a model's file, its labels and tokenizer.

    Args:
        name: of the model's file.
        write: writes it to a path.
        directory: made, or replaced all at once.
        model: the model.
        tokenizer: the one it was trained with.
        max_seq_length: of its inputs.
        replaces: names in `directory` that are removed.
        task: that the model was fine-tuned for.
    """
    loaded = LoadedModel(model, tokenizer, max_seq_length, task)
    with replacing_directory(directory, name, replaces=replaces) as temporary:
        write(loaded, os.path.join(temporary, name))
        tokenizer.save(temporary, max_seq_length)
        if loaded.labels:
            write_json(os.path.join(temporary, LABELS_FILE), loaded.labels)
