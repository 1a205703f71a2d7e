"""Exports a SavedModel that takes raw strings, for TensorFlow Serving.

The graph uses only TensorFlow Text operations that released servers have.
Beside it are `README.md`, `assets/` with the tokenizer and the labels, and
`assets.extra/` with warm-up requests and settings for TensorFlow Serving.
"""

import json
import os
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.config import markdown_table, require
from albert_tf.interchange.export.exported_model import (
    ExportedSignature,
    written_signatures,
)
from albert_tf.interchange.export.exported_weights import PRECISIONS
from albert_tf.interchange.export.length_groups import (
    MICRO_BATCH_TOKENS,
    longest_of_groups,
)
from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import flush_files
from albert_tf.io import directories, files
from albert_tf.io.json_files import write_json
from albert_tf.records.example_wire import encode_examples, field
from albert_tf.records.tfrecord import write_records
from albert_tf.text.in_graph import MAX_BYTES

_MODELS = """\
model_config_list {
  config {
    name: "NAME"
    base_path: "/models/NAME"
    model_platform: "tensorflow"
  }
}
"""
# Inputs are not padded: the server would pad with each row's first value, a
# mask of padding with 1.
_BATCHING = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 4 }
pad_variable_length_inputs: false
"""
_MONITORING = """\
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""
# A text of any length; `fill_mask` alone reads the mask as one token.
_WARM_UP_TEXT, _WARM_UP_WORD = "[MASK]", " a"


def export_saved_model(
    loaded: LoadedModel,
    export_dir: str,
    *,
    version: int | None = None,
    precision: str = "float32",
    micro_batch_tokens: int = MICRO_BATCH_TOKENS,
    origin: Mapping[str, str] | None = None,
) -> str:
    """Writes `<export_dir>/<version>/` and returns its path.

    A server that watches the directory sees it only when it is complete: in a
    bucket, which renames no directories, the graph's file comes last.

    Args:
        loaded: the model.
        export_dir: its name is that of the model.
        version: one that is not there; by default one above the highest.
        precision: a row of PRECISIONS, by which the model was loaded.
        micro_batch_tokens: at most this many are computed together.
        origin: rows for the export's README, such as the command.

    Raises:
        UserError: when the version is there, or a head cannot be exported.
        OSError: when writing fails, as on a full disk; nothing is left of the
            version then.
    """
    require(
        files.isdir(export_dir) or not files.exists(export_dir),
        f"{export_dir} is a file; name a directory.",
    )
    target = _version_path(export_dir, version)
    require(
        not files.exists(target),
        f"version={version}: {target} exists, and versions are not replaced; "
        "name another one, or none for the next that is free.",
    )
    module = ServingModule(
        loaded, PRECISIONS[precision].weights, micro_batch_tokens
    )
    name = os.path.basename(os.path.abspath(export_dir))
    facts = {"precision": precision, **(origin or {})}

    def save(directory: str) -> None:
        tf.saved_model.save(module, directory, signatures=module.functions)
        _write_files(directory, module, name, facts)

    if files.is_remote(export_dir):
        with (
            directories.local_directory(target, last="saved_model.pb") as local,
            files.naming(local, local),
        ):
            save(local)
        return target
    return _save_in_new_version(export_dir, version, save)


def _save_in_new_version(
    export_dir: str, version: int | None, save: Callable[[str], None]
) -> str:
    """Calls `save` with a directory and renames that to the version's path.

    Returns the path, another than before where an export at the same time has
    taken the number.
    """
    os.makedirs(export_dir, exist_ok=True)
    # A server ignores names that are no numbers.
    path = os.path.abspath(os.path.join(export_dir, "export"))
    with (
        files.naming(_version_path(export_dir, version), path),
        directories.new_directory(path, shared=True) as temporary,
    ):
        save(temporary)
        flush_files(temporary)
        target = _version_path(export_dir, version)
        os.rename(temporary, target)
    return target


def _version_path(export_dir: str, version: int | None) -> str:
    """Returns the path of a version, by default one above the highest."""
    if version is None:
        names = files.listdir(export_dir) if files.isdir(export_dir) else []
        numbers = (int(name) for name in names if name.isdecimal())
        version = 1 + max(numbers, default=0)
    return os.path.join(export_dir, str(version))


def _write_files(
    directory: str, module: ServingModule, name: str, facts: Mapping[str, str]
) -> None:
    """Writes the files beside the graph, for a model of that name.

    `facts` are rows for the README.
    """
    loaded = module.graph.loaded
    assets = os.path.join(directory, "assets")
    loaded.tokenizer.save(assets, loaded.max_seq_length)
    if loaded.labels:
        write_json(os.path.join(assets, "labels.json"), loaded.labels)
    if loaded.task and loaded.task.columns:
        write_json(os.path.join(assets, "columns.json"), loaded.task.columns)
    if loaded.task and loaded.task.label_separator:
        path = os.path.join(assets, "label_separator.json")
        write_json(path, [loaded.task.label_separator])
    extra = os.path.join(directory, "assets.extra")
    os.makedirs(extra)
    # TensorFlow Serving looks for this name.
    with open(os.path.join(extra, "tf_serving_warmup_requests"), "wb") as file:
        write_records(file, warm_up_requests(module, name))
    quoted = json.dumps(name, ensure_ascii=False)[1:-1]
    # The file is read: asking the module would trace each signature again.
    signatures = written_signatures(directory)
    for path, text in (
        ("assets.extra/models.config", _MODELS.replace("NAME", quoted)),
        ("assets.extra/batching.config", _BATCHING),
        ("assets.extra/monitoring.config", _MONITORING),
        ("README.md", _readme(module, name, signatures, facts)),
    ):
        files.write(os.path.join(directory, path), text.encode())


def warm_up_requests(module: ServingModule, name: str) -> list[bytes]:
    """Returns a serialized PredictionLog for each signature.

    One for each group of lengths where texts are the input.

    The messages (tensorflow_serving/apis/*.proto):

        PredictionLog   6: PredictLog
        PredictLog      1: PredictRequest
        PredictRequest  1: ModelSpec, 2: map entries {1: name, 2: TensorProto}
        ModelSpec       1: name, 3: signature's name
    """
    logs = []
    lengths = longest_of_groups(module.graph.config.max_seq_length)
    for signature, function in module.functions.items():
        spec = field(1, name.encode()) + field(3, signature.encode())
        specs = function.input_signature
        are_grouped = specs[0].dtype == tf.string and signature != "examples"
        for length in lengths if are_grouped else lengths[-1:]:
            request = field(1, spec)
            for of_input in specs:
                value = _input(module, of_input, length, len(specs))
                tensor = tf.make_tensor_proto(value).SerializeToString()
                entry = field(1, of_input.name.encode()) + field(2, tensor)
                request += field(2, entry)
            logs.append(field(6, field(1, request)))
    return logs


def _input(
    module: ServingModule, spec: tf.TensorSpec, length: int, num_inputs: int
) -> np.ndarray:
    """Returns one row for an input, of at most `length` tokens."""
    tokenizer = module.graph.loaded.tokenizer
    ids = np.full(length, tokenizer.pad_id, np.int32)
    ids[:2] = tokenizer.cls_id, tokenizer.sep_id
    mask = np.zeros(length, np.int32)
    mask[:2] = 1
    known = {"input_ids": ids, "input_mask": mask}
    value = known.get(spec.name, np.zeros_like(mask))
    if spec.name == "examples":
        names = [of.name for of in module.functions["tokens"].input_signature]
        columns = {
            name: (known.get(name, np.zeros_like(mask)), np.array([length]))
            for name in names
        }
        value = np.array(encode_examples(columns), object)
    elif spec.dtype == tf.string:
        # Special tokens are one more than texts.
        room = (length - 1) // num_inputs - 1
        begin, word = map(tokenizer.encode, (_WARM_UP_TEXT, _WARM_UP_WORD))
        words = (room - len(begin)) // len(word)
        text = _WARM_UP_TEXT + _WARM_UP_WORD * words
        value = np.array([text.encode()], object)
    return value.reshape([1] * (spec.shape.rank - value.ndim) + [*value.shape])


def _readme(
    module: ServingModule,
    name: str,
    signatures: Mapping[str, ExportedSignature],
    facts: Mapping[str, str],
) -> str:
    loaded = module.graph.loaded
    tokenizer = loaded.tokenizer
    rows = {
        **({"task": loaded.task.task} if loaded.task else {}),
        "truncation": f"a text after {MAX_BYTES:,} bytes of UTF-8, an input "
        f"after {module.graph.config.max_seq_length} tokens",
        "invalid UTF-8": "is read as U+FFFD",
        "positions": f"{loaded.model.config.max_position_embeddings}; more "
        "ids than that are an error",
        "tokenizer": f"`assets/{tokenizer.vocabulary_file}`, fingerprint "
        f"{tokenizer.fingerprint}",
        "TensorFlow": tf.__version__,
        **facts,
    }
    lines = [
        f"# {name}: an {type(loaded.model).__name__}",
        "",
        "A SavedModel that runs without the code that wrote it: in TensorFlow "
        "Serving, or with TensorFlow and TensorFlow Text.",
        "",
        *_signature_tables(module, signatures),
    ]
    if loaded.labels:
        listed = ", ".join(f"`{label}`" for label in loaded.labels)
        lines += [
            "",
            "Labels, in the order of the probabilities "
            f"(`assets/labels.json`): {listed}.",
        ]
    lines += ["", markdown_table(["", ""], rows.items())]
    return "\n".join(lines) + "\n"


def _signature_tables(
    module: ServingModule, signatures: Mapping[str, ExportedSignature]
) -> list[str]:
    """Returns lines on the signatures, and on the meanings of their outputs."""
    rows = []
    named: dict[str, None] = {}
    meanings: dict[str, str] = {}
    for head in module.graph.loaded.model.heads.values():
        meanings |= head.meanings
    for name, described in module.described.items():
        inputs, outputs = signatures[name].inputs, signatures[name].outputs
        named |= dict.fromkeys(outputs)
        meanings |= described.meanings
        shapes = _tensors(inputs), _tensors(outputs)
        rows.append((f"`{name}`", described.purpose, *shapes))
    return [
        markdown_table(["signature", "purpose", "inputs", "outputs"], rows),
        "",
        markdown_table(
            ["output", "meaning"],
            [(f"`{n}`", meanings[n]) for n in named if n in meanings],
        ),
    ]


def _tensors(tensors: Mapping[str, tf.TensorSpec]) -> str:
    """Returns names, types and shapes, the first axis being the batch."""
    listed = []
    for name, tensor in tensors.items():
        sizes = ["any" if size is None else str(size) for size in tensor.shape]
        shape = ", ".join(["batch", *sizes[1:]])
        listed.append(f"`{name}` {tensor.dtype.name} [{shape}]")
    return ", ".join(listed)
