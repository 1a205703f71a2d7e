"""Deals documents into groups on disk, in whatever order they come.

Main entry: `DocumentGroups`. A group is read back whole, its documents in the
order of their names; so what is made of it does not depend on the order in
which they came.
"""

import json
import os
from collections.abc import Iterator

from data_prep.corpus.reading import Document
from data_prep.pretraining.record_maker import UnitDocument

# How lines are stored; they hold no line end but their own.
_TEXT = {"encoding": "utf-8", "errors": "surrogatepass", "newline": "\n"}
# Characters that wait in memory, all groups together.
_WAITING_CHARS = 16_000_000


class DocumentGroups:
    """Groups of documents in files of one JSON line each.

    Args:
        directory: where the files lie; those of an earlier run are replaced.
        num_groups: how many there are.
    """

    def __init__(self, directory: str, num_groups: int) -> None:
        self._directory = directory
        self._waiting: list[list[str]] = [[] for _ in range(num_groups)]
        self._size = 0
        for group in range(num_groups):
            open(self._path(group), "wb").close()

    def add(self, group: int, item: UnitDocument) -> None:
        """Takes a document in."""
        document = item.document
        line = json.dumps(
            [item.split, item.origin, document.name, document.paragraphs],
            ensure_ascii=False,
        )
        self._waiting[group].append(line)
        self._size += len(line)
        if self._size >= _WAITING_CHARS:
            self._write()

    def read(self) -> Iterator[list[UnitDocument]]:
        """Yields each group, documents by split, origin and name."""
        self._write()
        for group in range(len(self._waiting)):
            path = self._path(group)
            with open(path, **_TEXT) as file:
                rows = sorted(json.loads(line) for line in file)
            os.remove(path)
            yield [
                UnitDocument(split, origin, Document(name, tuple(paragraphs)))
                for split, origin, name, paragraphs in rows
            ]

    def _write(self) -> None:
        for group, lines in enumerate(self._waiting):
            if lines:
                with open(self._path(group), "a", **_TEXT) as file:
                    file.writelines(f"{line}\n" for line in lines)
                lines.clear()
        self._size = 0

    def _path(self, group: int) -> str:
        return os.path.join(self._directory, f"group-{group:05}")
