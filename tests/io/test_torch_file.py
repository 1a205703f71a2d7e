"""Files of torch.save, written by torch 2.13 (tests/data/torch)."""

import math
import os
import pathlib
import pickle
import shutil
import zipfile

import numpy as np
import pytest

from albert_tf.io.torch_file import read_torch_header
from tests.counted_work import steps_below

DATA = pathlib.Path(__file__).parents[1] / "data" / "torch"
WORD = np.arange(12, dtype="float32").reshape(3, 4)
EXPECTED = {
    "word": WORD,
    "tied": WORD,
    "tail": WORD[1:],
    "half": np.array([1.5, -2], "float16"),
    "double": np.array([[1.5]]),
    "ids": np.arange(3)[None],
    "parameter": np.array([7, 8], "float32"),
    "one": np.float32(3),
    # Their first halves are those of float32.
    "brain": np.array([0x3FC0, 0xC000], "uint16"),
}
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "I64": "<i8"}
FORMS = ["weights.bin", "weights_of_2019.bin"]


def tensors(path):
    """Returns the arrays of a file, read at the places of its header."""
    content = pathlib.Path(path).read_bytes()
    return {
        name: np.frombuffer(
            content, TYPES[tensor.dtype], math.prod(tensor.shape), tensor.offset
        ).reshape(tensor.shape)
        for name, tensor in read_torch_header(str(path), 1 << 20).items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_where_the_header_says(form):
    found = tensors(DATA / form)
    assert found.keys() == EXPECTED.keys()
    for name, value in EXPECTED.items():
        np.testing.assert_array_equal(found[name], value, name)


class Call:
    def __reduce__(self):
        return os.system, ("false",)


def archive(path, content, **options):
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("x/data.pkl", content)
    return str(path)


def refused(path):
    with pytest.raises(ValueError) as raised, steps_below(20_000):
        read_torch_header(path, 1 << 20)
    return str(raised.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Call(), "its pickle would call posix system"),
        ({"a": Call()}, "its pickle would call posix system"),
        ({"a": 3}, "a is no tensor"),
        ({3: 3}, "a dictionary with other keys than texts"),
        ([3], "its pickle is no dictionary of weights"),
        (b"a", "its pickle "),
    ],
)
def test_nothing_is_called(tmp_path, value, message):
    path = archive(tmp_path / "a.bin", pickle.dumps(value, protocol=2))
    assert message in refused(path)


def test_other_objects_and_views(tmp_path):
    with zipfile.ZipFile(DATA / "transposed.bin") as file:
        pickled = file.read("transposed/data.pkl")
    # The strides become those of every second element.
    strides = b"K\x01K\x04\x86", b"K\x02K\x08\x86"
    path = archive(tmp_path / "view.bin", pickled.replace(*strides))
    assert "a is a view of another tensor" in refused(path)
    assert "has the instruction" in refused(DATA / "module.bin")
    packed = {"compression": zipfile.ZIP_DEFLATED}
    path = archive(tmp_path / "a.bin", b"" * 99, **packed)
    assert refused(path) == "its tensors are compressed"
    (tmp_path / "empty.bin").touch()
    assert "pickle" in refused(tmp_path / "empty.bin")


def test_a_text_that_takes_long_to_compare(tmp_path):
    # (), ((), ()), ... forty times, as a key.
    doubling = b")" + b"2\x86" * 40
    content = b"\x80\x02}" + doubling + b"K\x01s."
    assert refused(archive(tmp_path / "a.bin", content))


@pytest.mark.parametrize("form", FORMS)
def test_damage_is_found_or_changes_numbers_alone(tmp_path, form):
    content = (DATA / form).read_bytes()
    rng = np.random.default_rng(2)
    path = tmp_path / "a.bin"
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(len(content), size=2):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged[: rng.integers(len(content) + 200)])
        try:
            found = read_torch_header(str(path), 1 << 20)
        except ValueError:
            continue
        size = path.stat().st_size
        assert all(0 < tensor.offset <= size for tensor in found.values())
    shutil.copy(DATA / form, path)
    assert tensors(path)
