"""Output formats of models: FORMATS, a row for each.

LiteRT, ONNX and Keras have one file, which takes token ids; the tokenizer's
files are written beside it.
"""

import dataclasses
import functools
import importlib
import os
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from albert_tf.config import ModelConfig, UserError, shares_whole_groups
from albert_tf.interchange import google_tf1, keras_hub
from albert_tf.interchange.model_directory import (
    LoadedModel,
    write_model_directory,
)
from albert_tf.interchange.model_files import (
    FILES,
    MODEL_FILES,
    TASK_FILE,
    TOKENIZER_FILES,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.heads import Head
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.names import file_groups

_LABELS_FILE = "labels.json"


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that models are written in.

    Attributes:
        library: that it belongs to, for messages.
        write: writes the files into an empty directory.
        files: the names of the files that it writes.
        last: the file without which a directory in a bucket is incomplete.
        not_stored: yields a line for each property that the format lacks.
        supports: whether the format has a head of an architecture.
        always_pooler: whether all its models have a pooler; else a model has
            one if the source has.
        package: that writing needs, an optional one.
        stores_task: whether `write` uses the model's TaskRecord.
        hub_library: the name on the hub of what opens the files.
    """

    library: str
    write: Callable[[str, LoadedModel], None]
    files: frozenset[str]
    last: str = pretrained.CONFIG_FILE
    not_stored: Callable[[LoadedModel], Iterator[str]] = lambda _: iter(())
    supports: Callable[[type[Head], ModelConfig], bool] = lambda head, config: (
        True
    )
    always_pooler: bool = False
    package: str = ""
    stores_task: bool = False
    hub_library: str = ""


def _not_stored_by_transformers(loaded: LoadedModel) -> Iterator[str]:
    config = loaded.model.config
    groups = file_groups(config)
    if not shares_whole_groups(config) or groups != config.num_hidden_groups:
        yield (
            f"Not stored: sharing={config.sharing} with "
            f"num_hidden_groups={config.num_hidden_groups}; it is read back "
            f"as sharing=all with num_hidden_groups={groups}."
        )
    yield from google_tf1.pooling_not_stored(config)


def _save_litert(loaded: LoadedModel, path: str, *, int8: bool = False) -> None:
    """Writes the `tokens` signature, with `int8` its matrices as such."""
    weights, function = _tokens(loaded)
    # A converter of the whole module would trace every signature.
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], weights
    )
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    files.write(path, converter.convert())


def _save_onnx(loaded: LoadedModel, path: str) -> None:
    """Writes the `tokens` signature, with tf2onnx; raises UserError.

    It writes operations that ONNX lacks as they are.
    """
    tf2onnx = importlib.import_module("tf2onnx")
    checker = importlib.import_module("onnx.checker")
    _, function = _tokens(loaded)
    tf2onnx.convert.from_function(
        function, function.input_signature, opset=18, output_path=path
    )
    try:
        checker.check_model(path)
    except checker.ValidationError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"The model cannot be written as ONNX: {reason}"
        ) from error


def _tokens(
    loaded: LoadedModel,
) -> tuple[tf.Module, tf.types.experimental.PolymorphicFunction]:
    """Returns the weights and a signature for token ids, without labels.

    It is `states` of a model without a task, else `tokens`.
    """
    # TensorFlow Text, which the module needs, is not needed elsewhere here.
    from albert_tf.interchange.export.serving_module import ServingModule

    # Micro-batches are a loop, which not every runtime has.
    module = ServingModule(loaded, micro_batch_tokens=None)
    described = module.described
    signature = described.get("states", described["tokens"])

    def tokens(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            name: value
            for name, value in signature.call(*inputs).items()
            if value.dtype != tf.string
        }

    function = tf.function(tokens, signature.inputs, autograph=False)
    return module.weights, function


def _one_file(
    library: str,
    name: str,
    save: Callable[[LoadedModel, str], None],
    package: str = "",
) -> Format:
    """Returns the row of a runtime whose models are one file."""

    def write(directory: str, loaded: LoadedModel) -> None:
        save(loaded, os.path.join(directory, name))
        loaded.tokenizer.save(directory, loaded.max_seq_length)
        if loaded.labels:
            write_json(os.path.join(directory, _LABELS_FILE), loaded.labels)
        if loaded.task:
            loaded.task.write(directory)

    return Format(
        library=library,
        write=write,
        files=frozenset((name, _LABELS_FILE, TASK_FILE, *TOKENIZER_FILES)),
        last=name,
        package=package,
        stores_task=True,
        hub_library=library.lower(),
    )


FORMATS: dict[str, Format] = {
    "model_directory": Format(
        library="albert_tf",
        write=write_model_directory,
        files=FILES,
        stores_task=True,
        hub_library="transformers",
    ),
    "huggingface": Format(
        library="transformers",
        write=functools.partial(write_model_directory, own_settings=False),
        files=FILES - {TASK_FILE},
        not_stored=_not_stored_by_transformers,
        hub_library="transformers",
        supports=lambda head, config: (
            head.class_in_transformers(config) != "AlbertModel"
        ),
    ),
    "google_tf1": Format(
        library="google-research/albert",
        write=lambda directory, loaded: google_tf1.write_folder(
            directory, loaded.model, loaded.tokenizer
        ),
        files=google_tf1.FILES,
        last=google_tf1.INDEX_FILE,
        not_stored=lambda loaded: google_tf1.not_stored(
            loaded.model, loaded.max_seq_length
        ),
        supports=google_tf1.supports,
        always_pooler=True,
        hub_library="google-research/albert",
    ),
    "keras_hub": Format(
        library="KerasHub's AlbertBackbone",
        write=keras_hub.save_preset,
        files=keras_hub.FILES,
        not_stored=keras_hub.not_stored,
        supports=lambda head, config: False,
        always_pooler=True,
        package="keras_hub",
        hub_library="keras-hub",
    ),
    "litert": _one_file("LiteRT", "model.tflite", _save_litert),
    "litert_int8": _one_file(
        "LiteRT",
        "model_int8.tflite",
        functools.partial(_save_litert, int8=True),
    ),
    "onnx": _one_file("ONNX", "model.onnx", _save_onnx, package="tf2onnx"),
    # Keras loads it after `albert_tf.models()`.
    "keras": _one_file(
        "Keras", "model.keras", lambda loaded, path: loaded.model.save(path)
    ),
}
# The files of any format, which a conversion may replace.
REPLACEABLE = frozenset().union(*(row.files for row in FORMATS.values()))


def format_at(directory: str, names: Sequence[str]) -> str | None:
    """Returns the row of FORMATS that a directory of these files holds."""
    rows = [
        name
        for name, row in FORMATS.items()
        if not row.files.issuperset(MODEL_FILES)
    ]
    if set(names).issuperset(MODEL_FILES):
        # transformers has files of the same names, but no section of ours.
        values = read_json(os.path.join(directory, pretrained.CONFIG_FILE))
        rows = ["model_directory" if "albert_tf" in values else "huggingface"]
    for name in rows:
        row = FORMATS[name]
        # Without this a README.md alone would be a preset of KerasHub.
        if row.last in names and row.files.issuperset(names):
            return name
    return None
