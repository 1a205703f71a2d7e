"""What torch.save wrote of tensors (`pytorch_model.bin`), read without torch.

The pickle in such a file, which could call any function, is not run
(`torch_pickle.py`).
"""

import io
import struct
import zipfile
from typing import IO, Any

from albert_tf.io import files
from albert_tf.io.safetensors_header import Tensor
from albert_tf.io.torch_pickle import STORAGES, Stored, load_pickle

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# Errors that Python's modules raise for damaged files, beside ValueError.
_DAMAGED = (
    *(AttributeError, LookupError, TypeError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, struct.error),
)
# The bytes of a file's header in a zip archive, before its name.
_LOCAL_HEADER = 30


def read_torch_header(path: str, max_bytes: int) -> dict[str, Tensor]:
    """Returns the tensors in a file by name.

    Raises:
        ValueError: for anything but a dictionary of tensors, a pickle of more
            than `max_bytes`, and tensors that lie outside of the file.
        OSError: when the file cannot be read.
    """
    size = files.size(path)
    with files.open(path) as file:
        try:
            if zipfile.is_zipfile(file):
                found, places = _of_archive(file, max_bytes)
            else:
                file.seek(0)
                found, places = _of_legacy_file(file, max_bytes)
            return {
                name: _tensor(name, value, places, size)
                for name, value in found.items()
            }
        except _DAMAGED as error:
            raise ValueError(
                f"its pickle is no dictionary of weights: {error}"
            ) from None


def _of_archive(file: Any, max_bytes: int) -> tuple[Any, dict[str, int]]:
    """Returns the object, and where the file has each storage."""
    with zipfile.ZipFile(file) as archive:
        entries = {
            info.filename.partition("/")[2]: info for info in archive.infolist()
        }
        if any(info.compress_type for info in entries.values()):
            raise ValueError("its tensors are compressed")
        info = entries.get("data.pkl")
        if info is None or info.file_size > max_bytes:
            raise ValueError("it has no pickle of weights, or a large one")
        if "byteorder" in entries:
            order = archive.read(entries["byteorder"])
            if order != b"little":
                raise ValueError(f"its byte order is {order[:9]!r}")
        found = load_pickle(io.BytesIO(archive.read(info)))
    places = {}
    for name, info in entries.items():
        if name.startswith("data/"):
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER)
            lengths = header[26:28], header[28:30]
            places[name.removeprefix("data/")] = (
                info.header_offset
                + _LOCAL_HEADER
                + sum(int.from_bytes(n, "little") for n in lengths)
            )
    return found, places


def _of_legacy_file(
    file: IO[bytes], max_bytes: int
) -> tuple[Any, dict[str, int]]:
    """Returns the object of a file of torch before 1.6, and its storages."""
    stream = io.BytesIO(file.read(max_bytes))
    if load_pickle(stream) != _LEGACY_MAGIC:
        raise ValueError("torch has not written it")
    load_pickle(stream)
    system = load_pickle(stream)
    if not isinstance(system, dict) or not system.get("little_endian"):
        raise ValueError("its byte order is not little")
    sizes: dict[str, int] = {}
    found = load_pickle(stream, sizes)
    places = {}
    keys = load_pickle(stream)
    at = stream.tell()
    for key in keys:
        # The number of elements comes first.
        places[key] = at + 8
        at += 8 + sizes[key]
    return found, places


def _tensor(name: str, value: Any, places: dict[str, int], size: int) -> Tensor:
    """Returns a tensor with its place in the file, after all checks."""
    if not isinstance(value, Stored):
        raise ValueError(f"{name} is no tensor")
    dtype, width = STORAGES.get(value.storage.kind, ("", 0))
    if not dtype:
        raise ValueError(f"{name} is of the type {value.storage.kind}")
    axes = [*zip(value.shape, value.strides, strict=True)]
    # transformers has made such matrices of a checkpoint of TensorFlow.
    is_transposed = len(axes) == 2 and value.strides == (1, value.shape[0])
    if not is_transposed:
        axes.reverse()
    count = 1
    for axis, stride in axes:
        if axis < 0 or (axis > 1 and stride != count):
            raise ValueError(f"{name} is a view of another tensor")
        count *= axis
    place = places[value.storage.key] + value.first * width
    if value.first < 0 or place + count * width > size:
        raise ValueError(f"{name} lies outside of the file")
    return Tensor(dtype, tuple(value.shape), place, is_transposed)
