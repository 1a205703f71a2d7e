import re
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/extending.md"


@pytest.fixture
def import_section(tmp_path, monkeypatch):
    """Imports a section's block as a module, and undoes what it adds.

    Call it with the heading, the table that the block adds to, and the name
    of the row; it returns the row.
    """

    def call(heading, table, name):
        section = DOCUMENT.read_text().split(f"\n## {heading}\n")[1]
        block = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
        (tmp_path / "documented_block.py").write_text(block)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setitem(table, name, None)
        monkeypatch.delitem(sys.modules, "documented_block", raising=False)
        __import__("documented_block")
        return table[name]

    return call
