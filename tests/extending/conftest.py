import re
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/extending.md"


@pytest.fixture(scope="session")
def documented_block():
    """A function that returns the block of a section, by its heading."""

    def call(heading):
        section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1]
        return re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]

    return call


@pytest.fixture
def import_section(documented_block, tmp_path, monkeypatch):
    """Imports a section's block as a module, and undoes what it adds.

    Call it with the heading, the table that the block adds to, and the name
    of the row; it returns the row.
    """

    def call(heading, table, name):
        (tmp_path / "documented_block.py").write_text(documented_block(heading))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(table, name, None)
        monkeypatch.delitem(sys.modules, "documented_block", raising=False)
        __import__("documented_block")
        return table[name]

    return call
