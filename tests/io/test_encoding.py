import io
import tarfile

import pytest

from albert_tf.config import UserError
from albert_tf.io.encoding import refuse_other_than_text

TEXT = "Tea, café and salt.\nMore of it: 1, 2, 3.\n" * 40


@pytest.mark.parametrize(
    "encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"]
)
@pytest.mark.parametrize(
    "text",
    [TEXT, f"\ufeff{TEXT}", "\ufeff文字"],
    ids=["bare", "marked", "mark alone"],
)
def test_utf16_and_utf32_are_named(encoding, text):
    # iconv takes a mark out only if the byte order is left to it.
    name = encoding[:6] if text[0] == "\ufeff" else encoding
    with pytest.raises(
        UserError, match=rf"^a is {name}, expected .* -f {name} "
    ):
        refuse_other_than_text("a", text.encode(encoding))


def test_archives_are_named():
    for content, name in (
        (b"PK\x03\x04\x14\0", "an Excel workbook or another ZIP archive"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
        (b"{\\rtf1\\ansi\\ansicpg1252", "an RTF document"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"WARC/1.0\r\n", "a file of web pages with their headers"),
    ):
        with pytest.raises(UserError, match=f"^a is {name}.*, expected text"):
            refuse_other_than_text("a", content)


def test_tar_archives_are_named():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(UserError, match="^a is a tar archive, .* tar -xf.$"):
        refuse_other_than_text("a", archive.getvalue())


def test_pointers_of_git_lfs_are_named():
    content = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7\n"
    with pytest.raises(UserError, match="^a is a pointer .*git lfs pull"):
        refuse_other_than_text("a", content)


def test_other_bytes_pass():
    for content in (b"", b"a", b"\0", b"\0" * 2000, b"a\0b c d " * 200):
        refuse_other_than_text("a", content)
    for encoding in ("utf-8", "utf-8-sig", "latin1"):
        refuse_other_than_text("a", TEXT.encode(encoding))
