"""A model's `model.safetensors`, under Hugging Face's names.

Or, as transformers saves with `max_shard_size`, several such files and
`model.safetensors.index.json`, which names them. Where there is neither,
`pytorch_model.bin`, or several with an index.

A file may come from anyone: its header is checked before its data are
touched, and nothing in it is ever run or used as a path.
"""

import math
import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.io.encoding import refuse_pointer_at
from albert_tf.io.json_files import read_json
from albert_tf.io.safetensors_header import Tensor, make_header, read_header
from albert_tf.io.torch_file import read_torch_header
from albert_tf.modeling.weights.stored_weights import StoredWeights, to_float32

INDEX_SUFFIX = ".index.json"
# A layer group takes some 2,500 bytes of the header, so this is plenty, and
# is read in a fraction of a second.
MAX_HEADER_BYTES = 4 << 20
# The longest of ALBERT's names has about 90 characters.
_MAX_NAME = 200

# The types of a weight, as `to_float32` reads them.
_DTYPES = {"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"}

# The output layer of the masked-LM head, whose weights Hugging Face ties to
# others and may or may not write: the weight must equal the embeddings, and
# the bias is the one that is added.
_DECODER = "predictions.decoder.weight"
_EMBEDDINGS = "albert.embeddings.word_embeddings.weight"
_DECODER_BIAS, _BIAS = "predictions.decoder.bias", "predictions.bias"
# Files of torch.save, in the place of those of the same content.
_TORCH_NAMES = {
    "model.safetensors": "pytorch_model.bin",
    "adapter_model.safetensors": "adapter_model.bin",
}
# Beginnings of the names of files that are read, and of their indexes.
_READ = ("model.safetensors", "pytorch_model.bin")
_SUFFIXES = (".safetensors", ".bin")
# A layer within one of PEFT's, in the names of its weights.
_ADAPTED = ".base_layer."
# The weight that every encoder has, after its own prefix.
_WORDS = "embeddings.word_embeddings.weight"
# Numbers that older releases of transformers wrote among the weights.
_POSITION_IDS = "albert.embeddings.position_ids"

# Loads a directory's weights, whatever their form, and saves them in ours.
_RESAVE = (
    'python -c "import sys, transformers as t; d = sys.argv[1]; '
    "getattr(t, t.AutoConfig.from_pretrained(d).architectures[0])"
    ".from_pretrained(d{}).save_pretrained(d, max_shard_size='99GB')\" {}"
)


_PICKLE = (
    "is a pickle, which can run any code when it is read, so it is never "
    "opened here"
)
_NOT_READ = "is not read here, only model.safetensors is"
# A variant has such other names, as model.fp16.safetensors.
_RENAMED = "is not read under this name, only model.safetensors is"
_SHARD = re.compile(r"(pytorch_)?model-\d+-of-\d+\.(safetensors|bin)")
_NO_INDEX = "is one of several files, and their index (*.index.json) is missing"
GRAPH = "is a model of another runtime, of which no weights are read here"
# Endings of names: why such a file is not read, and the option with which
# transformers reads it.
_FOREIGN = {
    ".safetensors": (_RENAMED, ""),
    **dict.fromkeys((".onnx", ".ort", ".tflite", ".pb", ".gguf"), (GRAPH, "")),
    # Weights of OpenVINO are no pickle.
    **dict.fromkeys(("openvino_model.bin", "openvino_model.xml"), (GRAPH, "")),
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".ckpt"), (_PICKLE, "")),
    ".h5": (_NOT_READ, ", from_tf=True"),
    ".msgpack": (_NOT_READ, ", from_flax=True"),
}


class Foreign(NamedTuple):
    """A file of weights in an unsupported format.

    Attributes:
        name: of the file.
        fault: the reason why it is not read.
        option: of `from_pretrained`, with which transformers reads it.
    """

    name: str
    fault: str
    option: str


# A file and the place of an array in it.
_Place = tuple[str, Tensor]


def open_weights(path: str) -> StoredWeights:
    """Returns the weights in a safetensors file under their full names.

    Where there is no such file but an index beside it, `path` with the suffix
    `.index.json`, those of all files that the index names; otherwise those of
    `pytorch_model.bin` or its index.

    Of whatever the model was an attribute (`module.` of DataParallel,
    `_orig_mod.` of torch.compile) is no part of the names. A bare encoder's
    get the prefix `albert.`; the position numbers that
    older releases wrote are dropped. So is the copy of the embeddings in the
    masked-LM head, which `check_tied` compares with them, bit by bit. Arrays
    are read one at a time, as float32.

    Raises:
        UserError: when the file is missing, not a regular one, damaged, repeats
            a name, or holds anything but floating-point weights; from `read`,
            when it has been cut since.
    """
    path = _existing(path)
    is_index = path.endswith(INDEX_SUFFIX)
    found = _indexed_tensors(path) if is_index else _tensors(path)
    require(
        not any(_ADAPTED in name for name in found),
        f"{path} holds a model with adapters of PEFT that are not merged into "
        "its weights; save the one that merge_and_unload() makes.",
    )
    tensors = _under_full_names(found, path)
    tensors.pop(_POSITION_IDS, None)
    for name, place in tensors.items():
        _check_tensor(name, place)
    if _DECODER_BIAS in tensors:
        tensors[_BIAS] = tensors.pop(_DECODER_BIAS)
    copy = tensors.pop(_DECODER, None)

    def read(name: str) -> np.ndarray:
        return _read(name, tensors[name])

    def check_tied() -> None:
        if copy is None or _EMBEDDINGS not in tensors:
            return
        require(
            tensors[_EMBEDDINGS][1].shape == copy[1].shape
            and read(_EMBEDDINGS).tobytes() == _read(_DECODER, copy).tobytes(),
            f"{path}: {_DECODER} differs from {_EMBEDDINGS}; only models with "
            "tie_word_embeddings have a masked-LM head here, in which they "
            "are one. Fine-tuning, and bin.convert with --head=none, leave it "
            "out.",
        )

    return StoredWeights(
        source=path,
        form="huggingface",
        shapes={name: tensor.shape for name, (_, tensor) in tensors.items()},
        read=read,
        check_tied=check_tied,
    )


def _existing(path: str) -> str:
    """Returns the first that exists of the file, its index, and torch's."""
    directory, name = os.path.split(path)
    torch_name = _TORCH_NAMES.get(name, name)
    for place in (path, os.path.join(directory, torch_name)):
        for candidate in (place, place + INDEX_SUFFIX):
            if files.exists(candidate):
                return candidate
    return path


def _under_full_names(found: dict[str, _Place], path: str) -> dict[str, _Place]:
    """Returns the arrays by the names that transformers' classes give them."""
    stems = [n.removesuffix(_WORDS) for n in found if n.endswith(_WORDS)]
    is_full = any(name.startswith("albert.") for name in found)
    stem = stems[0] if len(stems) == 1 else "albert." * is_full
    outer = stem.removesuffix("albert.")
    # A bare encoder may be an attribute of any name.
    prefix = "" if outer != stem else "albert."
    # Normalisations have the names of TensorFlow in old files.
    renamed = {
        (prefix + name.removeprefix(outer) if name.startswith(outer) else name)
        .replace("orm.gamma", "orm.weight")
        .replace("orm.beta", "orm.bias"): at
        for name, at in found.items()
    }
    require(
        len(renamed) == len(found),
        f"{path} holds a weight twice: both with and without {outer} before "
        "its name, or by an old name (.gamma, .beta) too.",
    )
    return renamed


def write_weights(
    path: str, values: dict[str, np.ndarray], **metadata: str
) -> None:
    """Writes a safetensors file that every transformers release reads.

    The arrays are written as float32; equal arrays give equal bytes. NaN is
    written as it is, so that a model that diverged can be looked at; a
    model is not loaded from it. A file of that name is replaced at the end.
    `metadata` is what its header says besides.
    """
    arrays = [
        (name, np.asarray(value, np.float32, order="C"))
        for name, value in sorted(values.items())
    ]
    rows = [(name, "F32", a.shape, a.nbytes) for name, a in arrays]
    with files.replacing(path) as file:
        file.write(make_header(rows, {"format": "pt", **metadata}))
        for _, array in arrays:
            file.write(array.tobytes())


def refuse_pickle(directory: str) -> None:
    """Raises UserError where weights are not in a file that is read.

    Without a model.safetensors, pytorch_model.bin or an index: a safetensors
    file of another name, another pickle, TensorFlow's or Flax' format, or a
    model of another runtime. None is opened; the message says what to do.
    """
    names = files.listdir(directory) if files.isdir(directory) else []
    foreign = foreign_weights(names)
    if foreign is None:
        return
    fault = f"{os.path.join(directory, foreign.name)} {foreign.fault}."
    if foreign.fault == _NO_INDEX:
        raise UserError(f"{fault} Copy it too.")
    if foreign.fault == _RENAMED:
        raise UserError(f"{fault} Rename it if it holds the model's weights.")
    if foreign.fault == GRAPH:
        raise UserError(f"{fault} Name the model that it was made of.")
    if foreign.fault == _PICKLE:
        raise UserError(
            f"{fault} If it holds a state_dict, rename it to "
            "pytorch_model.bin, of which the tensors alone are read."
        )
    raise UserError(
        f"{fault} If you trust it, "
        f"{_RESAVE.format(foreign.option, shlex.quote(str(directory)))} in "
        "an environment with torch and transformers 4 writes that."
    )


def foreign_weights(names: Sequence[str]) -> Foreign | None:
    """Returns the weights among files that are in unsupported formats only."""
    if any(name.startswith(_READ) for name in names):
        return None
    # Names of weights come first: there may be other pickles beside them.
    first = sorted(
        names, key=lambda name: not name.startswith(("pytorch_model", "model"))
    )
    for name in first:
        for ending, (fault, option) in _FOREIGN.items():
            if name.endswith(ending):
                is_shard = _SHARD.fullmatch(name)
                return Foreign(name, _NO_INDEX if is_shard else fault, option)
    return None


def _indexed_tensors(index: str) -> dict[str, _Place]:
    """Returns the location of each array of the files that an index names."""
    where = read_json(index).get("weight_map")
    names = where.values() if isinstance(where, dict) else ()
    # Names alone are allowed: a path could lead anywhere.
    is_plain = all(
        type(name) is str
        and name.endswith(_SUFFIXES)
        and name == os.path.basename(name)
        for name in names
    )
    require(
        bool(names) and is_plain,
        f"{index}: weight_map={shown(where)} must give each weight the name "
        "of a file of weights in this directory.",
    )
    tensors: dict[str, _Place] = {}
    for name in sorted(set(names)):
        path = os.path.join(os.path.dirname(index), name)
        found = _tensors(path)
        repeated = sorted(found.keys() & tensors.keys())
        require(
            not repeated,
            f"{path} holds {shown(repeated)}, which another file of {index} "
            "holds too.",
        )
        tensors |= found
    absent = sorted(where.keys() - tensors.keys())
    require(
        not absent, f"{index} lists {shown(absent)}, which none of them holds."
    )
    return tensors


def _tensors(path: str) -> dict[str, _Place]:
    """Returns the location of each array in a file, after all checks."""
    if not files.isfile(path):
        # Reading from a pipe or a device could wait for ever.
        found = files.exists(path)
        raise UserError(
            f"{path} is {'not a regular file' if found else 'missing'}."
        )
    try:
        if path.endswith(".bin"):
            tensors = read_torch_header(path, MAX_HEADER_BYTES)
        else:
            tensors, _ = read_header(path, MAX_HEADER_BYTES)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None
    except ValueError as error:
        refuse_pointer_at(path)
        raise _unreadable(path, str(error)) from None
    require(bool(tensors), f"{path} holds no weights.")
    return {name: (path, tensor) for name, tensor in tensors.items()}


def _check_tensor(name: str, place: _Place) -> None:
    """Raises UserError for what cannot be a weight."""
    path, tensor = place
    if not name.isprintable() or len(name) > _MAX_NAME:
        raise _unreadable(path, f"{name[:_MAX_NAME]} is no name of a weight")
    require(
        tensor.dtype in _DTYPES,
        f"{path}: {name} holds {tensor.dtype}; a weight holds one of "
        f"{', '.join(_DTYPES)}.",
    )
    axes = len(tensor.shape)
    if axes > 4 or 0 in tensor.shape:
        raise _unreadable(path, f"{name} has {axes} axes or an empty one")


def _read(name: str, place: _Place) -> np.ndarray:
    """Returns an array as float32."""
    path, tensor = place
    count = math.prod(tensor.shape)
    try:
        with files.open(path) as file:
            file.seek(tensor.offset)
            stored = np.empty(count, _DTYPES[tensor.dtype])
            num_bytes = file.readinto(stored)  # type: ignore[attr-defined]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}.") from None
    if num_bytes < stored.nbytes:
        raise _unreadable(path, f"it has been cut, {name} is not there")
    value = to_float32(stored)
    if tensor.is_transposed:
        return value.reshape(tensor.shape[::-1]).T
    return value.reshape(tensor.shape)


def _unreadable(path: str, reason: str) -> UserError:
    # The reason may quote the file: keep it to one short line.
    shown = reason.encode("unicode_escape").decode("ascii")
    shown = shown if len(shown) <= 300 else shown[:300] + "..."
    if path.endswith(".bin"):
        return UserError(
            f"{path} is not a readable file of torch: {shown}. "
            "torch.save(model.state_dict(), name) writes one."
        )
    return UserError(f"{path} is not a readable safetensors file: {shown}.")
