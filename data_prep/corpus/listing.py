"""Finds the text files that inputs name: `list_files`.

What it leaves out of directories is described by `describe_left_out`.
"""

import glob
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.compression import SUFFIXES, plain_name, suffix_of
from data_prep.corpus.arrow_texts import STREAM_SUFFIX
from data_prep.corpus.saved_data_sets import find_saved

# Taken from directories, each also compressed.
FORM_OF_SUFFIX = {
    ".txt": "plain",
    ".md": "markdown",
    ".jsonl": "json_lines",
    ".json": "json_lines",
    ".ndjson": "json_lines",
    # Rows of Parquet are read like such lines.
    ".parquet": "json_lines",
}
EXPECTED_INPUT = (
    "a file, a directory with "
    f"{', '.join('*' + s for s in FORM_OF_SUFFIX)} (or these with "
    f"{', '.join(SUFFIXES)}), a data set that `datasets` saved, or a pattern "
    "that matches files is needed."
)
# Kinds of files that a message names.
_SHOWN_KINDS = 8


def list_files(
    inputs: Iterable[str], left_out: set[str] | None = None
) -> list[str]:
    """Returns the text files that `inputs` name, sorted, each once.

    An input is a file, a directory (searched to every depth, links included,
    for `texts_among` its files) or a glob. Of several paths to one file the
    first in sorted order stands. The other files of directories, hidden ones
    aside, are added to `left_out`.

    Raises:
        UserError: if an input is missing, cannot be read, matches nothing or
            holds no text, or if a name is not UTF-8.
    """
    found: dict[str, str] = {}
    left_out = set() if left_out is None else left_out
    for path in inputs:
        others: set[str] = set()
        paths = _files_of(path, others)
        _require_text(path, paths, others)
        left_out.update(map(os.path.realpath, others))
        for file in paths:
            location = os.path.realpath(file)
            found[location] = min(file, found.get(location, file))
    for path in map(os.path.abspath, found.values()):
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"The file name {path!r} is not UTF-8; rename it."
            ) from None
    left_out.difference_update(found)
    return sorted(found.values())


def relative_names(paths: Sequence[str]) -> list[str]:
    """Returns the paths of files relative to their common directory.

    They do not depend on where the files lie, and no two are equal.
    """
    absolute = (p if files.is_remote(p) else os.path.abspath(p) for p in paths)
    parts = [path.split("/") for path in absolute]
    folders = [part[:-1] for part in parts]
    depth = len(os.path.commonprefix(folders))  # noqa: RUF071, of lists
    return ["/".join(part[depth:]) for part in parts]


def _require_text(
    path: str, paths: Collection[str], left_out: Collection[str]
) -> None:
    """Raises UserError unless an input holds files at `paths`."""
    others = f"{describe_left_out(left_out)}. " if left_out else ""
    others += EXPECTED_INPUT[0].upper() + EXPECTED_INPUT[1:]
    require(bool(paths), f"The input {path!r} holds no text. {others}")


def describe_left_out(paths: Collection[str]) -> str:
    """Returns how many files of which kind are not read."""
    kinds = Counter(map(_kind, sorted(paths))).most_common()
    shown = [f"{number} {kind}" for kind, number in kinds[:_SHOWN_KINDS]]
    if rest := sum(number for _, number in kinds[_SHOWN_KINDS:]):
        shown.append(f"{rest} of other kinds")
    return f"Files that are not read: {', '.join(shown)}"


def _kind(path: str) -> str:
    """Returns a file's suffix, in front of that of compression, if any.

    That of a split has its name.
    """
    suffix = text_suffix(path)
    if suffix == STREAM_SUFFIX:
        return f"{suffix} in {os.path.basename(os.path.dirname(path))}"
    return suffix + suffix_of(path.lower()) or "without a suffix"


def texts_among(
    paths: Collection[str], left_out: set[str], file_system: Any = files
) -> list[str]:
    """Returns the visible files of a directory that are read.

    They have a suffix in FORM_OF_SUFFIX, also compressed, or are of a saved
    data set and not held out, see `find_saved`. Others are added to `left_out`.
    """
    saved = find_saved(paths, file_system)
    known = {*saved.texts, *saved.held_out, *saved.others}
    others = [path for path in paths if path not in known]
    texts = list(filter(_has_text_suffix, others))
    left_out.update(set(others).difference(texts), saved.held_out)
    return saved.texts + texts


def is_hidden(path: str) -> bool:
    """Returns whether a part of a path begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def _has_text_suffix(path: str) -> bool:
    return text_suffix(path) in FORM_OF_SUFFIX


def text_suffix(path: str) -> str:
    """Returns the lower-case suffix of a file, without that of compression."""
    return os.path.splitext(plain_name(path.lower()))[1]


def _files_of(path: str, left_out: set[str]) -> list[str]:
    """Returns the files of an input; those it leaves out are added."""
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return _text_files_under(path, left_out)
    if glob.has_magic(path):
        return list(filter(_is_file, glob.glob(path, recursive=True)))
    require(os.path.exists(path), f"The input {path!r} does not exist.")
    raise UserError(
        f"The input {path!r} is no regular file; a file that can be read "
        "twice is needed."
    )


def _text_files_under(directory: str, left_out: set[str]) -> list[str]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: {error.strerror}.")

    paths = []
    seen = {os.path.realpath(directory)}
    walk = os.walk(directory, onerror=refuse, followlinks=True)
    for folder, folders, names in walk:
        paths += [os.path.join(folder, n) for n in names if n[0] != "."]
        # Sorted, for of two links to one folder the first is followed.
        entered, folders[:] = sorted(folders), []
        for name in entered:
            location = os.path.realpath(os.path.join(folder, name))
            if not name.startswith(".") and location not in seen:
                seen.add(location)
                folders.append(name)
    return list(filter(_is_file, texts_among(paths, left_out)))


def _is_file(path: str) -> bool:
    """Returns whether a path is a regular file; a pipe would block.

    Raises:
        UserError: for a dangling link, and for a file that a saved data set
            lacks: text is missing.
    """
    is_link = os.path.islink(path)
    what = (
        "a link to a missing file; mend or remove it" if is_link else "missing"
    )
    require(os.path.exists(path), f"{path} is {what}.")
    return os.path.isfile(path)
