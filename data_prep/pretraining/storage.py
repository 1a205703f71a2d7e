"""Where a build reads its corpus and writes its shards: `LocalStorage`.

`Storage` says what a build asks of a file system; `beam_storage` gives it for
gs://, hdfs:// and the like.
"""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol, TypeVar

from albert_tf.config import UserError
from data_prep.corpus import reading as corpus

# What a stopped build may leave of a file that was not finished.
TEMPORARY_SUFFIX = r"\.tmp-\d+"
LOCK_FILE = "lock"

Result = TypeVar("Result")


def is_remote(path: str) -> bool:
    """Returns whether a path names another file system, as gs://bucket/x."""
    return "://" in path


def temporary_name(path: str) -> str:
    """Returns a name for `path` while it is written, another at every call.

    Processes on several machines may write one path at the same time.
    """
    return f"{path}.tmp-{uuid.uuid4().int}"


class Storage(Protocol):
    """A file system, as far as a build needs one."""

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name, see `corpus.list_files`.

        Raises:
            UserError: if an input is missing or holds no text.
        """
        ...

    def open_file(self, path: str, mode: str = "rb") -> BinaryIO:
        """Returns a file to read, as it is stored."""
        ...

    def write(self, path: str, write: Callable[[BinaryIO], Result]) -> Result:
        """Returns what `write` does, given a file that becomes `path`.

        The file has its name only when it is complete.
        """
        ...

    def sizes(self, directory: str) -> dict[str, int]:
        """Returns the bytes of each file right in a directory, by name.

        A directory that does not exist has none.
        """
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Removes files."""
        ...

    def remove_directory(self, directory: str) -> None:
        """Removes a directory with all that it holds, if it exists."""
        ...

    def hold(self, directory: str) -> contextlib.AbstractContextManager[None]:
        """Makes a directory, and keeps other builds out of it if it can.

        Raises:
            UserError: if another build is at work in it.
        """
        ...

    def free_bytes(self, directory: str) -> int | None:
        """Returns the room that is left, None if there is no telling."""
        ...


class LocalStorage:
    """The disks of this machine."""

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name."""
        return corpus.list_files(inputs)

    def open_file(self, path: str, mode: str = "rb") -> BinaryIO:
        """Returns a file to read."""
        return open(path, mode)

    def write(self, path: str, write: Callable[[BinaryIO], Result]) -> Result:
        """Returns what `write` does; the file is on disk then."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = temporary_name(path)
        try:
            with open(temporary, "wb") as file:
                result = write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
            raise
        return result

    def sizes(self, directory: str) -> dict[str, int]:
        """Returns the bytes of each file right in a directory, by name."""
        try:
            entries = sorted(os.scandir(directory), key=lambda e: e.name)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {e.name: e.stat().st_size for e in entries if e.is_file()}

    def remove(self, paths: Sequence[str]) -> None:
        """Removes files."""
        for path in paths:
            os.remove(path)

    def remove_directory(self, directory: str) -> None:
        """Removes a directory with all that it holds, if it exists."""
        shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def hold(self, directory: str) -> Iterator[None]:
        """Makes a directory and keeps other builds out of it."""
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, LOCK_FILE)
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"Another build is at work in {os.path.dirname(directory)}"
                    "; wait for it or choose another output directory."
                ) from None
            yield
        finally:
            os.close(lock)

    def free_bytes(self, directory: str) -> int:
        """Returns the room that is left."""
        return shutil.disk_usage(directory).free


def read_json(storage: Storage, path: str) -> dict[str, Any]:
    """Returns the JSON object in a file that a build has written.

    `config.read_json` is for files of users and limits their size.

    Raises:
        UserError: when the file cannot be read, or holds no JSON object.
    """
    try:
        with storage.open_file(path, "rb") as file:
            value = json.loads(file.read())
    except OSError as error:
        said = error.strerror or " ".join(str(error).split())
        raise UserError(f"{path}: {said}.") from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        # Not the file alone: what a build left beside it needs it.
        raise UserError(
            f"{path} is damaged: it is not a JSON object; remove the output "
            "directory or choose another."
        )
    return value


def write_json(storage: Storage, path: str, value: Any) -> None:
    """Writes a JSON file as `config.write_json` does."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    storage.write(path, lambda file: file.write(f"{text}\n".encode()))
