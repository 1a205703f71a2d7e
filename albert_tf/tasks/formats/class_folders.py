"""Texts in files: in a folder for each class, or in one without labels."""

import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.compression import SUFFIXES
from albert_tf.tasks.formats.tables import decoded_lines, stored_lines

_ENDINGS = tuple(f".txt{packed}" for packed in ("", *SUFFIXES))
_ADVICE = "expected a text."


class TextFile(NamedTuple):
    """A file with a text, and the folder of its class, if it has one."""

    path: str
    label: str | None


def class_files(directory: str) -> Iterator[TextFile]:
    """Yields the text files in the folders of a directory, sorted.

    Hidden ones are left out; a directory without such folders has none.
    """
    return filter(_is_text, _all_files(directory))


def unlabelled_files(directory: str) -> Iterator[TextFile]:
    """Yields the text files right in a directory, sorted, but hidden ones."""
    for name in _names(directory):
        file = TextFile(os.path.join(directory, name), None)
        if _is_text(file) and files.isfile(file.path):
            yield file


def other_files(directory: str) -> list[str]:
    """Returns the files beside those of `class_files`, as folder/name."""
    found = itertools.filterfalse(_is_text, _all_files(directory))
    return [f"{file.label}/{os.path.basename(file.path)}" for file in found]


def other_unlabelled_files(directory: str) -> list[str]:
    """Returns the names of what is beside `unlabelled_files`, folders too."""
    texts = {os.path.basename(f.path) for f in unlabelled_files(directory)}
    return [name for name in _names(directory) if name not in texts]


def read_text_file(path: str) -> str:
    """Returns the text in a file, without line ends at its end.

    Raises UserError for a file that cannot be read or is not UTF-8.
    """
    # An empty file is a text too.
    stored = itertools.chain(stored_lines(path, _ADVICE), [b"\n"])
    return "".join(decoded_lines(path, stored, _ADVICE)).rstrip("\r\n")


def _all_files(directory: str) -> Iterator[TextFile]:
    """Yields what is in folders; raises UserError for a label not in UTF-8."""
    for label in _names(directory):
        folder = os.path.join(directory, label)
        if files.isdir(folder):
            try:
                label.encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"The name of the folder {folder!r} is not UTF-8; rename "
                    "it."
                ) from None
            for name in _names(folder):
                yield TextFile(os.path.join(folder, name), label)


def _is_text(file: TextFile) -> bool:
    return file.path.lower().endswith(_ENDINGS)


def _names(directory: str) -> list[str]:
    return [name for name in files.listdir(directory) if name[0] != "."]
