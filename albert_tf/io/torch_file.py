"""What torch.save wrote of tensors (`pytorch_model.bin`), read without torch.

Such a file has a pickle, a program that a machine of Python's would run, with
any function in it. Here nothing is run: of its instructions those are
understood that make texts, numbers, lists, dictionaries and tensors, and any
other is an error.
"""

import io
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from albert_tf.io import files
from albert_tf.io.safetensors_header import Tensor

# Types as a safetensors file calls them.
_STORAGES = {
    "torch HalfStorage": ("F16", 2),
    "torch BFloat16Storage": ("BF16", 2),
    "torch FloatStorage": ("F32", 4),
    "torch DoubleStorage": ("F64", 8),
    "torch LongStorage": ("I64", 8),
    "torch IntStorage": ("I32", 4),
    "torch BoolStorage": ("BOOL", 1),
    "torch CharStorage": ("I8", 1),
    "torch ByteStorage": ("U8", 1),
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# What the modules of Python raise for damaged files, beside ValueError.
_DAMAGED = (
    *(AttributeError, LookupError, TypeError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, struct.error),
)
# Of a file in a zip archive, before its name.
_LOCAL_HEADER = 30
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE")


class _Name(str):
    """The name of something in a module of Python."""


class _Storage(NamedTuple):
    """What tensors lie in, by the key that the file has for it."""

    kind: _Name
    key: str
    num_bytes: int


class _Stored(NamedTuple):
    """A tensor before its storage's place in the file is known."""

    storage: _Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


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
        found = _loaded(io.BytesIO(archive.read(info)))
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
    if _loaded(stream) != _LEGACY_MAGIC:
        raise ValueError("torch has not written it")
    _loaded(stream)
    system = _loaded(stream)
    if not isinstance(system, dict) or not system.get("little_endian"):
        raise ValueError("its byte order is not little")
    sizes: dict[str, int] = {}
    found = _loaded(stream, sizes)
    places, at = {}, 0
    keys = _loaded(stream)
    at = stream.tell()
    for key in keys:
        # The number of elements comes first.
        places[key] = at + 8
        at += 8 + sizes[key]
    return found, places


def _tensor(name: str, value: Any, places: dict[str, int], size: int) -> Tensor:
    """Returns a tensor with its place in the file, after all checks."""
    if not isinstance(value, _Stored):
        raise ValueError(f"{name} is no tensor")
    dtype, width = _STORAGES.get(value.storage.kind, ("", 0))
    if not dtype:
        raise ValueError(f"{name} is of the type {value.storage.kind}")
    count = 1
    for axis, stride in zip(
        reversed(value.shape), reversed(value.strides), strict=True
    ):
        if axis < 0 or (axis > 1 and stride != count):
            raise ValueError(f"{name} is a view of another tensor")
        count *= axis
    place = places[value.storage.key] + value.first * width
    if value.first < 0 or place + count * width > size:
        raise ValueError(f"{name} lies outside of the file")
    return Tensor(dtype, tuple(value.shape), place)


def _loaded(stream: io.BytesIO, sizes: dict[str, int] | None = None) -> Any:
    """Returns the object of the pickle at the stream's position.

    `sizes` takes the number of bytes of each storage.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def taken(count: int | None = None) -> list[Any]:
        place = marks.pop() if count is None else len(stack) - count
        items = stack[place:]
        del stack[place:]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(stream):
        name = opcode.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name == "MARK":
            marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _NUMBERS + _TEXTS:
            stack.append(argument)
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"D": {}, "L": [], "T": ()}[name[6]])
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[5:]) if name[5:] else None
            stack.append(tuple(taken(count)))
        elif name in ("APPEND", "APPENDS"):
            items = taken(1 if name == "APPEND" else None)
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = taken(2 if name == "SETITEM" else None)
            stack[-1].update(_pairs(items))
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
            if sizes is not None:
                _, key, num_bytes = stack[-1]
                sizes[key] = num_bytes
        elif name == "REDUCE":
            function, arguments = taken(2)
            stack.append(_called(function, arguments))
        elif name == "BUILD":
            # Notes of torch beside a dictionary.
            stack.pop()
        else:
            raise ValueError(f"its pickle has the instruction {name}")
    raise ValueError("its pickle has no end")


def _pairs(items: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yields pairs of a text and an object."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        # To hash another object can take very long.
        if type(key) is not str:
            raise ValueError("it has a dictionary with other keys than texts")
        yield key, value


def _storage(described: Any) -> _Storage:
    """Returns a storage by its description: its type, key and length."""
    _, kind, key, _, count = described[:5]
    if not (type(kind) is _Name and type(key) is str and type(count) is int):
        raise ValueError("it refers to something beside its storages")
    return _Storage(kind, key, count * _STORAGES.get(kind, ("", 0))[1])


def _called(function: Any, arguments: tuple) -> Any:
    """Returns the tensor or dictionary that a function of torch makes."""
    if function == "collections OrderedDict" and arguments == ():
        return {}
    if function == "torch._utils _rebuild_parameter":
        return arguments[0]
    if function == "torch._utils _rebuild_tensor_v2":
        storage, first, shape, strides = arguments[:4]
        is_whole = all(type(n) is int for n in (first, *shape, *strides))
        if not isinstance(storage, _Storage) or not is_whole:
            raise ValueError("it has a tensor that is none of torch's")
        return _Stored(storage, first, shape, strides)
    called = function if type(function) is _Name else "an object"
    raise ValueError(f"its pickle would call {called}")
