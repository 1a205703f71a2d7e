"""Distributes documents over groups on disk: `in_groups`.

A group is read back whole, its documents in the order of their names; so the
records do not depend on the order in which they came.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from data_prep.corpus.reading import UnitDocument

# The form of stored lines; they hold no line end but their own.
_TEXT = {"encoding": "utf-8", "newline": "\n"}
# Characters that wait in memory, all groups together.
_WAITING_CHARS = 16_000_000


def in_groups(
    items: Iterable[UnitDocument],
    group_of: Callable[[UnitDocument], int],
    num_groups: int,
    directory: str,
) -> Iterator[list[UnitDocument]]:
    """Yields each group, its documents by split, origin and name.

    Groups are files of one JSON line for each document in `directory`, where
    they replace those of an earlier run.
    """
    paths = [
        os.path.join(directory, f"group-{group:05}")
        for group in range(num_groups)
    ]
    for path in paths:
        open(path, "wb").close()
    waiting: dict[str, list[str]] = defaultdict(list)
    size = 0
    for item in items:
        line = json.dumps(item, ensure_ascii=False)
        waiting[paths[group_of(item)]].append(f"{line}\n")
        size += len(line)
        if size >= _WAITING_CHARS:
            _write(waiting)
            size = 0
    _write(waiting)
    for path in paths:
        with open(path, **_TEXT) as file:
            rows = sorted(json.loads(line) for line in file)
        os.remove(path)
        yield [
            UnitDocument(*fields, tuple(paragraphs))
            for *fields, paragraphs in rows
        ]


def _write(waiting: dict[str, list[str]]) -> None:
    for path, lines in waiting.items():
        with open(path, "a", **_TEXT) as file:
            file.writelines(lines)
    waiting.clear()
