"""Directories of units whose programs the tests call."""

import pytest


@pytest.fixture(scope="module")
def directory(tmp_path_factory, shards_dir):
    """A function of a unit, as of a ledger; the shards have been built."""
    root = tmp_path_factory.mktemp("units")
    for name in ("shards", "model"):
        (root / name).mkdir()
    (root / "shards/output").symlink_to(shards_dir)
    names = {"shards": "shards"}
    return lambda unit: str(root / names.get(unit.kind, "model"))
