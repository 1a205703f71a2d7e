"""Recognises files that no reader of text takes: UTF-16, PDF, archives."""

import codecs

from albert_tf.config import UserError, require
from albert_tf.io import files

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Encodings of files without a mark, by which of four bytes is NUL in most ASCII
# characters.
_NULS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
}
# Other formats that may have the name of a text file, by their first bytes.
_OTHERS = {
    b"PK\x03\x04": "an Excel workbook or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"%PDF-": "a PDF document",
    b"{\\rtf": "an RTF document",
    b"ARROW1": "an Arrow (Feather) file",
    b"PAR1\x15": "a Parquet file",
    b"\x1f\x8b": "a gzip file",
    b"WARC/": "a file of web pages with their headers (WARC)",
}
# What stands at this place in a tar archive.
_TAR, _TAR_PLACE = b"ustar", 257
# The first bytes of what stands for a file in Git until it is fetched.
_LFS_POINTER = b"version https://git-lfs"
HEAD_BYTES = 1024


def refuse_pointer(path: str, content: bytes) -> None:
    """Raises UserError if a file is a pointer of Git LFS."""
    require(
        not content.startswith(_LFS_POINTER),
        f"{path} is a pointer of Git LFS, which stands for the file; git lfs "
        "pull fetches it.",
    )


def refuse_pointer_at(path: str) -> None:
    """Raises UserError if the file at a path is a pointer of Git LFS."""
    with files.open(path) as file:
        refuse_pointer(path, file.read(HEAD_BYTES))


def refuse_other_than_text(path: str, content: bytes) -> None:
    """Raises UserError if a file is no text, by its HEAD_BYTES.

    Texts in UTF-16 and UTF-32 are none here.
    """
    head = content[:HEAD_BYTES]
    refuse_pointer(path, head)
    for mark, form in _OTHERS.items():
        require(
            not head.startswith(mark),
            f"{path} is {form}, expected text in UTF-8; convert the file, or "
            "give it the name of its form.",
        )
    require(
        not head.startswith(_TAR, _TAR_PLACE),
        f"{path} is a tar archive, expected text in UTF-8; unpack it, for "
        "example with tar -xf.",
    )
    columns = [head[i::4] for i in range(4)]
    nuls = tuple(2 * c.count(0) > len(c) for c in columns)
    marked = (name for mark, name in _MARKS.items() if head.startswith(mark))
    if encoding := next(marked, _NULS.get(nuls)):
        raise UserError(
            f"{path} is {encoding}, expected UTF-8; convert the file, for "
            f"example with iconv -f {encoding} -t UTF-8."
        )
