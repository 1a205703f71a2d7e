"""Prose of the docstrings of installed packages: `read_packages`.

Their source is read; they are never imported.
"""

import importlib.util
import os
import re
import sysconfig
from collections.abc import Callable, Iterable
from typing import NamedTuple

from albert_tf.config import require
from albert_tf.io.workers import Workers
from data_prep.docstring_prose import module_docstrings

STDLIB = "stdlib"

_TEST_NAMES = frozenset(("_test", "idle_test", "test", "tests"))
_SKIPPED_FOLDERS = _TEST_NAMES | {"__pycache__", "_bundled"}


class SourceFile(NamedTuple):
    """The source file of a module."""

    package: str
    name: str  # dotted
    path: str


class Module(NamedTuple):
    """The prose of a module."""

    package: str
    name: str  # dotted
    docstrings: tuple[tuple[str, ...], ...]  # paragraphs of each


def package_directory(name: str) -> str:
    """Returns a package's directory, without importing it.

    Raises:
        UserError: for a package that is not installed here.
    """
    if name == STDLIB:
        return sysconfig.get_path("stdlib")
    spec = importlib.util.find_spec(name)
    require(
        spec is not None,
        f"package {name!r} is not installed: pip install -r requirements.txt.",
    )
    return next(iter(spec.submodule_search_locations))


def source_files(package: str, directory: str) -> list[SourceFile]:
    """Returns a package's modules without its tests, sorted by name.

    Folders and files that no import statement can name (`site-packages`) are
    left out.
    """
    found = []
    for folder, subfolders, file_names in os.walk(directory):
        subfolders[:] = (
            name
            for name in subfolders
            if name.isidentifier() and name not in _SKIPPED_FOLDERS
        )
        parts = [] if package == STDLIB else [package]
        if folder != directory:
            parts += os.path.relpath(folder, directory).split(os.sep)
        for file_name in file_names:
            stem, extension = os.path.splitext(file_name)
            is_test = stem in _TEST_NAMES or re.search("^test_|_test$", stem)
            if extension == ".py" and stem.isidentifier() and not is_test:
                names = parts if stem == "__init__" else [*parts, stem]
                path = os.path.join(folder, file_name)
                found.append(SourceFile(package, ".".join(names), path))
    return sorted(found, key=lambda file: (file.name, file.path))


def _read_module(file: SourceFile) -> Module | None:
    """Returns the module's prose, None for a file that has or shows none."""
    try:
        with open(file.path, encoding="utf-8-sig") as source:
            docstrings = module_docstrings(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not docstrings:
        return None
    return Module(file.package, file.name, tuple(map(tuple, docstrings)))


def read_packages(
    packages: Iterable[str],
    workers: int,
    progress: Callable[[int, int], None],
) -> list[Module]:
    """Returns the modules with prose, package by package.

    Raises UserError as `package_directory` does.
    """
    files = [
        file
        for package in sorted(packages)
        for file in source_files(package, package_directory(package))
    ]
    modules = []
    with Workers(workers) as pool:
        for number, module in enumerate(pool.map(_read_module, files), 1):
            if module is not None:
                modules.append(module)
            progress(number, len(files))
    return modules
