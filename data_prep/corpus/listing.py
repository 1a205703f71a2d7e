"""Finds the text files that inputs name: `list_files`."""

import glob
import os
from collections.abc import Iterable

from albert_tf.config import UserError, require
from data_prep.corpus.text_files import GZIP_SUFFIX

# Taken from directories, each also gzipped.
FORM_OF_SUFFIX = {
    ".txt": "plain",
    ".md": "markdown",
    ".jsonl": "json_lines",
    ".json": "json_lines",
    ".ndjson": "json_lines",
}
EXPECTED_INPUT = (
    "a file, a directory with "
    f"{', '.join('*' + s for s in FORM_OF_SUFFIX)} (or these with "
    f"{GZIP_SUFFIX}), or a pattern that matches files is needed."
)


def list_files(inputs: Iterable[str]) -> list[str]:
    """Returns the text files that `inputs` name, sorted, each once.

    An input is a file, a directory (searched to every depth, links included,
    for names as `is_text_name` has them) or a glob. Of several paths to one
    file the first in sorted order stands.

    Raises:
        UserError: if an input is missing, cannot be read, matches nothing or
            holds no text, or if a name is not UTF-8.
    """
    found: dict[str, str] = {}
    for path in inputs:
        files = _files_of(path)
        require(
            bool(files), f"The input {path!r} holds no text: {EXPECTED_INPUT}"
        )
        for file in files:
            location = os.path.realpath(file)
            found[location] = min(file, found.get(location, file))
    for path in map(os.path.abspath, found.values()):
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"The file name {path!r} is not UTF-8; rename it."
            ) from None
    return sorted(found.values())


def is_text_name(path: str) -> bool:
    """Returns whether a file is taken from a directory, by its relative path.

    Its suffix is in FORM_OF_SUFFIX, also gzipped, and no part of its path
    from the directory begins with a dot.
    """
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not hidden and text_suffix(path) in FORM_OF_SUFFIX


def text_suffix(path: str) -> str:
    """Returns the lower-case suffix of a file, without that of gzip."""
    name = path.lower().removesuffix(GZIP_SUFFIX)
    return os.path.splitext(name)[1]


def _files_of(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return _text_files_under(path)
    if glob.has_magic(path):
        return list(filter(_is_file, glob.glob(path, recursive=True)))
    require(os.path.exists(path), f"The input {path!r} does not exist.")
    raise UserError(
        f"The input {path!r} is no regular file; a file that can be read "
        "twice is needed."
    )


def _text_files_under(directory: str) -> list[str]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: {error.strerror}.")

    files = []
    seen = {os.path.realpath(directory)}
    walk = os.walk(directory, onerror=refuse, followlinks=True)
    for folder, folders, names in walk:
        paths = (os.path.join(folder, n) for n in names if is_text_name(n))
        files += filter(_is_file, paths)
        # Sorted, for of two links to one folder the first is followed.
        entered, folders[:] = sorted(folders), []
        for name in entered:
            location = os.path.realpath(os.path.join(folder, name))
            if not name.startswith(".") and location not in seen:
                seen.add(location)
                folders.append(name)
    return files


def _is_file(path: str) -> bool:
    """Returns whether a path is a regular file; a pipe would block.

    Raises:
        UserError: for a dangling link: text is missing.
    """
    require(
        os.path.exists(path),
        f"{path} is a link to a missing file; mend or remove it.",
    )
    return os.path.isfile(path)
