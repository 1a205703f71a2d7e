"""Checkpoint files against TensorFlow's own writer, and made by hand."""

import os
import re
import struct

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2
from tiny_models import save_tensors as save

from albert_tf.config import UserError
from albert_tf.interchange.tensor_bundle import read_index, read_variable

DATA = ".data-00000-of-00001"


def read(prefix, name):
    return read_variable(prefix, read_index(prefix)[name])


def varint(number):
    out = b""
    while number >= 128:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def checksum(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def block(entries):
    """Returns a block without shared prefixes."""
    body = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value
        for key, value in entries
    )
    return body + struct.pack("<II", 0, 1)


def table(*blocks, handles=None, kind=b"\0"):
    """Returns a table of these blocks, all checksums right."""
    out, places = b"", []
    for content in blocks:
        places.append(varint(len(out)) + varint(len(content)))
        out += content + kind + struct.pack("<I", checksum(content + kind))
    keys = [bytes([n]) for n in range(len(places))]
    index = block(list(zip(keys, handles or places, strict=True)))
    place = varint(len(out)) + varint(len(index))
    out += index + b"\0" + struct.pack("<I", checksum(index + b"\0"))
    footer = (varint(0) + varint(0) + place).ljust(40, b"\0")
    return out + footer + struct.pack("<Q", 0xDB4775248B80FB57)


VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def header(**fields):
    values = {"num_shards": 1, **fields}
    return tensor_bundle_pb2.BundleHeaderProto(**values).SerializeToString()


def entry(sizes=(2, 3), **fields):
    proto = tensor_bundle_pb2.BundleEntryProto(
        **{
            "dtype": 1,
            "size": 24,
            "crc32c": checksum(VALUES.tobytes()),
            **fields,
        }
    )
    proto.shape.SetInParent()
    for size in sizes:
        proto.shape.dim.add(size=size)
    return proto.SerializeToString()


def write(tmp_path, index):
    prefix = tmp_path / "model.ckpt"
    (tmp_path / "model.ckpt.index").write_bytes(index)
    (tmp_path / f"model.ckpt{DATA}").write_bytes(VALUES.tobytes())
    return str(prefix)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", tf.bfloat16.as_numpy_dtype]
)
def test_floating_point_becomes_float32(tmp_path, dtype):
    value = np.linspace(-3, 7, 24).reshape(2, 3, 4).astype(dtype)
    prefix = save(tmp_path / "c", {"a": value, "scalar": value[1, 2, 3]})
    found = read(prefix, "a")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, value.astype(np.float32))
    assert read(prefix, "scalar") == np.float32(value[1, 2, 3])
    assert read(prefix, "scalar").shape == ()


def test_an_index_of_many_blocks(tmp_path):
    rng = np.random.default_rng(3)
    # More than 256 kB of index, where a second block begins.
    tensors = {
        f"{n}/{'x' * rng.integers(80, 160)}": np.float32(n) for n in range(2500)
    }
    prefix = save(tmp_path / "c", tensors)
    assert os.path.getsize(prefix + ".index") > 300_000
    found = read_index(prefix)
    assert sorted(found) == sorted(tensors)
    for name in list(tensors)[::500]:
        assert read_variable(prefix, found[name]) == tensors[name]


def test_several_data_files_are_one_checkpoint(tmp_path):
    parts = [
        save(tmp_path / "p0", {"a": np.float32([1, 2])}),
        save(tmp_path / "p1", {"b": np.float32([[3], [4]])}),
    ]
    prefix = str(tmp_path / "c")
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=prefix
    )
    assert os.path.exists(prefix + ".data-00001-of-00002")
    assert read(prefix, "a").tolist() == [1, 2]
    assert read(prefix, "b").tolist() == [[3], [4]]
    os.remove(prefix + ".data-00001-of-00002")
    with pytest.raises(UserError, match=r"c\.data-00001-of-00002 is missing"):
        read_index(prefix)


def test_a_partitioned_variable_is_refused(tmp_path):
    prefix = save(tmp_path / "c", {"a": VALUES}, ["4 3 0,2:0,3"])
    with pytest.raises(UserError, match=r"a is stored in parts"):
        read_index(prefix)


@pytest.mark.parametrize(
    ("value", "number"), [(tf.zeros([2], tf.int64), 9), (tf.constant(["a"]), 7)]
)
def test_other_types_are_listed_and_not_read(tmp_path, value, number):
    prefix = save(tmp_path / "c", {"x/y": value, "z": VALUES})
    assert read_index(prefix)["x/y"].shape == tuple(value.shape)
    np.testing.assert_array_equal(read(prefix, "z"), VALUES)
    with pytest.raises(UserError, match=f"^{prefix}: x/y .* number {number} "):
        read(prefix, "x/y")


@pytest.mark.parametrize(
    "value", [np.float32([1, np.nan]), np.float64([1e300])]
)
def test_values_that_are_not_finite_are_refused(tmp_path, value):
    prefix = save(tmp_path / "c", {"x/y": value})
    with pytest.raises(UserError, match=f"^{prefix}: x/y holds NaN or inf"):
        read(prefix, "x/y")


def test_a_damaged_variable_and_the_others(tmp_path):
    prefix = save(tmp_path / "c", {"a": VALUES, "b": VALUES + 1})
    path = tmp_path / f"c{DATA}"
    data = bytearray(path.read_bytes())
    data[read_index(prefix)["b"].offset + 5] ^= 1
    path.write_bytes(data)
    np.testing.assert_array_equal(read(prefix, "a"), VALUES)
    with pytest.raises(UserError, match=f"^{prefix} is not .*checksum of b is"):
        read(prefix, "b")
    index = tmp_path / "c.index"
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    with pytest.raises(UserError, match="a checksum in its index is wrong"):
        read_index(prefix)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (entry((10**6, 10**6)), "1000000] of float32 and is stored in 24 by"),
        (entry((10**6, 10**6), size=4 * 10**12), "bytes 0 to 4000000000000;"),
        (entry((-2, -3)), "which is not possible"),
        (entry((1,) * 300), "which is not possible"),
        (entry(offset=1), "has 24 bytes and x/y is at bytes 1 to 25; the file"),
        (entry(offset=-5), "x/y is at bytes -5 to 19"),
        (entry(shard_id=1), "data-00001-of-00001 is missing"),
        (b"\xff\xff\xff", "an entry of its index is malformed"),
    ],
)
def test_an_inconsistent_entry_is_refused(tmp_path, value, text):
    index = table(block([(b"", header()), (b"x/y", value)]))
    prefix = write(tmp_path, index)
    with pytest.raises(UserError, match=re.escape(text)) as caught:
        read_index(prefix)
    line = str(caught.value)
    assert line.startswith(f"{prefix} is not a readable TensorFlow checkpoint")
    assert "\n" not in line and len(line) < 400


HEAD = (b"", header())
PLACE = varint(0) + varint(len(block([HEAD])))


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (b"", "is truncated or another kind of file"),
        (table(), "no header"),
        (table(block([(b"a", entry())])), "no header"),
        (table(block([(b"", header(endianness=1))])), "big endian"),
        (table(block([HEAD, *[(b"a", entry())] * 2])), "not in order"),
        (table(block([HEAD]), kind=b"\1"), "compressed"),
        (table(block([HEAD]) + b"\xff" * 4), "malformed"),
        # An entry longer than its block, and one that shares too much.
        (table(b"\0\x05\x05ab" + struct.pack("<II", 0, 1)), "malformed"),
        (table(b"\x03\x01\x00a" + struct.pack("<II", 0, 1)), "malformed"),
        (table(block([HEAD, (b"a" * 600, entry())])), "malformed"),
        (table(block([HEAD]), handles=[b"\xff" * 9 + b"\1\x05"]), "checksum"),
        (table(block([HEAD]), handles=[b"\xff" * 11]), "no end"),
        (table(block([HEAD, (b"a\nb\xff", entry())])), "is no name"),
        # Two blocks at the same place.
        (table(*[block([HEAD])] * 2, handles=[PLACE] * 2), "overlap"),
    ],
)
def test_an_index_of_another_form_is_refused(tmp_path, index, text):
    prefix = write(tmp_path, index)
    with pytest.raises(UserError, match=text) as caught:
        read_index(prefix)
    assert str(caught.value).startswith(f"{prefix} is not a readable")
    assert "\n" not in str(caught.value)


def test_random_blocks_are_read_or_refused(tmp_path):
    rng = np.random.default_rng(5)
    content = block([HEAD, (b"a", entry()), (b"b", entry([6]))])
    refused = 0
    for _ in range(100):
        changed = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        prefix = write(tmp_path, table(bytes(changed)))
        try:
            for variable in read_index(prefix).values():
                read_variable(prefix, variable)
        except UserError:
            refused += 1
    assert refused > 50


def test_too_many_entries_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("albert_tf.interchange.tensor_bundle._MAX_VARIABLES", 2)
    names = [(b"a", entry()), (b"b", entry())]
    assert read_index(write(tmp_path, table(block([HEAD, names[0]]))))
    with pytest.raises(UserError, match="more than 2 entries"):
        read_index(write(tmp_path, table(block([HEAD, *names]))))


@pytest.mark.parametrize("suffix", [".index", DATA])
def test_paths_that_are_no_files_are_refused(tmp_path, suffix):
    prefix = save(tmp_path / "c", {"a": VALUES})
    path = tmp_path / f"c{suffix}"
    path.rename(tmp_path / "elsewhere")
    for make, reason in (
        (lambda: path.symlink_to("nowhere"), "is missing|No such file"),
        (path.mkdir, "is not a file|Is a directory"),
        (lambda: os.mkfifo(path), "is not a file|is a pipe"),
        (lambda: path.symlink_to(path), "Too many levels of symbolic links"),
    ):
        make()
        with pytest.raises(UserError, match=f"{path.name}.*({reason})"):
            read_index(prefix)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    path.symlink_to("elsewhere")
    np.testing.assert_array_equal(read(prefix, "a"), VALUES)
