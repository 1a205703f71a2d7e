"""Data sets that `datasets` saved to disk, among the files of a directory.

Main entry: `find_saved`.
"""

import os
import re
from collections.abc import Collection
from typing import Any, NamedTuple

from albert_tf.io import files
from albert_tf.tasks.formats.arrow import INFO, STATE, saved_files

# Lies in the directory of several splits, each of which has one of its own.
_SPLITS = "dataset_dict.json"
_HELD_OUT = re.compile(r"(dev|eval|test|val|valid|validation)(?![a-z])", re.I)


class SavedFiles(NamedTuple):
    """The files of saved data sets.

    Attributes:
        texts: those with the rows.
        held_out: those with the rows of splits that are for evaluation.
        others: those that belong to them.
    """

    texts: list[str]
    held_out: list[str]
    others: set[str]


def find_saved(paths: Collection[str], file_system: Any = files) -> SavedFiles:
    """Returns the files of the saved data sets among those of a directory.

    Of several splits those are held out whose names begin with dev, eval,
    test, val, valid or validation. A data set by itself is no split.

    Raises:
        UserError: for a data set that is damaged; see `saved_files`.
    """
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        names.setdefault(folder, set()).add(name)
    found = SavedFiles([], [], set())
    for folder in sorted(names):
        if not {STATE, INFO} <= names[folder]:
            continue
        parent, split = os.path.split(folder)
        is_split = _SPLITS in names.get(parent, ())
        is_held_out = is_split and _HELD_OUT.match(split)
        rows = found.held_out if is_held_out else found.texts
        rows += saved_files(folder, file_system)
        # Some are left by `Dataset.map`, which keeps its results there.
        found.others.update(os.path.join(folder, n) for n in names[folder])
        if is_split:
            found.others.add(os.path.join(parent, _SPLITS))
    found.others.difference_update(found.texts, found.held_out)
    return found
