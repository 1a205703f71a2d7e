import hashlib
import io
import struct

import pytest
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.records.tfrecord import read_records, write_records

RECORDS = [b"", b"a", b"second" * 50, bytes(range(256)) * 300, b"", b"last"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "some.tfrecord"
    with open(path, "wb") as file:
        write_records(file, RECORDS)
    return path


def test_the_bytes_are_those_of_tensorflow(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "oracle")) as writer:
        for record in RECORDS:
            writer.write(record)
    expected = (tmp_path / "oracle").read_bytes()
    file = io.BytesIO()
    account = write_records(file, iter(RECORDS))
    assert file.getvalue() == expected
    assert account == (
        len(RECORDS),
        len(expected),
        hashlib.sha256(expected).hexdigest(),
    )
    assert list(read_records(tmp_path / "oracle")) == RECORDS


# The fourth record begins behind three frames of 16 bytes and their data.
FOURTH = 3 * 16 + 0 + 1 + 300


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (7, "the checksum of its length is wrong"),
        (8, "the checksum of its length is wrong"),
        (12 + 50_000, "its checksum is wrong"),
        (12 + 256 * 300 + 3, "its checksum is wrong"),
    ],
)
def test_a_flipped_bit_is_found(path, offset, message):
    data = bytearray(path.read_bytes())
    data[FOURTH + offset] ^= 0x10
    path.write_bytes(data)
    place = f"^{path}, record 3 at byte {FOURTH}: {message}"
    with pytest.raises(UserError, match=place):
        list(read_records(path))


@pytest.mark.parametrize("kept", [1, 11, 12, 50_000, 256 * 300 + 15])
def test_a_cut_is_found(path, kept):
    path.write_bytes(path.read_bytes()[: FOURTH + kept])
    message = f"record 3 at byte {FOURTH}: .* ends .*, at byte {FOURTH + kept};"
    with pytest.raises(UserError, match=f"{path}, {message}"):
        list(read_records(path))


def test_a_length_beyond_the_file_takes_no_memory(path):
    io_file = io.BytesIO()
    write_records(io_file, [struct.pack("<Q", 2**62)])
    # The checksum of these eight bytes as data is theirs as a length.
    length, checksum = io_file.getvalue()[12:20], io_file.getvalue()[20:]
    path.write_bytes(length + checksum + b"data")
    with pytest.raises(UserError, match="record 0 at byte 0: the file ends"):
        list(read_records(path))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text").write_text("This is no TFRecord file.")
    with pytest.raises(UserError, match="text, record 0 .*no TFRecord file"):
        list(read_records(tmp_path / "text"))
    with pytest.raises(UserError, match="nowhere cannot be read: No such"):
        list(read_records(tmp_path / "nowhere"))
