"""The files of a model directory, replaced all at once.

Main entries: `replacing_directory`, and `recover_directory` after a kill.
"""

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator

from albert_tf.interchange.task_record import TASK_FILE
from albert_tf.io import files
from albert_tf.modeling.weights import pretrained
from albert_tf.text import tokenizer, tokenizer_base

TOKENIZER_FILES = (
    *(kind.vocabulary_file for kind in tokenizer.KINDS),
    tokenizer_base.JSON_FILE,
    tokenizer_base.CONFIG_FILE,
)
MODEL_FILES = (pretrained.CONFIG_FILE, pretrained.WEIGHTS_FILE)
# Those that `save_model_directory` writes.
FILES = frozenset((*TOKENIZER_FILES, *MODEL_FILES, TASK_FILE))
# Suffix of a directory while another is renamed to its name.
_OLD = ".old"


@contextlib.contextmanager
def replacing_directory(
    directory: str,
    last: str = pretrained.CONFIG_FILE,
    *,
    replaces: Collection[str] = FILES,
) -> Iterator[str]:
    """Yields a new directory that replaces `directory` when the body ends.

    When the body fails, `directory` is as it was.

    Args:
        directory: made where missing.
        last: the file without which a directory in a bucket is incomplete.
        replaces: names in `directory` that are removed; files of other names
            are moved to the new one.
    """
    if files.is_remote(directory):
        with files.local_directory(
            directory, last, replaces=replaces
        ) as temporary:
            yield temporary
        return
    with files.new_directory(directory) as temporary:
        yield temporary
        flush_files(temporary)
        old = f"{temporary}{_OLD}"
        if os.path.isdir(directory):
            os.rename(directory, old)
        try:
            os.rename(temporary, directory)
        except BaseException:
            if os.path.isdir(old):
                os.rename(old, directory)
            raise
    if os.path.isdir(old):
        _empty(old, directory, replaces)


def recover_directory(directory: str) -> None:
    """Completes a `replacing_directory` of a process that was killed.

    Only where no other process writes. The old directory is put back if it
    was already renamed.
    """
    if files.is_remote(directory):
        return
    parent, name = os.path.split(os.path.abspath(directory))
    for found in files.listdir(parent):
        if not files.is_new_directory(found, name):
            continue
        path = os.path.join(parent, found)
        if not path.endswith(_OLD):
            shutil.rmtree(path)
        elif os.path.isdir(directory):
            _empty(path, directory, FILES)
        else:
            os.rename(path, directory)


def _empty(old: str, directory: str, replaces: Collection[str]) -> None:
    """Moves other files to the new directory and removes the replaced."""
    for name in os.listdir(old):
        path, target = os.path.join(old, name), os.path.join(directory, name)
        if name not in replaces:
            if not os.path.lexists(target):
                os.rename(path, target)
        elif os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    # A name that the new directory has too stays in the old one.
    if not os.listdir(old):
        os.rmdir(old)


def flush_files(directory: str) -> None:
    """Waits until every file of a directory is on the disk."""
    for parent, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                os.fsync(file.fileno())
