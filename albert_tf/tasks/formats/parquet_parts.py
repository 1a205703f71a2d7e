"""The files that one table in Parquet consists of."""

import os
import re

from albert_tf.config import require
from albert_tf.io import files

# The ending of the names of parts that `push_to_hub` wrote.
_DIGEST = "-[0-9a-f]{16}"
# The first of the parts of a table, as the hub's data sets are divided.
FIRST_PART = re.compile(rf"(.+)-00000-of-([0-9]{{5}})({_DIGEST})?\.parquet")
# A part of a table in a directory: Spark's, Dask's, and the hub's conversion.
_PART = re.compile(r"part[-.][0-9]+([-.].*)?\.parquet|[0-9]{4}\.parquet")


def parts_in(directory: str) -> list[str]:
    """Returns the paths of a table's parts in a directory, by their numbers."""
    names = files.listdir(directory) if files.isdir(directory) else []
    found = sorted(
        filter(_PART.fullmatch, names), key=lambda n: (_number(n), n)
    )
    # Years are other tables.
    if found and found[0][0].isdecimal() and _number(found[0]):
        return []
    return [os.path.join(directory, name) for name in found]


def _number(name: str) -> int:
    return int(re.findall("[0-9]+", name)[0])


def parts_of(path: str) -> list[str]:
    """Returns the paths of all parts of a table, by a directory or the first.

    Another path is its own only part. Raises UserError for parts that are
    missing.
    """
    if found := parts_in(path):
        return found
    part = FIRST_PART.fullmatch(path)
    if not part:
        return [path]
    name, count, digest = part.groups()
    stems = [f"{name}-{n:05d}-of-{count}" for n in range(int(count))]
    if not digest:
        return [f"{stem}.parquet" for stem in stems]
    directory = os.path.dirname(path)
    stored = [
        os.path.join(directory, n) for n in files.listdir(directory or ".")
    ]
    found = []
    for stem in stems:
        pattern = re.compile(rf"{re.escape(stem)}{_DIGEST}\.parquet")
        parts = list(filter(pattern.fullmatch, stored))
        require(
            len(parts) == 1,
            f"{path} is one of {count} parts; expected one "
            f"{stem}-....parquet, got {len(parts)}.",
        )
        found += parts
    return found
