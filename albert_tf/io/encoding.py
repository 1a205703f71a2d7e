"""Recognises text files in UTF-16 and UTF-32, which no reader here takes."""

import codecs

from albert_tf.config import UserError

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Without a mark: which of four bytes is NUL in most ASCII characters.
_NULS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
}
HEAD_BYTES = 1024


def refuse_utf16(path: str, content: bytes) -> None:
    """Raises UserError if a file is UTF-16 or UTF-32, by its HEAD_BYTES."""
    head = content[:HEAD_BYTES]
    columns = [head[i::4] for i in range(4)]
    nuls = tuple(2 * c.count(0) > len(c) for c in columns)
    marked = (name for mark, name in _MARKS.items() if head.startswith(mark))
    if encoding := next(marked, _NULS.get(nuls)):
        raise UserError(
            f"{path} is {encoding}, expected UTF-8; convert the file, for "
            f"example with iconv -f {encoding} -t UTF-8."
        )
