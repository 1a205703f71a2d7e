"""The map of WORKSPACE.md names every module, and modules have good names."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = ("albert_tf", "benchmarks", "bin", "data_prep", "experiments")


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


def test_the_map_names_every_module_and_no_other():
    text = (ROOT / "WORKSPACE.md").read_text(encoding="utf-8")
    section = text.partition("\n## The map\n")[2].partition("\n## ")[0]
    named = modules_named(section)
    there = {
        path.relative_to(ROOT).as_posix()
        for top in ("albert_tf", "data_prep")
        for path in (ROOT / top).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert "albert_tf/records/schemas.py" in there
    assert sorted(there - named) == []
    missing = [path for path in named if not (ROOT / path).is_file()]
    assert sorted(missing) == []


def test_modules_are_named_after_their_subject():
    names = {
        path.stem for top in TOP_LEVEL for path in (ROOT / top).rglob("*.py")
    }
    assert not names & {"util", "utils", "helper", "helpers", "misc"}
