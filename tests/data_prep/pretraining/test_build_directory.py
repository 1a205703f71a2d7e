import pytest

from albert_tf.config import UserError
from albert_tf.io.json_files import write_json
from data_prep.pretraining.build_directory import _size, read_build_json


def test_large_json_is_written_and_read(tmp_path):
    """Above what is allowed of JSON that users bring."""
    path = str(tmp_path / "metadata.json")
    value = {f"é-{n:05}": ["x" * 50, 2.5, None] for n in range(20_000)}
    write_json(path, value)
    assert read_build_json(path) == value


def test_damaged_json_is_refused_with_advice(tmp_path):
    path = tmp_path / "metadata.json"
    path.write_text('{"settings": {"seed"')
    with pytest.raises(UserError, match=f"^{path} is n.* Remove the"):
        read_build_json(str(path))


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (22.4, "22B"), (999, "999B"), (1234, "1.23kB")],
)
def test_bytes_are_whole(size, text):
    assert _size(size) == text
