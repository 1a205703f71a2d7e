"""Answers of SavedModels through TensorFlow's C API, as servers load them.

Uses the libraries of the packages tensorflow and tensorflow_text, but none of
their Python code, nor any of this project's:

    python c_api_client.py '[["export/mytask/1", {"serving_default_text:0":
        ["A text"]}, ["StatefulPartitionedCall:0"]]]'

prints a JSON list: for each [directory, inputs, outputs], by the names of
tensors, the list of the outputs' values, flat.
"""

import ctypes
import functools
import glob
import importlib.util
import json
import os
import sys

# The members of TF_DataType that signatures have.
NUMBERS = {1: ctypes.c_float, 3: ctypes.c_int32, 9: ctypes.c_int64}
STRING = 7
# sizeof(TF_TString)
STRING_BYTES = 24
# What functions return; others return an int or nothing.
POINTERS = (
    *("NewStatus", "NewGraph", "NewSessionOptions"),
    *("LoadLibrary", "LoadSessionFromSavedModel", "GraphOperationByName"),
    *("AllocateTensor", "TensorData", "StringGetDataPointer"),
)
RESULTS = {
    **dict.fromkeys(POINTERS, ctypes.c_void_p),
    "Message": ctypes.c_char_p,
    "StringGetSize": ctypes.c_size_t,
    "TensorElementCount": ctypes.c_int64,
}


class Output(ctypes.Structure):
    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


def package_directory(name):
    """Returns the location of a package without importing it."""
    (directory,) = importlib.util.find_spec(name).submodule_search_locations
    return directory


class Library:
    """The C API: `library.X(...)` is TF_X(...)."""

    def __init__(self):
        (path,) = glob.glob(
            os.path.join(package_directory("tensorflow"), "libtensorflow_cc.*")
        )
        self._library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        self._status = self.NewStatus()
        operations = os.path.join(
            package_directory("tensorflow_text"), "python", "ops"
        )
        for name in (
            "sentencepiece_tokenizer",
            "wordpiece_tokenizer",
            "normalize_ops",
        ):
            self.checked("LoadLibrary", f"{operations}/_{name}.so".encode())

    def __getattr__(self, name):
        function = getattr(self._library, f"TF_{name}")
        function.restype = RESULTS.get(name, ctypes.c_int)
        # A Python integer would be passed as a C int.
        return lambda *arguments: function(
            *(
                ctypes.c_void_p(a) if isinstance(a, int) and a > 2**31 else a
                for a in arguments
            )
        )

    def checked(self, name, *arguments):
        """Returns TF_<name>(..., status), or ends with the status's message."""
        found = getattr(self, name)(*arguments, self._status)
        if self.GetCode(self._status):
            raise SystemExit(self.Message(self._status).decode())
        return found


class SavedModel:
    """A SavedModel, by the names of its tensors."""

    def __init__(self, library, directory):
        self.library = library
        self.graph = library.NewGraph()
        tags = (ctypes.c_char_p * 1)(b"serve")
        self.session = library.checked(
            *("LoadSessionFromSavedModel", library.NewSessionOptions(), None),
            *(directory.encode(), tags, 1, self.graph, None),
        )

    def _output(self, tensor):
        name, index = tensor.split(":")
        operation = self.library.GraphOperationByName(self.graph, name.encode())
        return Output(operation, int(index))

    def __call__(self, inputs, outputs):
        """Returns the values of outputs, flat."""
        feeds = [self._output(name) for name in inputs]
        tensors = [string_tensor(self.library, v) for v in inputs.values()]
        fetches = [self._output(name) for name in outputs]
        found = (ctypes.c_void_p * len(fetches))()
        self.library.checked(
            *("SessionRun", self.session, None),
            (Output * len(feeds))(*feeds),
            *((ctypes.c_void_p * len(feeds))(*tensors), len(feeds)),
            (Output * len(fetches))(*fetches),
            *(found, len(fetches), None, 0, None),
        )
        return [values(self.library, tensor) for tensor in found]


def string_tensor(library, strings):
    """Returns a tensor of strings."""
    count = len(strings)
    size = ctypes.c_size_t(STRING_BYTES * count)
    shape = (ctypes.c_int64 * 1)(count)
    tensor = library.AllocateTensor(STRING, shape, 1, size)
    start = library.TensorData(tensor)
    for number, string in enumerate(strings):
        place = start + STRING_BYTES * number
        library.StringInit(place)
        encoded = string.encode()
        library.StringCopy(place, encoded, ctypes.c_size_t(len(encoded)))
    return tensor


def values(library, tensor):
    """Returns the values of a tensor as a list."""
    count = library.TensorElementCount(tensor)
    start = library.TensorData(tensor)
    kind = library.TensorType(tensor)
    if kind != STRING:
        return (
            list((NUMBERS[kind] * count).from_address(start)) if count else []
        )
    places = range(start, start + STRING_BYTES * count, STRING_BYTES)
    return [
        ctypes.string_at(
            library.StringGetDataPointer(place), library.StringGetSize(place)
        ).decode()
        for place in places
    ]


def main():
    load = functools.cache(functools.partial(SavedModel, Library()))
    answers = [
        load(directory)(inputs, outputs)
        for directory, inputs, outputs in json.loads(sys.argv[1])
    ]
    python = {"tensorflow", "tensorflow_text", "albert_tf"} & set(sys.modules)
    assert not python, python
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
