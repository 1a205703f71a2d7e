import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file in the test's directory, and returns its path."""

    def call(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_bytes = isinstance(content, bytes)
        path.write_bytes(content if is_bytes else content.encode())
        return str(path)

    return call
