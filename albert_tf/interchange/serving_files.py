"""Files of an export beside its graph.

`README.md`, `assets/` with the tokenizer and the labels, and `assets.extra/`
with warm-up requests and settings for TensorFlow Serving.
"""

import json
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.interchange.length_groups import longest_of_groups
from albert_tf.interchange.signatures import MEANINGS, ServingModule
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.records.example_wire import encode_examples, field
from albert_tf.records.tfrecord import write_records

_MODELS = """\
model_config_list {
  config {
    name: "%s"
    base_path: "/models/%s"
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
_MAX_LISTED_LABELS = 100


def write_serving_files(
    directory: str,
    module: ServingModule,
    name: str,
    origin: Mapping[str, str],
) -> None:
    """Writes the files into the directory of a SavedModel.

    Args:
        directory: on disk.
        module: the model that was exported.
        name: under which a server is to serve it.
        origin: rows for the README.
    """
    loaded = module.graph.loaded
    assets = os.path.join(directory, "assets")
    loaded.tokenizer.save(assets, loaded.model.config.max_position_embeddings)
    if loaded.labels:
        write_json(os.path.join(assets, "labels.json"), loaded.labels)
    extra = os.path.join(directory, "assets.extra")
    os.makedirs(extra)
    # TensorFlow Serving looks for this name.
    with open(os.path.join(extra, "tf_serving_warmup_requests"), "wb") as file:
        write_records(file, warm_up_requests(module, name))
    quoted = json.dumps(name, ensure_ascii=False)[1:-1]
    for path, text in (
        ("assets.extra/models.config", _MODELS % ((quoted,) * 2)),
        ("assets.extra/batching.config", _BATCHING),
        ("assets.extra/monitoring.config", _MONITORING),
        ("README.md", readme(module, name, origin)),
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
        texts = [s for s in specs if s.dtype == tf.string]
        are_grouped = texts and texts[0].name != "examples"
        for length in lengths if are_grouped else lengths[-1:]:
            inputs = [
                field(1, spec_of.name.encode())
                + field(2, tf.make_tensor_proto(value).SerializeToString())
                for spec_of, value in _inputs(module, specs, length)
            ]
            request = field(1, spec) + b"".join(field(2, i) for i in inputs)
            logs.append(field(6, field(1, request)))
    return logs


def _inputs(
    module: ServingModule, specs: tuple[tf.TensorSpec, ...], length: int
) -> list[tuple[tf.TensorSpec, np.ndarray]]:
    """Returns a row for each input, of as many tokens as have room."""
    tokenizer = module.graph.loaded.tokenizer
    # Special tokens are one more than texts.
    room = (length - 1) // len(specs) - 1
    begin, word = map(tokenizer.encode, (_WARM_UP_TEXT, _WARM_UP_WORD))
    text = _WARM_UP_TEXT + _WARM_UP_WORD * ((room - len(begin)) // len(word))
    rows = np.zeros((2, length), np.int32)
    rows[0] = tokenizer.pad_id
    rows[:, :2] = [[tokenizer.cls_id, tokenizer.sep_id], [1, 1]]
    known = dict(zip(("input_ids", "input_mask"), rows, strict=True))
    found = []
    for spec in specs:
        value: np.ndarray = known.get(spec.name, np.zeros_like(rows[0]))
        if spec.name == "examples":
            columns = {n: (v, np.array([len(v)])) for n, v in known.items()}
            value = np.array(encode_examples(columns), object)
        elif spec.dtype == tf.string:
            value = np.array([text.encode()], object)
        axes = tuple(range(spec.shape.rank - value.ndim))
        found.append((spec, np.expand_dims(value, axes)))
    return found


def readme(module: ServingModule, name: str, origin: Mapping[str, str]) -> str:
    """Returns the export's README.md."""
    graph, loaded = module.graph, module.graph.loaded
    lines = [
        f"# {name}: an {type(loaded.model).__name__}",
        "",
        "A SavedModel that runs without the code that wrote it: in TensorFlow "
        "Serving, or with TensorFlow and TensorFlow Text.",
        "",
        "| signature | purpose | inputs | outputs |",
        "|---|---|---|---|",
    ]
    named: dict[str, None] = {}
    for signature, function in module.functions.items():
        outputs = function.get_concrete_function().structured_outputs
        named |= dict.fromkeys(outputs)
        inputs = {spec.name: spec for spec in function.input_signature}
        lines.append(
            f"| `{signature}` | {module.described[signature].purpose} | "
            f"{_tensors(inputs)} | {_tensors(outputs)} |"
        )
    lines += ["", "| output | meaning |", "|---|---|"]
    lines += [f"| `{n}` | {MEANINGS[n]} |" for n in named if n in MEANINGS]
    if labels := loaded.labels:
        listed = ", ".join(
            f"`{label}`" for label in labels[:_MAX_LISTED_LABELS]
        )
        more = ", ..." if len(labels) > _MAX_LISTED_LABELS else ""
        lines += [
            "",
            "Labels, in the order of the probabilities "
            f"(`assets/labels.json`): {listed}{more}.",
        ]
    task = {"task": loaded.task.task} if loaded.task else {}
    facts = {
        **task,
        "truncation": f"a text after {graph.tokenizer.max_bytes:,} bytes of "
        f"UTF-8, an input after {graph.config.max_seq_length} tokens",
        "invalid UTF-8": "is read as U+FFFD",
        "positions": f"{loaded.model.config.max_position_embeddings}; more "
        "ids than that are an error",
        "tokenizer": f"`assets/{loaded.tokenizer.vocabulary_file}`, "
        f"fingerprint {loaded.tokenizer.fingerprint}",
        "TensorFlow": tf.__version__,
        **origin,
    }
    lines += ["", "| | |", "|---|---|"]
    lines += [
        f"| {key} | {value.replace('|', '&#124;')} |"
        for key, value in facts.items()
    ]
    return "\n".join(lines) + "\n"


def _tensors(tensors: Mapping[str, tf.TensorSpec | tf.Tensor]) -> str:
    return ", ".join(
        f"`{name}` {tensor.dtype.name} [{_shape(tensor.shape)}]"
        for name, tensor in sorted(tensors.items())
    )


def _shape(shape: tf.TensorShape) -> str:
    sizes = ["any" if size is None else str(size) for size in shape]
    return ", ".join(["batch", *sizes[1:]])
