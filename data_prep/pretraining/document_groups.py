"""Distributes documents over groups on disk, in whatever order they come.

Main entry: `DocumentGroups`. A group is read back whole, its documents in the
order of their names; so the records do not depend on the order in which they
came.
"""

import json
import os
from collections.abc import Iterator

from data_prep.corpus.reading import UnitDocument

# How lines are stored; they hold no line end but their own.
_TEXT = {"encoding": "utf-8", "errors": "surrogatepass", "newline": "\n"}
# Characters that wait in memory, all groups together.
_WAITING_CHARS = 16_000_000


class DocumentGroups:
    """Groups of documents in files of one JSON line each.

    Args:
        directory: of the files; those of an earlier run are replaced.
        num_groups: how many there are.
    """

    def __init__(self, directory: str, num_groups: int) -> None:
        self._waiting: dict[str, list[str]] = {
            os.path.join(directory, f"group-{group:05}"): []
            for group in range(num_groups)
        }
        self._paths = list(self._waiting)
        self._size = 0
        for path in self._paths:
            open(path, "wb").close()

    def add(self, group: int, item: UnitDocument) -> None:
        """Adds a document to a group."""
        line = json.dumps(item, ensure_ascii=False)
        self._waiting[self._paths[group]].append(f"{line}\n")
        self._size += len(line)
        if self._size >= _WAITING_CHARS:
            self._write()

    def read(self) -> Iterator[list[UnitDocument]]:
        """Yields each group, documents by split, origin and name."""
        self._write()
        for path in self._paths:
            with open(path, **_TEXT) as file:
                rows = sorted(json.loads(line) for line in file)
            os.remove(path)
            yield [
                UnitDocument(*fields, tuple(paragraphs))
                for *fields, paragraphs in rows
            ]

    def _write(self) -> None:
        for path, lines in self._waiting.items():
            if lines:
                with open(path, "a", **_TEXT) as file:
                    file.writelines(lines)
                lines.clear()
        self._size = 0
