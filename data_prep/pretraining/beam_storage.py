"""The file systems that Apache Beam reaches, as a `storage.Storage`.

Main entry: `storage_of`. A path without a scheme is this machine's, or a
directory that all machines share.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import (
    BeamIOError,
    CompressionTypes,
    FileMetadata,
)
from apache_beam.io.filesystems import FileSystems

from albert_tf.config import UserError
from data_prep.corpus import reading as corpus
from data_prep.pretraining.storage import (
    LocalStorage,
    Result,
    Storage,
    is_remote,
    temporary_name,
)

# Text is unpacked by `text_files`, whatever the file system.
_AS_STORED = CompressionTypes.UNCOMPRESSED


def storage_of(path: str) -> Storage:
    """Returns the storage that a path belongs to."""
    return RemoteStorage() if is_remote(path) else LocalStorage()


def list_files(inputs: Sequence[str]) -> list[str]:
    """Returns the text files that `inputs` name, in whichever storages.

    Raises:
        UserError: if an input is missing or holds no text, or there is none.
    """
    local = [path for path in inputs if not is_remote(path)]
    remote = [path for path in inputs if is_remote(path)]
    files = LocalStorage().list_files(local) if local or not remote else []
    return files + (RemoteStorage().list_files(remote) if remote else [])


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Returns a file to read, wherever it is stored."""
    return storage_of(path).open_file(path, mode)


class RemoteStorage:
    """A file system that Beam knows by its scheme: gs, hdfs, s3 and others.

    Nothing keeps two builds apart there; of one plan both write the same.
    """

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name.

        Patterns are Beam's: `*` stays within a directory, `**` does not.
        Beam lists hdfs:// to no depth: a directory's own files are taken.
        """
        found: set[str] = set()
        for path in inputs:
            with _told(path):
                files = _files_at(path)
            if not files:
                raise UserError(
                    f"The input {path!r} does not exist or holds no text: a "
                    "file, a directory with "
                    f"{', '.join('*' + s for s in corpus.TEXT_SUFFIXES)} (or "
                    f"these with {corpus.GZIP_SUFFIX}), or a pattern that "
                    "matches files is needed."
                )
            found.update(files)
        return sorted(found)

    def open_file(self, path: str, mode: str = "rb") -> BinaryIO:
        """Returns a file to read, as it is stored."""
        assert mode == "rb", mode
        return FileSystems.open(path, compression_type=_AS_STORED)

    def write(self, path: str, write: Callable[[BinaryIO], Result]) -> Result:
        """Returns what `write` does; the file is renamed when complete."""
        temporary = temporary_name(path)
        with FileSystems.create(temporary, compression_type=_AS_STORED) as file:
            result = write(file)
        try:
            FileSystems.rename([temporary], [path])
        except BeamIOError:
            # HDFS renames to a free name only.
            if not FileSystems.exists(path):
                raise
            FileSystems.delete([path])
            FileSystems.rename([temporary], [path])
        return result

    def sizes(self, directory: str) -> dict[str, int]:
        """Returns the bytes of each file right in a directory, by name."""
        with _told(directory):
            files = _under(directory, "*")
        return {
            os.path.basename(file.path): file.size_in_bytes
            for file in sorted(files, key=lambda file: file.path)
        }

    def remove(self, paths: Sequence[str]) -> None:
        """Removes files."""
        FileSystems.delete(list(paths))

    def remove_directory(self, directory: str) -> None:
        """Removes a directory with all that it holds, if it exists."""
        if self.sizes(directory):
            # Ends with the slash by which GCS and S3 know a directory.
            FileSystems.delete([os.path.join(directory, "")])

    def hold(self, directory: str) -> contextlib.AbstractContextManager[None]:
        """Returns a context that does nothing: a file makes its directory."""
        del directory
        return contextlib.nullcontext()

    def free_bytes(self, directory: str) -> None:
        """Returns None: there is no telling."""
        del directory


def _files_at(path: str) -> list[str]:
    try:
        files = [file.path for file in _match(path)]
    except BeamIOError:
        files = []  # HDFS has no size for a directory.
    if files:
        return files
    return [
        file.path
        for file in _under(path, "**")
        if corpus.is_text_name(file.path.removeprefix(path))
    ]


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
def _told(path: str) -> Iterator[None]:
    """Turns what Beam has against a path into a UserError.

    An ImportError or ValueError tells which extra or option is missing.
    """
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        said = " ".join(str(error).split())
        raise UserError(f"{path} cannot be used: {said}") from None
