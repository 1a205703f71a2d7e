"""Files in the file systems that Apache Beam reaches: gs, hdfs, s3 and others.

Has those functions of `albert_tf.io.files` that builds use.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import (
    BeamIOError,
    CompressionTypes,
    FileMetadata,
)
from apache_beam.io.filesystems import FileSystems

from albert_tf.config import UserError, require
from albert_tf.io import files
from data_prep.corpus import listing

# Text is unpacked by `text_files`, whatever the file system.
_AS_STORED = CompressionTypes.UNCOMPRESSED


def list_files(
    inputs: Sequence[str], left_out: set[str] | None = None
) -> list[str]:
    """Returns the text files that `inputs` name, in any file system.

    The other files of directories are added to `left_out`.

    Patterns of remote paths are Beam's: `*` stays within a directory, `**`
    does not. Beam lists hdfs:// to no depth: a directory's own files are
    taken.

    Raises:
        UserError: if an input is missing or holds no text.
    """
    left_out = set() if left_out is None else left_out
    found = listing.list_files(
        itertools.filterfalse(files.is_remote, inputs), left_out
    )
    remote: set[str] = set()
    for path in filter(files.is_remote, inputs):
        with _user_errors(path):
            of_path = _files_at(path, left_out)
        require(
            bool(of_path),
            f"The input {path!r} does not exist or holds no text: "
            f"{listing.EXPECTED_INPUT}",
        )
        remote.update(of_path)
    left_out.difference_update(remote)
    return found + sorted(remote)


def open(path: str, mode: str = "rb") -> BinaryIO:
    """Returns a file to read, as it is stored."""
    del mode
    return FileSystems.open(path, compression_type=_AS_STORED)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Gives a file to write, which is renamed when it is complete."""
    temporary = files.temporary_name(path)
    with FileSystems.create(temporary, compression_type=_AS_STORED) as file:
        yield file
    try:
        FileSystems.rename([temporary], [path])
    except BeamIOError:
        # HDFS renames to a free name only.
        if not FileSystems.exists(path):
            raise
        FileSystems.delete([path])
        FileSystems.rename([temporary], [path])


def sizes(directory: str) -> dict[str, int]:
    """Returns the bytes of each file right in a directory, by name."""
    with _user_errors(directory):
        found = _under(directory, "*")
    return {
        os.path.basename(file.path): file.size_in_bytes
        for file in sorted(found, key=lambda file: file.path)
    }


def makedirs(path: str) -> None:
    """Does nothing: a file makes its directory."""


def remove(path: str) -> None:
    """Removes a file."""
    FileSystems.delete([path])


def remove_tree(directory: str) -> None:
    """Removes a directory with all that it holds, if it exists."""
    if sizes(directory):
        # Ends with the slash by which GCS and S3 know a directory.
        FileSystems.delete([os.path.join(directory, "")])


def _files_at(path: str, left_out: set[str]) -> list[str]:
    """Returns the files of an input; those it leaves out are added."""
    try:
        found = [file.path for file in _match(path)]
    except BeamIOError:
        found = []  # HDFS has no size for a directory.
    if found:
        return found
    below = [file.path for file in _under(path, "**")]
    seen = [f for f in below if not listing.is_hidden(f.removeprefix(path))]
    return listing.texts_among(seen, left_out, sys.modules[__name__])


def _under(directory: str, pattern: str) -> list[FileMetadata]:
    try:
        return _match(os.path.join(directory, pattern))
    except BeamIOError:
        # HDFS lists what exists only.
        if FileSystems.exists(directory):
            raise
        return []


def _match(pattern: str) -> list[FileMetadata]:
    (result,) = FileSystems.match([pattern])
    return result.metadata_list


@contextlib.contextmanager
def _user_errors(path: str) -> Iterator[None]:
    """Turns errors of Beam about a path into a UserError.

    An ImportError or ValueError names the extra or option that is missing.
    """
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be used: {reason}") from None
