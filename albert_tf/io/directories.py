"""Directories that are written elsewhere and appear when they are complete.

`new_directory` is for disks; `local_directory` is for buckets, which rename no
directories. What a process that was killed has left is removed by the next one
that writes to the same path; a lock shows whether its owner still runs.
"""

import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.locks import locked

# The mark stands behind a path, before 12 hexadecimal digits. Temporary files
# have another, after which only files are looked for.
_WRITING = ".writing-"
_LOCK = ".lock"
_HINT = "Wait until that has ended, or name another directory."


def path_on_disk(path: files.Path) -> str:
    """Returns the path of a `new_directory` to be, without links.

    A directory cannot be renamed to a link.

    Raises:
        UserError: for a path in a bucket.
    """
    require(
        not files.is_remote(path),
        f"{path} is in a bucket, which cannot rename the directory when it is "
        "complete; name one on a disk, and copy it to the bucket then.",
    )
    return os.path.realpath(path)


@contextlib.contextmanager
def made_directory(path: files.Path) -> Iterator[None]:
    """Makes a directory, and those above it, for what the body writes.

    What was made is removed again where the body fails before it has written.
    """
    missing, above = [], os.path.abspath(path)
    while not files.is_remote(path) and not os.path.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    files.makedirs(path)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for directory in missing:
                os.rmdir(directory)
        raise


@contextlib.contextmanager
def new_directory(path: files.Path, *, shared: bool = False) -> Iterator[str]:
    """Yields a new directory on disk, beside `path`, to be renamed to it.

    No other file or directory has its name; it is removed with the context
    unless it was renamed. Those that killed processes have left are removed.

    Args:
        path: the final one.
        shared: whether others may write to `path` at the same time.

    Raises:
        UserError: when another process is writing to `path`, unless `shared`.
    """
    path = os.path.abspath(path)
    directory = f"{path}{_WRITING}{uuid.uuid4().hex[:12]}"
    with files.naming(path, directory), contextlib.ExitStack() as stack:
        files.makedirs(os.path.dirname(path))
        # The lock comes before the directory, so that no other process takes
        # that for a rest.
        stack.enter_context(locked(f"{directory}{_LOCK}", _HINT, path))
        problems = remove_unfinished(path, except_for=directory)
        if problems and not shared:
            raise problems[0]
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        os.makedirs(directory)
        yield directory


def remove_unfinished(path: str, except_for: str = "") -> list[UserError]:
    """Removes what killed processes have left of a `new_directory`.

    Returns an error for each that another process is still writing.
    """
    parent, name = os.path.split(path)
    # Their locks too: a process was killed before it made the directory.
    found = {entry.removesuffix(_LOCK) for entry in files.listdir(parent)}
    problems = []
    for entry in sorted(found):
        rest = os.path.join(parent, entry)
        if rest == except_for or not is_new_directory(entry, name):
            continue
        try:
            with locked(f"{rest}{_LOCK}", _HINT, path):
                shutil.rmtree(rest, ignore_errors=True)
        except UserError as error:
            problems.append(error)
    return problems


def is_new_directory(found: str, name: str) -> bool:
    """Returns whether `found` is a name of `new_directory` for `name`."""
    pattern = rf"{re.escape(name + _WRITING)}[0-9a-f]{{12}}"
    return re.fullmatch(pattern, found) is not None


@contextlib.contextmanager
def local_directory(
    directory: files.Path, last: str, *, replaces: Collection[str] = ()
) -> Iterator[str]:
    """Yields a directory on disk for files that are to go to `directory`.

    It is `directory` itself, made where missing, where that is on disk. Else
    it is a temporary one, whose files go to the bucket at the end; when the
    body fails, nothing changes there.

    Args:
        directory: on disk or in a bucket.
        last: the file that a reader looks for first; a directory without it
            counts as incomplete.
        replaces: names in a bucket's directory that are removed where the
            body wrote none of that name; all other names stay.

    Raises:
        UserError: when another process is writing to it in a bucket.
    """
    directory = os.fspath(directory)
    if not files.is_remote(directory):
        files.makedirs(directory)
        yield directory
        return
    directory = directory.rstrip("/")
    # A whole bucket has no neighbours.
    is_bucket = re.fullmatch(r"[^/]*//[^/]*", directory)
    lock = f"{directory}{'/' if is_bucket else ''}{_LOCK}"
    files.makedirs(os.path.dirname(lock))
    with (
        locked(lock, _HINT, directory),
        tempfile.TemporaryDirectory() as local,
    ):
        yield local
        _upload(local, directory, last, replaces)


def _upload(
    source: str, target: str, last: str, replaces: Collection[str]
) -> None:
    """Copies the files of a directory on disk into one in a bucket.

    A bucket renames no directories. So the files in it stay until all new
    ones are there under temporary names; then `last` goes first and comes
    last, so that no mixture of old and new files looks complete.
    """
    names = sorted(_files_below(source), key=lambda name: name == last)
    arriving = {n: files.temporary_name(f"{target}/{n}") for n in names}
    try:
        for parent in set(map(os.path.dirname, arriving.values())):
            files.makedirs(parent)
        for name, arrived in arriving.items():
            with (
                files.open(os.path.join(source, name)) as local,
                files.open(arrived, "wb") as remote,
            ):
                shutil.copyfileobj(local, remote, files.BUFFER_BYTES)
        if files.isfile(f"{target}/{last}"):
            files.remove(f"{target}/{last}")
        for name, arrived in arriving.items():
            files.replace(arrived, f"{target}/{name}")
    except BaseException:
        # Another error must not hide the one that led here.
        for arrived in arriving.values():
            with contextlib.suppress(OSError):
                files.remove(arrived)
        raise
    for name in set(_files_below(target)).difference(names):
        whole = files.unfinished(name) or name
        if whole in names or whole.split("/")[0] in replaces:
            files.remove(f"{target}/{name}")


def _files_below(directory: str, within: str = "") -> Iterator[str]:
    """Yields the names of a directory's files, those deeper as "a/b"."""
    for name in files.listdir(os.path.join(directory, within)):
        path = os.path.join(within, name)
        if files.isdir(os.path.join(directory, path)):
            yield from _files_below(directory, path)
        else:
            yield path
