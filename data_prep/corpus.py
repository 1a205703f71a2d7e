"""Reads a corpus of text files as documents.

Main entries: `list_files` and `read_documents`. A document is the unit that
segment pairs never cross; its paragraphs are the units in which sentences are
looked for.
"""

import dataclasses
import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.config import UserError

TEXT_SUFFIXES = (".txt", ".md")

# A longer document is read in parts, so that memory stays bounded whatever
# the corpus. War and Peace has 3.2 million characters.
MAX_DOCUMENT_CHARS = 4_000_000

_BYTE_ORDER_MARK = "\ufeff"

# What is no text. White space of every kind stays; the tokenizer folds it.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")


@dataclasses.dataclass(frozen=True)
class Document:
    """A document: `name` is its file's path, or `path#3` for its third.

    A paragraph may hold line breaks: those that its file has within it.
    """

    name: str
    paragraphs: tuple[str, ...]


def list_files(inputs: Sequence[str]) -> list[str]:
    """Returns the text files that `inputs` name, sorted, each once.

    An input is a file, a directory (searched to every depth for *.txt and
    *.md) or a glob.

    Raises:
        UserError: if an input is missing, matches nothing or holds no text.
    """
    found: dict[str, str] = {}
    for path in inputs:
        if os.path.isfile(path):
            files = [path]
        elif os.path.isdir(path):
            files = _text_files_under(path)
        elif glob.has_magic(path):
            files = list(
                filter(os.path.isfile, glob.glob(path, recursive=True))
            )
        else:
            raise UserError(f"The input {path!r} does not exist.")
        if not files:
            raise UserError(
                f"The input {path!r} holds no text: a file, a directory with "
                f"{' or '.join('*' + s for s in TEXT_SUFFIXES)}, or a "
                "pattern that matches files is needed."
            )
        for file in files:
            found.setdefault(os.path.abspath(file), os.path.normpath(file))
    if not found:
        raise UserError("No input was given.")
    return sorted(found.values())


def fingerprint_files(
    files: Sequence[str], names: Sequence[str] | None = None
) -> str:
    """Returns a digest of the contents of `files` and of their names."""
    digest = hashlib.sha256()
    for path, name in zip(files, names or files, strict=True):
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def _text_files_under(directory: str) -> list[str]:
    return [
        os.path.join(folder, name)
        for folder, _, names in os.walk(directory)
        for name in names
        if name.endswith(TEXT_SUFFIXES)
    ]


def read_documents(
    files: Sequence[str],
    *,
    document_separator: str,
    skip_header_lines: int,
    names: Sequence[str] | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[Document]:
    """Yields the documents of `files`, in order, one in memory at a time.

    With `file` a document is a file, its paragraphs are parted by blank
    lines. With `blank_line` a document is a block of lines between blank
    ones, each line a paragraph. `auto` is `blank_line` for one file of plain
    text and `file` otherwise.

    Args:
        files: paths, see `list_files`.
        document_separator: `auto`, `file` or `blank_line`.
        skip_header_lines: lines left out at the head of each file.
        names: what documents are called after, one per file; default: paths.
        counts: is told what was met: `control_characters`, `empty_files`,
            `long_blocks_parted`, `long_documents_parted`.

    Raises:
        UserError: for text that is not UTF-8, naming file, line and byte.
    """
    counts = Counter() if counts is None else counts
    blocks_are_documents = (
        resolve_separator(document_separator, files) == "blank_line"
    )
    for path, name in zip(files, names or files, strict=True):
        lines = _read_lines(path, skip_header_lines, counts)
        if path.endswith(".md"):
            lines = iter(clean_markdown("\n".join(lines)).split("\n"))
        blocks = _blocks(lines, counts)
        empty = True
        if blocks_are_documents:
            for number, block in enumerate(blocks, 1):
                empty = False
                yield Document(f"{name}#{number}", tuple(block))
        else:
            paragraphs = ("\n".join(block) for block in blocks)
            for number, part in enumerate(_parts(paragraphs), 1):
                empty = False
                counts["long_documents_parted"] += number == 2
                part_name = name if number == 1 else f"{name}#{number}"
                yield Document(part_name, tuple(part))
        counts["empty_files"] += empty


def resolve_separator(document_separator: str, files: Sequence[str]) -> str:
    """Returns `document_separator`, or what `auto` means for `files`."""
    if document_separator != "auto":
        return document_separator
    one_plain_text = len(files) == 1 and not files[0].endswith(".md")
    return "blank_line" if one_plain_text else "file"


def _read_lines(
    path: str, skip_header_lines: int, counts: Counter[str]
) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, control characters made spaces."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed by the with below)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None
    offset = 0
    with file:
        for number, data in enumerate(file, 1):
            try:
                line = data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {number}, byte {offset + error.start}: "
                    "not UTF-8. Convert the file first, for example with "
                    "iconv -f WINDOWS-1252 -t UTF-8."
                ) from None
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            offset += len(data)
            if number <= skip_header_lines:
                continue
            line, replaced = _CONTROL.subn(" ", line)
            counts["control_characters"] += replaced
            yield line.strip()


def _blocks(lines: Iterable[str], counts: Counter[str]) -> Iterator[list[str]]:
    """Yields the runs of lines between blank ones, none too long to hold."""
    block: list[str] = []
    size = 0
    for line in lines:
        if line:
            block.append(line)
            size += len(line)
        too_long = size >= MAX_DOCUMENT_CHARS
        counts["long_blocks_parted"] += too_long
        if block and (not line or too_long):
            yield block
            block, size = [], 0
    if block:
        yield block


def _parts(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """Yields `paragraphs` in lists of at most about MAX_DOCUMENT_CHARS."""
    part: list[str] = []
    size = 0
    for paragraph in paragraphs:
        part.append(paragraph)
        size += len(paragraph)
        if size >= MAX_DOCUMENT_CHARS:
            yield part
            part, size = [], 0
    if part:
        yield part


# What `clean_markdown` takes away, in this order: pattern, what is left.
_MARKDOWN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        # Comments and fenced code, where they are closed.
        (r"<!--[\s\S]*?-->", ""),
        (r"^ {0,3}```[^`\n]*\n[\s\S]*?^ {0,3}```[ \t]*$", ""),
        # Rules, underlines of headings and tables: marks and nothing else.
        (r"^(?=.*[-*_=].*[-*_=].*[-*_=])[ \t|:*_=-]+$", ""),
        # Headings stand alone.
        (r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$", r"\n\1\n"),
        # Marks of quotations and list items.
        (r"^[ \t]*(?:>[ \t]?)+", ""),
        (r"^[ \t]*[*+-][ \t]+", ""),
        # Images and links keep their text; definitions have none.
        (r"^ {0,3}\[[^\]\n]+\]:[ \t]+\S.*$", ""),
        (r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:[ \t]+\"[^\"\n]*\")?\)", r"\1"),
        (r"!?\[([^\[\]\n]+)\]\[[^\[\]\n]*\]", r"\1"),
        # Emphasis: runs of marks that touch a word on one side only; within
        # a word _ is a letter.
        (r"(?<![\\\w_])_+(?=[^\s_])|(?<=[^\s\\_])_+(?![\w_])", ""),
        (r"(?<![\\*])\*+(?=[^\s*])|(?<=[^\s\\*])\*+", ""),
        # Escaped marks are marks.
        (r"\\([\\`*_{}\[\]()#+.!>-])", r"\1"),
    )
)


def clean_markdown(text: str) -> str:
    """Returns Markdown `text` without its marks; the words stay.

    Fenced code goes whole, it is no prose. Tables, inline code and HTML tags
    stay as they are.
    """
    for pattern, replacement in _MARKDOWN:
        text = pattern.sub(replacement, text)
    return text
