"""The pickles of torch's tensors, of which nothing is run.

A pickle is a program for a machine of Python's, with any function in it. Of
its instructions those are understood that make texts, numbers, lists,
dictionaries and tensors, and any other is an error.
"""

import io
import pickletools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# Types as a safetensors file calls them.
STORAGES = {
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
_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
_TEXTS = ("BINUNICODE", "SHORT_BINUNICODE")


class _Name(str):
    """The name of something in a module of Python."""


class _Storage(NamedTuple):
    """What tensors lie in, by the key that the file has for it."""

    kind: _Name
    key: str
    num_bytes: int


class Stored(NamedTuple):
    """A tensor before its storage's place in the file is known."""

    storage: _Storage
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def load_pickle(stream: io.BytesIO, sizes: dict[str, int] | None = None) -> Any:
    """Returns the object of the pickle at the stream's position.

    `sizes` takes the number of bytes of each storage. Raises ValueError for an
    instruction that makes something else than those of tensors do.
    """
    machine = _Machine(sizes)
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name == "STOP":
            return machine.stack.pop()
        step = _STEPS.get(opcode.name)
        if step is None:
            raise ValueError(f"its pickle has the instruction {opcode.name}")
        step(machine, argument)
    raise ValueError("its pickle has no end")


class _Machine:
    """The stack of a pickle, places in it, and what it names."""

    def __init__(self, sizes: dict[str, int] | None) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.sizes = sizes

    def taken(self, count: int | None = None) -> list[Any]:
        """Returns the last objects, by default those since the last mark."""
        stack = self.stack
        place = self.marks.pop() if count is None else len(stack) - count
        items = stack[place:]
        del stack[place:]
        return items

    def mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def remember(self, number: int | None) -> None:
        self.memo[len(self.memo) if number is None else number] = self.stack[-1]

    def recall(self, number: int) -> None:
        self.stack.append(self.memo[number])

    def storage(self, _: Any) -> None:
        self.stack.append(_storage(self.stack.pop()))
        if self.sizes is not None:
            _, key, num_bytes = self.stack[-1]
            self.sizes[key] = num_bytes

    def call(self, _: Any) -> None:
        function, arguments = self.taken(2)
        self.stack.append(_called(function, arguments))

    def drop(self, _: Any) -> None:
        # It holds torch's notes on a dictionary, which are not needed.
        self.stack.pop()


_Step = Callable[[_Machine, Any], None]


def _push(make: Callable[[Any], Any]) -> _Step:
    """Returns the instruction that adds an object made of its argument."""
    return lambda machine, argument: machine.stack.append(make(argument))


def _tuple(count: int | None) -> _Step:
    return lambda machine, _: machine.stack.append(tuple(machine.taken(count)))


def _extend(count: int | None) -> _Step:
    def step(machine: _Machine, _: Any) -> None:
        items = machine.taken(count)
        machine.stack[-1].extend(items)

    return step


def _update(count: int | None) -> _Step:
    def step(machine: _Machine, _: Any) -> None:
        items = machine.taken(count)
        machine.stack[-1].update(_pairs(items))

    return step


_STEPS: dict[str, _Step] = {
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, _: None),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Machine.recall),
    **dict.fromkeys(_NUMBERS + _TEXTS, _push(lambda argument: argument)),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    "GLOBAL": _push(_Name),
    "EMPTY_DICT": _push(lambda _: {}),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "MARK": _Machine.mark,
    "TUPLE": _tuple(None),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": _extend(1),
    "APPENDS": _extend(None),
    "SETITEM": _update(2),
    "SETITEMS": _update(None),
    "BINPERSID": _Machine.storage,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.drop,
}


def _pairs(items: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yields pairs of a text and an object."""
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Hashing another object can take very long.
        if type(key) is not str:
            raise ValueError("it has a dictionary with other keys than texts")
        yield key, value


def _storage(described: Any) -> _Storage:
    """Returns a storage by its description: its type, key and length."""
    _, kind, key, _, count = described[:5]
    if not (type(kind) is _Name and type(key) is str and type(count) is int):
        raise ValueError("it refers to something beside its storages")
    return _Storage(kind, key, count * STORAGES.get(kind, ("", 0))[1])


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
        return Stored(storage, first, shape, strides)
    called = function if type(function) is _Name else "an object"
    raise ValueError(f"its pickle would call {called}")
