"""Reads a corpus as documents, from text files of many forms.

Main entries: `list_files`, `corpus_files`, `survey_file`, `read_documents` and
`read_file_checked`. A document is the unit that segment pairs never cross; its
paragraphs are the units in which sentences are looked for. What is wrong with
a file is counted in a `CorpusReport` and never stops the reading.
"""

import dataclasses
import functools
import glob
import hashlib
import html
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from albert_tf.config import UserError
from data_prep.corpus.markdown import clean_markdown_lines
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.text_files import (
    GZIP_SUFFIX,
    HashedFile,
    OpenFile,
    open_text,
)

# What is taken from directories: plain text, Markdown and JSON lines, each
# also gzipped.
TEXT_SUFFIXES = (".txt", ".md", ".jsonl", ".json", ".ndjson")
_FORM_OF_SUFFIX = {
    ".md": "markdown",
    ".jsonl": "json_lines",
    ".json": "json_lines",
    ".ndjson": "json_lines",
}

# A longer document is read in parts, so that memory stays bounded whatever
# the corpus. War and Peace has 3.2 million characters.
MAX_DOCUMENT_CHARS = 4_000_000
# So is a longer line, cut at white space where the end of a part has some.
MAX_LINE_CHARS = 1_000_000
_CUT_WITHIN = 1000
# JSON is only whole of use; a longer line of it is left out as a fault.
MAX_JSON_LINE_CHARS = 64_000_000

# What is no text. White space of every kind stays; the tokenizer folds it.
_CONTROL = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
# Bytes that are not UTF-8 come as lone surrogates, see `open_text`; in JSON
# \ud800 may also be written out.
_SURROGATE = "\ud800-\udfff"
_NO_TEXT = re.compile(f"[{_CONTROL}{_SURROGATE}]")
# Each with what stands in its place.
_FAULTS = (
    ("bad/not_utf8", re.compile(f"[{_SURROGATE}]"), "\ufffd"),
    ("bad/control_characters", re.compile(f"[{_CONTROL}]"), " "),
)
_LAST_SPACE = re.compile(r"\s\S*\Z")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# What WikiExtractor writes in front of an article and behind it.
_ARTICLE = re.compile(r'<doc id=".*>')
_ARTICLE_END = "</doc>"
_ARTICLE_TITLE = re.compile(r'\btitle="(.*)"\s*>')

# Characters of a file that show whether its lines are wrapped.
_WRAP_SAMPLE_CHARS = 1_000_000
# Widths that text is wrapped to; a line of hand-wrapped text falls short of
# its width by some characters that a word would have had room for.
_WRAP_WIDTHS = range(40, 133)
_WRAP_SLACK = 5
_LEAST_WRAPPED_LINES = 20

# Returns the next line with its end, or as much of it as is asked for.
ReadLine = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class Document:
    """A document: `name` is its file's name, or `name#3` for its third.

    A paragraph may hold line breaks: those that its file has within it.
    """

    name: str
    paragraphs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """A file to read.

    Attributes:
        path: where it is.
        name: what its documents are called after.
        form: how it is read: `file`, one document whose paragraphs are parted
            by blank lines; `wrapped`, the same, recognised by its lines;
            `blank_line`, a document between blank lines, each line a
            paragraph; `markdown`, as `file` without the marks; `json_lines`,
            a document per line, the `text` of an object. Plain text that
            begins with a <doc> of WikiExtractor is read by these tags.
    """

    path: str
    name: str
    form: str


@dataclasses.dataclass(frozen=True)
class FileSurvey:
    """What a file holds: bytes and their digest as stored, and the text."""

    name: str
    num_bytes: int
    sha256: str
    report: CorpusReport
    sample: CorpusSample


def list_files(inputs: Sequence[str]) -> list[str]:
    """Returns the text files that `inputs` name, sorted, each once.

    An input is a file, a directory (searched to every depth, links included,
    for names as `is_text_name` has them) or a glob. Of several paths to one
    file the first in sorted order stands.

    Raises:
        UserError: if an input is missing, cannot be read, matches nothing or
            holds no text, or if a name is not UTF-8.
    """
    found: dict[str, str] = {}
    for path in inputs:
        if os.path.isfile(path):
            files = [path]
        elif os.path.isdir(path):
            files = _text_files_under(path)
        elif glob.has_magic(path):
            files = list(filter(_is_file, glob.glob(path, recursive=True)))
        elif os.path.exists(path):
            raise UserError(
                f"The input {path!r} is no regular file; a file that can be "
                "read twice is needed."
            )
        else:
            raise UserError(f"The input {path!r} does not exist.")
        if not files:
            raise UserError(
                f"The input {path!r} holds no text: a file, a directory with "
                f"{', '.join('*' + s for s in TEXT_SUFFIXES)} (or these with "
                f"{GZIP_SUFFIX}), or a pattern that matches files is needed."
            )
        for file in files:
            place = os.path.realpath(file)
            found[place] = min(file, found.get(place, file))
    if not found:
        raise UserError("No input was given.")
    for path in found.values():
        _check_name(os.path.abspath(path))
    return sorted(found.values())


def is_text_name(path: str) -> bool:
    """Returns whether a file that lies in a directory is taken from there.

    Its suffix is one of TEXT_SUFFIXES, also gzipped, and no part of its path
    from the directory begins with a dot.
    """
    hidden = any(part.startswith(".") for part in path.split("/"))
    return not hidden and _suffix(path) in TEXT_SUFFIXES


def _text_files_under(directory: str) -> list[str]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: {error.strerror}.")

    files = []
    seen = {os.path.realpath(directory)}
    walk = os.walk(directory, onerror=refuse, followlinks=True)
    for folder, folders, names in walk:
        paths = (os.path.join(folder, n) for n in names if is_text_name(n))
        files += filter(_is_file, paths)
        # Sorted, for of two links to one folder the first is followed.
        entered, folders[:] = sorted(folders), []
        for name in entered:
            place = os.path.realpath(os.path.join(folder, name))
            if not name.startswith(".") and place not in seen:
                seen.add(place)
                folders.append(name)
    return files


def _is_file(path: str) -> bool:
    """Returns whether a path is a regular file; a pipe would wait forever.

    Raises:
        UserError: for a link that leads nowhere: text is missing.
    """
    if not os.path.exists(path):
        raise UserError(
            f"{path} is a link to what does not exist; mend or remove it."
        )
    return os.path.isfile(path)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"The file name {path!r} is not UTF-8; rename it."
        ) from None


def _suffix(path: str) -> str:
    """Returns the lower-case suffix that tells what is in a file."""
    name = path.lower().removesuffix(GZIP_SUFFIX)
    return os.path.splitext(name)[1]


def corpus_files(
    files: Sequence[str],
    names: Sequence[str],
    document_separator: str,
    open_file: OpenFile = open,
) -> list[CorpusFile]:
    """Returns `files` with the forms in which they are to be read.

    The suffix tells the form. Without a known one a file is JSON lines if
    its first line is a JSON object, and plain text otherwise. Plain text is
    read as `document_separator` says: `file` or `blank_line`; `auto` is
    `file` for several files of plain text. A single one is `wrapped` if it
    is hard-wrapped prose, and `blank_line` otherwise.

    Raises:
        UserError: for a file that cannot be read.
    """
    forms = [_form(path, open_file) for path in files]
    plain_form = document_separator
    if document_separator == "auto":
        plain_form = "file"
        if forms.count("plain") == 1:
            path = files[forms.index("plain")]
            plain_form = (
                "wrapped" if _is_wrapped(path, open_file) else "blank_line"
            )
    return [
        CorpusFile(path, name, plain_form if form == "plain" else form)
        for path, name, form in zip(files, names, forms, strict=True)
    ]


def _form(path: str, open_file: OpenFile) -> str:
    suffix = _suffix(path)
    if suffix in TEXT_SUFFIXES:
        return _FORM_OF_SUFFIX.get(suffix, "plain")
    with open_text(path, open_file) as stream:
        for line in iter(lambda: stream.readline(MAX_JSON_LINE_CHARS), ""):
            if line.strip():
                return "plain" if _json_object(line) is None else "json_lines"
    return "plain"


def _is_wrapped(path: str, open_file: OpenFile) -> bool:
    """Returns whether the head of a file is hard-wrapped prose.

    The evidence is in lines with a line behind them. In wrapped prose the
    next line's first word would not have fit, and most next lines begin in
    the middle of a sentence, without a capital. Neither holds of sentences,
    paragraphs, verses, list items or log entries on lines of their own.
    """
    with open_text(path, open_file) as stream:
        text = stream.read(_WRAP_SAMPLE_CHARS)
    lines = [line.strip() for line in text.split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    pairs = [
        (len(line), following.split(maxsplit=1)[0])
        for line, following in itertools.pairwise(lines)
        if line and following
    ]
    if len(pairs) < max(_LEAST_WRAPPED_LINES, len(lengths) / 4):
        return False
    width = lengths[len(lengths) * 49 // 50]  # a few lines may be longer
    # A word of half a line comes of a script that writes no spaces.
    full = sum(
        length + 1 + len(word) > width - _WRAP_SLACK and 2 * len(word) < width
        for length, word in pairs
    )
    continued = sum(
        word[0].isalpha() and word[0] == word[0].lower() for _, word in pairs
    )
    return (
        width in _WRAP_WIDTHS
        and full >= 0.75 * len(pairs)
        and continued >= 0.5 * len(pairs)
    )


def survey_file(
    file: CorpusFile, *, skip_header_lines: int, open_file: OpenFile = open
) -> FileSurvey:
    """Returns what `file` holds; it is read through once.

    Raises:
        UserError: see `read_file`.
    """
    report = CorpusReport()
    sample = CorpusSample()
    opened: list[HashedFile] = []
    for document in read_file(
        file,
        skip_header_lines=skip_header_lines,
        report=report,
        open_file=_hashing(open_file, opened),
    ):
        sample.add(document.name, document.paragraphs)
    (stored,) = opened
    return FileSurvey(
        file.name, stored.num_bytes, stored.sha256, report, sample
    )


def _hashing(open_file: OpenFile, opened: list[HashedFile]) -> OpenFile:
    """Returns `open_file`, but of hashed files; `opened` is told of each."""

    def open_hashed(path: str, mode: str) -> HashedFile:
        opened.append(HashedFile(open_file(path, mode)))
        return opened[-1]

    return open_hashed


def fingerprint(surveys: Iterable[FileSurvey]) -> str:
    """Returns a digest of the names and contents of files, in their order."""
    digest = hashlib.sha256()
    for survey in surveys:
        digest.update(f"{survey.name}\0{survey.sha256}\0".encode())
    return digest.hexdigest()


def read_documents(
    files: Sequence[CorpusFile], *, skip_header_lines: int, report: CorpusReport
) -> Iterator[Document]:
    """Yields the documents of `files`, in order, see `read_file`."""
    for file in files:
        yield from read_file(
            file, skip_header_lines=skip_header_lines, report=report
        )


def read_file(
    file: CorpusFile,
    *,
    skip_header_lines: int,
    report: CorpusReport,
    open_file: OpenFile = open,
) -> Iterator[Document]:
    """Yields the documents of `file`, one in memory at a time.

    A document above MAX_DOCUMENT_CHARS comes in parts. Bytes that are not
    UTF-8 become U+FFFD, control characters become spaces, JSON that is none
    is left out; lines end with LF, CR or both.

    Args:
        file: see `corpus_files`.
        skip_header_lines: lines at its head that are not its text.
        report: is told of faults, and of lines, documents and characters.
        open_file: opens the file, as the built-in `open` does.

    Raises:
        UserError: for a file that cannot be read, or that is not gzipped
            although it is called so.
    """
    reader = _Reader(file, report)
    with open_text(file.path, open_file, reader.note_damage) as stream:
        reader.skip_lines(stream, skip_header_lines)
        names = document_names(file)
        for paragraphs in reader.documents(stream):
            report.counts["documents"] += 1
            report.counts["characters"] += sum(map(len, paragraphs))
            yield Document(next(names), tuple(paragraphs))
        reader.close()


def document_names(file: CorpusFile) -> Iterator[str]:
    """Yields what the documents of a file are called, without an end."""
    # A file that is one document has further ones if it is read in parts.
    if file.form in ("file", "wrapped", "markdown"):
        yield file.name
        yield from (f"{file.name}#{number}" for number in itertools.count(2))
    yield from (f"{file.name}#{number}" for number in itertools.count(1))


def read_file_checked(
    file: CorpusFile,
    sha256: str,
    *,
    skip_header_lines: int,
    report: CorpusReport,
    open_file: OpenFile = open,
) -> Iterator[Document]:
    """Yields the documents of a file that was surveyed, see `read_file`.

    Args:
        file: see `corpus_files`.
        sha256: the digest of what is stored, from `survey_file`.
        skip_header_lines: see `read_file`.
        report: see `read_file`.
        open_file: see `read_file`.

    Raises:
        UserError: as `read_file`; and at the end, if what is stored is no
            longer what it was.
    """
    opened: list[HashedFile] = []
    yield from read_file(
        file,
        skip_header_lines=skip_header_lines,
        report=report,
        open_file=_hashing(open_file, opened),
    )
    if opened[0].sha256 != sha256:
        raise UserError(
            f"{file.path} has changed while the build was at work; leave the "
            "corpus as it is and start again."
        )


class _Reader:
    """Reads one file, and accounts for its lines."""

    def __init__(self, file: CorpusFile, report: CorpusReport) -> None:
        self._file = file
        self._report = report
        self._line_number = 0
        self._num_skipped = 0
        self._damaged = False
        self._faulty = False

    def note_damage(self) -> None:
        """Takes note that the file's end is missing."""
        self._damaged = True

    def skip_lines(self, stream: TextIO, number: int) -> None:
        """Leaves out lines at the head of a file."""
        while self._num_skipped < number and _skip_line(stream):
            self._num_skipped += 1
        self._line_number = self._num_skipped

    def documents(self, stream: TextIO) -> Iterator[Sequence[str]]:
        """Yields the paragraphs of each document; the file's form is known."""
        counts = self._report.counts
        if self._file.form == "json_lines":
            yield from self._json_documents(stream)
            return
        lines = self._lines(stream.readline)
        if self._file.form == "markdown":
            lines = clean_markdown_lines(lines)
        else:
            lines = itertools.dropwhile(lambda line: not line, lines)
            first = list(itertools.islice(lines, 1))
            lines = itertools.chain(first, lines)
            if first and _ARTICLE.fullmatch(first[0]):
                yield from self._articles(lines)
                return
        blocks = _blocks(lines, counts)
        if self._file.form == "blank_line":
            yield from self._or_fault(blocks)
        else:
            yield from self._or_fault(_parts(map("\n".join, blocks), counts))

    def close(self) -> None:
        """Accounts for the file as a whole, at its end."""
        if self._damaged:
            self._fault("bad/cut_gzip")
        # A file without lines is a bad line, so it needs to be a line.
        num_lines = max(1, self._line_number - self._num_skipped)
        self._report.counts["lines"] += num_lines

    def _fault(self, reason: str) -> None:
        self._faulty = True
        line = max(1, self._line_number)
        self._report.fault(reason, self._file.path, line)

    def _or_fault(self, documents: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yields `documents`; it is a fault if there are none."""
        empty = True
        for document in documents:
            empty = False
            yield document
        if empty:
            self._fault("bad/empty_documents")

    def _lines(self, readline: ReadLine, step: int = 1) -> Iterator[str]:
        """Yields lines without faults and outer blanks, long ones in parts.

        The parts of a line are none of them blank, so that they stay in one
        paragraph or block. `step` is what a line adds to the line number.
        """
        for line in iter(functools.partial(readline, MAX_LINE_CHARS + 1), ""):
            self._line_number += step
            if line[-1] != "\n" and len(line) > MAX_LINE_CHARS:
                yield from self._line_parts(line, readline)
            else:
                yield self._clean(line.rstrip("\n")).strip()

    def _articles(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yields the paragraphs of each <doc>, every line one.

        The title is left out where it is repeated as the first line, so that
        the documents are those of WikiExtractor's JSON.
        """
        number = 0

        def number_of(line: str) -> int:
            nonlocal number
            number += bool(_ARTICLE.fullmatch(line))
            return number

        for _, article in itertools.groupby(lines, number_of):
            paragraphs = _article_paragraphs(article)
            parts = _parts(paragraphs, self._report.counts)
            yield from self._or_fault(parts)

    def _line_parts(self, line: str, readline: ReadLine) -> Iterator[str]:
        """Yields a line that begins with `line` in parts."""
        self._report.counts["long_lines_parted"] += 1
        blank = True
        while line:
            whole = line[-1] == "\n" or len(line) <= MAX_LINE_CHARS
            end = len(line) if whole else _last_space(line)
            if part := self._clean(line[:end].rstrip("\n")).strip():
                yield part
                blank = False
            line = line[end:]
            if not whole:
                line += readline(MAX_LINE_CHARS + 1 - len(line))
        if blank:
            yield ""

    def _clean(self, text: str) -> str:
        """Returns `text` without what is no text; that is a fault."""
        # Most lines are printable; white space other than the space is not.
        if text.isprintable() or not _NO_TEXT.search(text):
            return text
        for reason, pattern, replacement in _FAULTS:
            text, number = pattern.subn(replacement, text)
            if number:
                self._fault(reason)
        return text

    def _json_documents(self, stream: TextIO) -> Iterator[list[str]]:
        counts = self._report.counts
        empty = True
        for text in self._json_texts(stream):
            empty = False
            paragraphs = self._text_paragraphs(text)
            yield from self._or_fault(_parts(paragraphs, counts))
        if empty and not self._faulty:
            self._fault("bad/empty_documents")

    def _json_texts(self, stream: TextIO) -> Iterator[str]:
        """Yields the `text` of every line's object; faults are left out."""
        limit = MAX_JSON_LINE_CHARS + 1
        for line in iter(functools.partial(stream.readline, limit), ""):
            self._line_number += 1
            if line[-1] != "\n" and len(line) == limit:
                _skip_line(stream)
                self._fault("bad/not_json")
                continue
            line = self._clean(line.rstrip("\n"))
            if not line or line.isspace():
                continue
            value = _json_object(line)
            if value is None:
                self._fault("bad/not_json")
            elif not isinstance(value.get("text"), str):
                self._fault("bad/no_text_field")
            else:
                yield value["text"]

    def _text_paragraphs(self, text: str) -> Iterator[str]:
        """Yields the paragraphs of a JSON object's text.

        They are parted by blank lines; without any a line is a paragraph.
        """
        text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        lines = self._lines(_line_reader(text), step=0)
        if _BLANK_LINE.search(text):
            return map("\n".join, _blocks(lines, self._report.counts))
        return filter(None, lines)


def _skip_line(stream: TextIO) -> bool:
    """Returns whether there was a line, or the rest of one, to pass over."""
    line = stream.readline(MAX_LINE_CHARS)
    found = bool(line)
    while line and line[-1] != "\n":
        line = stream.readline(MAX_LINE_CHARS)
    return found


def _article_paragraphs(lines: Iterator[str]) -> Iterator[str]:
    """Yields the lines of an article, without its tags and repeated title."""
    title = _ARTICLE_TITLE.search(next(lines))
    text = (line for line in lines if line and line != _ARTICLE_END)
    for first in itertools.islice(text, 1):
        if not title or html.unescape(first) != html.unescape(title[1]).strip():
            yield first
    yield from text


def _last_space(text: str) -> int:
    """Returns where a part of a line is best cut: behind its last space."""
    space = _LAST_SPACE.search(text, max(0, len(text) - _CUT_WITHIN))
    return space.start() + 1 if space else len(text)


def _line_reader(text: str) -> ReadLine:
    """Returns the `readline` of a text; `io.StringIO` would copy it."""
    position = 0

    def readline(limit: int) -> str:
        nonlocal position
        begin = position
        end = text.find("\n", begin, begin + limit)
        position = end + 1 if end >= 0 else begin + limit
        return text[begin:position]

    return readline


def _json_object(line: str) -> dict[str, object] | None:
    """Returns the JSON object that a line holds, None if it holds none."""
    try:
        value = json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _blocks(lines: Iterable[str], counts: Counter[str]) -> Iterator[list[str]]:
    """Yields the runs of lines between blank ones, none too long to hold."""
    block: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if block and (blank or size >= MAX_DOCUMENT_CHARS):
            if not blank:
                counts["long_blocks_parted"] += 1
            yield block
            block, size = [], 0
        if not blank:
            block.append(line)
            size += len(line)
    if block:
        yield block


def _parts(
    paragraphs: Iterable[str], counts: Counter[str]
) -> Iterator[list[str]]:
    """Yields `paragraphs` in lists of at most about MAX_DOCUMENT_CHARS."""
    part: list[str] = []
    size = 0
    number = 1
    for paragraph in paragraphs:
        if size >= MAX_DOCUMENT_CHARS:
            yield part
            part, size, number = [], 0, number + 1
        part.append(paragraph)
        size += len(paragraph)
    if part:
        yield part
    if number > 1:
        counts["long_documents_parted"] += 1
