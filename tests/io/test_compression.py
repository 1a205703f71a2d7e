"""Compressed files, written by other programs and by the library itself."""

import bz2
import gzip
import io
import lzma
import sys

import pytest
import zstandard

from albert_tf.config import UserError
from albert_tf.io.compression import (
    SUFFIXES,
    DamagedFile,
    open_plain,
    packing,
    plain_name,
    suffix_of,
)

CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))
PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
UNPACK = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda data: (
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    ),
}


def read(path):
    with open_plain(str(path)) as file:
        return file.read()


def test_every_form_is_below():
    assert tuple(PACK) == tuple(UNPACK) == SUFFIXES


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("content", [CONTENT, b"", b"a"])
def test_a_file_is_unpacked_whatever_it_is_called(tmp_path, suffix, content):
    # Parts that follow one another are one file.
    packed = PACK[suffix](content) + PACK[suffix](b"end")
    for name in (f"a.txt{suffix}", "a.txt", f"A{suffix.upper()}"):
        path = tmp_path / name
        path.write_bytes(packed)
        assert read(path) == content + b"end"


def test_frames_that_are_skipped(tmp_path):
    # pzstd writes each frame behind one that has its size.
    def skipped(kind, data):
        return bytes([0x50 + kind]) + b"*M\x18\4\0\0\0" + data

    first, second = map(PACK[".zst"], (CONTENT, b"end"))
    packed = skipped(0, b"size") + first + skipped(15, b"size") + second
    for name in ("a.txt.zst", "a.txt"):
        (tmp_path / name).write_bytes(packed)
        assert read(tmp_path / name) == CONTENT + b"end"


@pytest.mark.parametrize("suffix", PACK)
def test_a_cut_file_is_refused_in_one_line(tmp_path, suffix):
    packed = PACK[suffix](CONTENT)
    path = tmp_path / f"a{suffix}"
    for size in (len(packed) - 1, len(packed) // 2, 12):
        path.write_bytes(packed[:size])
        with pytest.raises(DamagedFile, match=f"^{path}: the .* file is cut "):
            read(path)


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_file_is_refused(tmp_path, suffix):
    packed = bytearray(PACK[suffix](CONTENT))
    middle = len(packed) // 2
    packed[middle : middle + 40] = bytes(40)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(packed)
    with pytest.raises(DamagedFile, match="is cut or damaged; copy or downlo"):
        read(path)


@pytest.mark.parametrize("suffix", PACK)
def test_a_name_that_is_wrong(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"some text\n")
    with pytest.raises(UserError, match=f"though its name ends with {suffix};"):
        read(path)


def test_text_may_begin_as_bzip2_does(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"BZh9 is a mark.\n")
    assert read(path) == b"BZh9 is a mark.\n"


@pytest.mark.parametrize("suffix", PACK)
def test_what_is_written_is_read_by_others(suffix):
    written = io.BytesIO()
    with packing(written, f"a.csv{suffix}") as file:
        for start in range(0, len(CONTENT), 1000):
            file.write(CONTENT[start : start + 1000])
    assert not written.closed
    assert UNPACK[suffix](written.getvalue()) == CONTENT


def test_names():
    assert plain_name("x/train.tsv.GZ") == "x/train.tsv"
    assert (suffix_of("a.tar.xz"), suffix_of("a.xzt")) == (".xz", "")


def test_zstandard_is_asked_for_by_name(tmp_path, monkeypatch):
    path = tmp_path / "a.zst"
    path.write_bytes(PACK[".zst"](b"a"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UserError, match="zstandard: pip install zstandard"):
        read(path)
