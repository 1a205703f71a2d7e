"""The map of WORKSPACE.md names every module."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("albert_tf", "data_prep")


def map_section(text: str) -> str:
    """Returns the section "The map" of WORKSPACE.md."""
    return text.partition("\n## The map\n")[2].partition("\n## ")[0]


def modules_named(section: str) -> set[str]:
    """Returns the paths of the modules that the map names.

    A line that begins with `folder/` says where the names after it lie; one
    that is indented lies within the last that is not.
    """
    named, top, folder = set(), "", ""
    for line in section.splitlines():
        if found := re.match(r"( *)([\w/]+)/", line):
            name = found[2]
            top, folder = (top, f"{top}/{name}") if found[1] else (name, name)
        named |= {f"{folder}/{file}" for file in re.findall(r"\w+\.py\b", line)}
    return named


def modules_there() -> set[str]:
    """Returns the paths of the modules that the map should name."""
    return {
        path.relative_to(ROOT).as_posix()
        for top in MAPPED
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    }


def test_the_map_names_every_module_and_no_other():
    text = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
    named, there = modules_named(map_section(text)), modules_there()
    assert "albert_tf/records/schemas.py" in there
    assert sorted(there - named) == []
    missing = [path for path in named if not (ROOT / path).is_file()]
    assert sorted(missing) == []
