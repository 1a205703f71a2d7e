"""Loads exports of `bin.export` and calls their signatures by name.

Only the SavedModel itself is run, none of this project's models or tokenizers.
A SavedModel is a program: load only those that you trust.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizers' operations)
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from albert_tf.config import UserError, lookup, require, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_json_list
from albert_tf.io.tensorflow_messages import reason_of

# Begins the message of a failed assertion.
_ASSERTION = "assertion failed: ["
_GRAPH = "saved_model.pb"
_DEFAULT = "serving_default"
_INIT = "__saved_model_init_op"
# Bytes of a request of one row that is one micro-batch; more may be several,
# which other threads compute at the same time.
_SHORT = 1024
_CALLERS_THREAD = -1
# Faults of records, in TensorFlow's messages.
_UNPARSED = "Could not parse example input, value: '"
_WRONG_TYPE = re.compile(
    r"Key: (.*), Index: (\d+)\..* Expected type: (\w+), Actual type: (\w+)"
)
# Kinds of NumPy arrays that an input's type takes, without loss.
_TAKEN = {"i": "iu", "u": "iu", "f": "iuf"}


@dataclasses.dataclass(frozen=True)
class ExportedSignature:
    """Inputs and outputs of a signature, by name.

    Attributes:
        inputs: their types and shapes.
        outputs: likewise.
        definition: the entry of the SavedModel.
    """

    inputs: Mapping[str, tf.TensorSpec]
    outputs: Mapping[str, tf.TensorSpec]
    definition: SignatureDef

    @functools.cached_property
    def tensors(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the inputs' and the outputs' tensors, in their order."""
        inputs, outputs = self.definition.inputs, self.definition.outputs
        return (
            tuple(inputs[name].name for name in self.inputs),
            tuple(outputs[name].name for name in self.outputs),
        )


class ExportedModel:
    """An export, loaded.

    Attributes:
        path: the directory of the version.
        name: the name of the export, that of the directory above.
        version: its number; 1 where the directory's name is no number.
        signatures: by name, `serving_default` first.
        labels: of the classes, in the order of the probabilities; empty for
            models without.
        columns: of the task, as `--columns` has them; empty if unknown.
        label_separator: between several labels in one text; empty if unknown.

    Args:
        export_dir: `<export_dir>/<version>`, or `<export_dir>` for its
            highest version.

    Raises:
        UserError: when there is no export, or it cannot be loaded.
    """

    def __init__(self, export_dir: str) -> None:
        self.path = find_version(export_dir)
        whole = self.path.rstrip("/")
        if not files.is_remote(whole):
            whole = os.path.abspath(self.path)
        above, last = os.path.split(whole)
        self.version = int(last) if last.isdecimal() else 1
        self.name = os.path.basename(above) if last.isdecimal() else last
        try:
            model = _meta_graph(self.path)
            self.signatures = _signatures(self.path, model)
            # Each is optimized when it is first called, some 0.5 s.
            self._callable = functools.cache(
                functools.partial(_callable, _session(self.path, model))
            )
            self.labels = _names(self.path, "labels.json")
            self.columns = _names(self.path, "columns.json")
            separators = _names(self.path, "label_separator.json")
            self.label_separator = "".join(separators)
        except UserError:
            raise
        except (OSError, ValueError, DecodeError, tf.errors.OpError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"{self.path} cannot be loaded: {reason}; export the model "
                "again."
            ) from None

    def checked_inputs(
        self, signature: str, inputs: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Returns arrays of the signature's types, those of strings of bytes.

        Args:
            signature: its name.
            inputs: by name; arrays, or nested lists. Strings are str or bytes.

        Raises:
            UserError: when there is no such signature, or names, types,
                shapes or numbers of rows are not those of its inputs.
        """
        specs = lookup(self.signatures, signature, "signature").inputs
        require(
            inputs.keys() == specs.keys(),
            f"Signature {signature!r} takes the inputs {', '.join(specs)}; "
            f"got {shown(', '.join(map(str, inputs)) or 'none')}.",
        )
        arrays = {name: _array(specs[name], inputs[name]) for name in specs}
        rows = {name: len(array) for name, array in arrays.items()}
        require(
            len(set(rows.values())) == 1,
            "Expected as many rows in every input; got "
            + ", ".join(f"{number} in {name}" for name, number in rows.items())
            + ".",
        )
        return arrays

    def call(
        self, signature: str, inputs: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature by name, strings as bytes.

        Raises:
            UserError: as in `checked_inputs`, and when the model refuses the
                values, such as an id beyond the vocabulary.
        """
        arrays = self.checked_inputs(signature, inputs)
        found = self.signatures[signature]
        is_short = all(map(_is_short, arrays.values()))
        run = self._callable(*found.tensors, is_short)
        try:
            outputs = run(*arrays.values())
        except tf.errors.InvalidArgumentError as error:
            reason = _reason(error.message, arrays)
        except UnicodeDecodeError as error:
            # The message, which has bytes of an input.
            reason = _reason(error.object.decode(errors="replace"), arrays)
        else:
            return dict(zip(found.outputs, outputs, strict=True))
        raise UserError(f"The model refuses its input: {reason}.")


def find_version(export_dir: str) -> str:
    """Returns the directory of an export's version, by default the highest.

    Raises:
        UserError: when there is none.
    """
    names = files.listdir(export_dir) if files.isdir(export_dir) else []
    if _GRAPH in names:
        return export_dir
    versions = [
        name
        for name in names
        if name.isdecimal()
        and files.isfile(os.path.join(export_dir, name, _GRAPH))
    ]
    require(
        bool(versions),
        f"{export_dir} is no export: expected {export_dir}/<version>/{_GRAPH}, "
        "as python -m bin.export --model_dir=... --export_dir=... writes it.",
    )
    return os.path.join(export_dir, max(versions, key=int))


def written_signatures(path: str) -> dict[str, ExportedSignature]:
    """Returns the signatures of the version in a directory, by name."""
    return _signatures(path, _meta_graph(path))


def _session(path: str, model: MetaGraphDef) -> tf.compat.v1.Session:
    """Returns a session with the model, as TensorFlow Serving runs it.

    A single text takes two thirds of the time that a function of
    `tf.saved_model.load` takes (RESULTS.md).
    """
    threading = tf.config.threading
    session = tf.compat.v1.Session(
        graph=tf.Graph(),
        config=tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=(
                threading.get_intra_op_parallelism_threads()
            ),
            inter_op_parallelism_threads=(
                threading.get_inter_op_parallelism_threads()
            ),
        ),
    )
    with session.graph.as_default():
        tf.graph_util.import_graph_def(model.graph_def, name="")
    variables = os.path.join(path, "variables", "variables")
    saver = model.saver_def
    session.run(saver.restore_op_name, {saver.filename_tensor_name: variables})
    session.run(model.signature_def[_INIT].outputs[_INIT].name)
    return session


def _callable(
    session: tf.compat.v1.Session,
    feed: tuple[str, ...],
    fetch: tuple[str, ...],
    short: bool,
) -> Callable[..., list[np.ndarray]]:
    """Returns a function of the tensors to feed.

    Of short rows it computes in the caller's thread. Only a private method
    gives TensorFlow's own callables; `Session.run` takes a fifth longer for
    one short text.
    """
    options = CallableOptions(feed=feed, fetch=fetch)
    if short:
        options.run_options.inter_op_thread_pool = _CALLERS_THREAD
    return session._make_callable_from_options(options)


def _is_short(array: np.ndarray) -> bool:
    if array.dtype != object:
        return len(array) == 1 and array.nbytes <= _SHORT
    return array.size == 1 and len(array.item()) <= _SHORT


def _meta_graph(path: str) -> MetaGraphDef:
    with files.open(os.path.join(path, _GRAPH)) as file:
        models = SavedModel.FromString(file.read()).meta_graphs
    require(
        len(models) == 1 and _INIT in models[0].signature_def,
        f"{path} was not written by bin.export: expected one graph, with "
        f"{_INIT}.",
    )
    return models[0]


def _signatures(path: str, model: MetaGraphDef) -> dict[str, ExportedSignature]:
    found = {
        name: ExportedSignature(
            _specs(definition.inputs), _specs(definition.outputs), definition
        )
        for name, definition in model.signature_def.items()
        # TensorFlow's own begin with two underscores.
        if not name.startswith("__")
    }
    batched = all(
        spec.shape.rank
        for signature in found.values()
        for spec in signature.inputs.values()
    )
    require(
        bool(found) and batched,
        f"{path} was not written by bin.export: expected signatures whose "
        "inputs have a batch axis.",
    )
    return {
        name: found[name]
        for name in sorted(found, key=lambda name: (name != _DEFAULT, name))
    }


def _specs(tensors: Mapping[str, Any]) -> dict[str, tf.TensorSpec]:
    return {
        name: tf.TensorSpec(
            tf.TensorShape(tensors[name].tensor_shape),
            tf.as_dtype(tensors[name].dtype),
            name,
        )
        for name in sorted(tensors)
    }


def _names(path: str, name: str) -> list[str]:
    asset = os.path.join(path, "assets", name)
    if not files.isfile(asset):
        return []
    return read_json_list(asset, advice="Export the model again.")


def _array(spec: tf.TensorSpec, value: Any) -> np.ndarray:
    """Returns a value as an array that fits the input."""
    shape = ", ".join("any" if n is None else str(n) for n in spec.shape)
    wanted = f"{spec.name}: expected {spec.dtype.name} [{shape}], got"
    is_text = spec.dtype == tf.string
    try:
        array = np.array(value, dtype=object if is_text else None)
    except (ValueError, OverflowError):
        raise UserError(f"{wanted} rows of different lengths.") from None
    if is_text:
        array = _bytes(array, wanted)
    elif array.size:
        type_ = spec.dtype.as_numpy_dtype
        # shown() formats the whole value: only where it is wrong.
        if array.dtype.kind not in _TAKEN.get(np.dtype(type_).kind, ""):
            raise UserError(f"{wanted} {shown(value)}.")
        if spec.dtype.is_integer:
            low, high = int(array.min()), int(array.max())
            require(
                spec.dtype.min <= low and high <= spec.dtype.max,
                f"{wanted} numbers from {low} to {high}.",
            )
    got = f"an array [{', '.join(map(str, array.shape))}]"
    require(
        spec.shape.is_compatible_with(array.shape),
        f"{wanted} {got if array.ndim else f'{shown(value)} without a list'}.",
    )
    return array if is_text else array.astype(spec.dtype.as_numpy_dtype)


def _bytes(array: np.ndarray, wanted: str) -> np.ndarray:
    found = np.empty(array.shape, object)
    for index, item in np.ndenumerate(array):
        if isinstance(item, str):
            try:
                item = item.encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"{wanted} {shown(item)}, which is not valid Unicode."
                ) from None
        if not isinstance(item, bytes):
            ragged = isinstance(item, list | tuple)
            got = "rows of different lengths" if ragged else shown(item)
            raise UserError(f"{wanted} {got}.")
        found[index] = item
    return found


def _reason(message: str, inputs: Mapping[str, np.ndarray]) -> str:
    """Returns the part of TensorFlow's message that has the fault."""
    if _UNPARSED in message:
        # TensorFlow reports the record, whatever its bytes are, and not its
        # row.
        rows = inputs["examples"].tolist()
        faults = (n for n, row in enumerate(rows) if not _is_example(row))
        row = next(faults, "one of them")
        return f"Expected serialized tf.Examples but row {row} is none"
    if found := re.search(_WRONG_TYPE, message):
        name, row, expected, got = found.groups()
        return f"Expected {name} of type {expected} but row {row} has {got}"
    reason = reason_of(message)
    if reason.startswith(_ASSERTION):
        # The parts of the message are in brackets.
        parts = reason.removeprefix(_ASSERTION)
        reason = parts.removesuffix("]").replace("] [", " ")
    return reason


def _is_example(record: bytes) -> bool:
    try:
        tf.train.Example.FromString(record)
    except DecodeError:
        return False
    return True
