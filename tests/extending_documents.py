"""The Python blocks of docs/extending.md, run as modules of their own."""

import importlib.util
import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs/extending.md"


def import_section(title, directory, table, row, monkeypatch):
    """Imports the block of a section; monkeypatch removes its row again."""
    section = DOCUMENT.read_text().split(f"## {title}\n")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    path = directory / f"{row}.py"
    path.write_text(block)
    monkeypatch.setitem(table, row, None)
    spec = importlib.util.spec_from_file_location(row, path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
