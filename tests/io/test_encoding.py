import pytest

from albert_tf.config import UserError
from albert_tf.io.encoding import refuse_utf16

TEXT = "Tea, café and salt.\nMore of it: 1, 2, 3.\n" * 40


@pytest.mark.parametrize(
    "encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf16_and_utf32_are_named(encoding, mark):
    content = (mark + TEXT).encode(encoding)
    # iconv takes a mark out only if the byte order is left to it.
    name = encoding[:6] if mark else encoding
    with pytest.raises(
        UserError, match=rf"^a is {name}, expected .* -f {name} "
    ):
        refuse_utf16("a", content)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_mark_tells_the_encoding_of_any_script(encoding):
    content = "文字".encode(encoding)
    with pytest.raises(UserError, match=f"^a is {encoding.upper()},"):
        refuse_utf16("a", content)


def test_other_bytes_pass():
    for content in (b"", b"a", b"\0", b"\0" * 2000, b"a\0b c d " * 200):
        refuse_utf16("a", content)
    for encoding in ("utf-8", "utf-8-sig", "latin1"):
        refuse_utf16("a", TEXT.encode(encoding))
