"""Files of users' tasks: which one in a directory has which split."""

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.config import Log, UserError, listed, require
from albert_tf.io import files
from albert_tf.io.compression import SUFFIXES, plain_name
from albert_tf.tasks.formats.parquet_parts import FIRST_PART, parts_in
from albert_tf.tasks.formats.rows import (
    EXTENSIONS,
    PARQUET,
    ending_of,
    has_columns,
)
from albert_tf.tasks.splits import SPLIT_NAMES


@dataclasses.dataclass(frozen=True)
class SplitFiles:
    """Files train, dev and test of a directory; test need not have labels.

    A file may be compressed, and a directory in its place a data set that was
    saved, or hold a folder for each class (`open_rows`). Without these the
    whole directory, its only file or the file that `data_dir` names are the
    training examples, and the test ones.

    `read_file` takes a path, whether labels are required, and log. `advice`
    ends the message on files that are missing.
    """

    read_file: Callable[[str, bool, Log], Sequence[Any]]
    extensions: tuple[str, ...] = EXTENSIONS
    splits: tuple[str, ...] = ("train", "dev", "test")
    advice: str = ""

    def read(self, data_dir: str, split: str, log: Log) -> Sequence[Any]:
        """Returns the examples of the one file of a split."""
        path = self.path(data_dir, split)
        return self.read_file(path, split != "test", log)

    def path(self, data_dir: str, split: str) -> str:
        """Returns the path of the one file, or directory, of a split."""
        found = _split_paths(data_dir, split, self.extensions)
        is_whole = not found and split != "dev"
        if is_whole:
            found = self._whole(data_dir)
        if not found:
            raise UserError(self._missing(data_dir, split))
        if len(found) == 1:
            return found[0]
        if is_whole:
            raise UserError(
                f"{data_dir} has {listed(map(os.path.basename, found))}; call "
                "them train, dev and test, or give --data_dir one of them."
            )
        raise UserError(
            f"{' and '.join(found)} both exist; remove all but one."
        )

    def _missing(self, data_dir: str, split: str) -> str:
        """Returns the message that a directory has no files of a split."""
        names = [split + extension for extension in self.extensions]
        if self.extensions == EXTENSIONS:
            names.append("folder of .txt files for each class")
        expected = " or ".join(names)
        if files.isfile(data_dir):
            return (
                f"{data_dir} is a file, expected a directory with {expected}."
            )
        stored = listed(_shown_names(data_dir), 12)
        if not stored:
            return f"{data_dir} does not exist, or is an empty directory."
        advice = _advice(data_dir, split, self.extensions)
        return (
            f"{data_dir} has no {expected}, which the task needs; it holds "
            f"{stored}.{advice}{self.advice}"
        )

    def has(self, data_dir: str, split: str) -> bool:
        """Returns whether there are files of a split."""
        return bool(_split_paths(data_dir, split, self.extensions))

    def _whole(self, data_dir: str) -> list[str]:
        """Returns the paths of what is not divided into splits.

        Raises UserError for tables beside folders of texts.
        """
        if files.isfile(data_dir):
            return [data_dir]
        if any(self.has(data_dir, split) for split in self.splits):
            return []
        paths = [os.path.join(data_dir, name) for name in _names(data_dir)]
        tables = [
            path
            for path in paths
            if ending_of(path) in self.extensions and files.isfile(path)
        ]
        # They may lie beside a table.
        others = [p for p in tables if plain_name(p).lower().endswith(".json")]
        tables = [path for path in tables if path not in others]
        if PARQUET not in self.extensions or not has_columns(data_dir):
            return tables or others
        require(
            not tables or bool(parts_in(data_dir)),
            f"{data_dir} has {listed(map(os.path.basename, tables))} beside "
            "folders with .txt files; give --data_dir a table, or move one or "
            "the others to another directory.",
        )
        return [data_dir]


def _split_paths(
    data_dir: str, split: str, extensions: Sequence[str]
) -> list[str]:
    """Returns the paths of a split's files, of which one is right.

    Their names have letters of any case. Where they are tables, a directory may
    be in place of a file, and the first of several parts stands for all.
    """
    names = SPLIT_NAMES.get(split, (split,))
    endings = [e + packed for e in extensions for packed in ("", *SUFFIXES)]
    candidates = [name + ending for name in names for ending in endings]
    are_tables = PARQUET in extensions
    found = []
    for name in _names(data_dir):
        part = FIRST_PART.fullmatch(name) if are_tables else None
        is_file = name.lower() in candidates or (
            part is not None and part[1].lower() in names
        )
        is_folder = are_tables and (is_file or name.lower() in names)
        path = os.path.join(data_dir, name)
        if (is_file and files.isfile(path)) or (
            is_folder and has_columns(path)
        ):
            found.append(path)
    return found


def _shown_names(directory: str) -> list[str]:
    """Returns the names in a directory, those of directories with a slash."""
    return [
        f"{name}/" if files.isdir(os.path.join(directory, name)) else name
        for name in _names(directory)
    ]


def _advice(data_dir: str, split: str, extensions: Sequence[str]) -> str:
    """Returns advice on the missing files of a split, empty without any."""
    names = _names(data_dir)
    for path in (os.path.join(data_dir, name) for name in names):
        if _split_paths(path, split, extensions):
            return f" --data_dir={path} has one."
    if re.search(r"\.(zip|tar|tgz|7z|xlsx?|ods)\b", "\n".join(names).lower()):
        return " Unpack archives; save workbooks as CSV."
    return ""


def _names(directory: str) -> list[str]:
    """Returns the names in a directory but hidden ones, none if it is missing.

    Of the latter macOS puts one beside each file in an archive.
    """
    directory = directory or "."
    names = files.listdir(directory) if files.isdir(directory) else []
    return [name for name in names if name[0] != "."]


def training_file(path: str, extensions: Sequence[str]) -> str:
    """Returns the training file beside that of another split, or ""."""
    directory, name = os.path.split(path)
    part = FIRST_PART.fullmatch(name)
    split = (part[1] if part else name.partition(".")[0]).lower()
    if split not in itertools.chain(*SPLIT_NAMES.values()):
        return ""
    found = _split_paths(directory, "train", extensions)
    return found[0] if found else ""
