"""Prose of the docstrings of installed packages: `read_packages`.

Their source is read; they are never imported.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from albert_tf.config import require
from data_prep.docstring_prose import module_docstrings
from data_prep.workers import Workers

STDLIB = "stdlib"

_TEST_NAMES = frozenset(("_test", "idle_test", "test", "tests"))
_SKIPPED_FOLDERS = _TEST_NAMES | {"__pycache__", "_bundled"}


class SourceFile(NamedTuple):
    """The source file of a module."""

    package: str
    name: str  # dotted
    path: str


class Module(NamedTuple):
    """The prose of a module, or one document of a text source."""

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


def installed_version(name: str) -> str | None:
    """Returns a package's version, None for a package without one."""
    if name == STDLIB:
        return platform.python_version()
    # The distribution may have another name: tensorflow-cpu.
    found = importlib.metadata.packages_distributions().get(name)
    return importlib.metadata.version(found[0]) if found else None


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


def _read_module(file: SourceFile) -> Module | str:
    """Returns the module's prose or the reason why there is none."""
    try:
        with open(file.path, encoding="utf-8-sig") as source:
            docstrings = module_docstrings(source.read())
    except UnicodeDecodeError:
        return "not UTF-8"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "not parsable"
    except OSError:
        return "not readable"
    if not docstrings:
        return "no prose"
    return Module(file.package, file.name, tuple(map(tuple, docstrings)))


def read_packages(
    packages: Iterable[str],
    workers: int,
    progress: Callable[[int, int], None],
) -> tuple[list[Module], dict[str, Counter]]:
    """Returns the modules with prose and, by package, the skipped by reason.

    Raises UserError as `package_directory` does.
    """
    directories = {name: package_directory(name) for name in packages}
    files = [
        file
        for package, directory in directories.items()
        for file in source_files(package, directory)
    ]
    modules = []
    skipped: dict[str, Counter] = defaultdict(Counter)
    with Workers(workers) as pool:
        for number, result in enumerate(pool.map(_read_module, files)):
            if isinstance(result, Module):
                modules.append(result)
            else:
                skipped[files[number].package][result] += 1
            progress(number + 1, len(files))
    return modules, skipped
