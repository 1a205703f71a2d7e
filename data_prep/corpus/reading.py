"""Reads a corpus as documents, from text files of many forms.

Main entries: `survey_files` and `read_surveyed`; files are found by `listing`
and their forms by `forms`. A document is the unit that segment pairs never
cross; its paragraphs are the units in which sentences are looked for. Faults
of a file are counted in a `CorpusReport` and never stop the reading.
"""

import contextlib
import dataclasses
import functools
import hashlib
import html
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

from albert_tf.config import require
from albert_tf.tasks.formats.tables import MARK
from data_prep.corpus.arrow_texts import has_rows, open_texts
from data_prep.corpus.forms import MAX_JSON_LINE_CHARS, CorpusFile, json_object
from data_prep.corpus.markdown import clean_markdown_lines
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.text_files import HashedFile, OpenFile, open_text
from data_prep.progress import Progress

# A longer document is read in parts, so that memory stays bounded whatever
# the corpus. War and Peace has 3.2 million characters.
MAX_DOCUMENT_CHARS = 4_000_000
# A longer line is read in parts too, cut at white space near a part's end.
MAX_LINE_CHARS = 1_000_000
_CUT_WITHIN = 1000

# These are no text. White space of every kind stays; the tokenizer folds it.
_CONTROL = "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
# Bytes that are not UTF-8 come as lone surrogates, see `open_text`; in JSON
# \ud800 may also be written out.
_SURROGATE = "\ud800-\udfff"
_NO_TEXT = re.compile(f"[{_CONTROL}{_SURROGATE}]")
# Each with its replacement.
_FAULTS = (
    ("bad/not_utf8", re.compile(f"[{_SURROGATE}]"), "\ufffd"),
    ("bad/control_characters", re.compile(f"[{_CONTROL}]"), " "),
)
_LAST_SPACE = re.compile(r"\s\S*\Z")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# Written by WikiExtractor in front of an article and behind it.
_ARTICLE = re.compile(r'<doc id=".*>')
_ARTICLE_END = "</doc>"
_ARTICLE_TITLE = re.compile(r'\btitle="(.*)"\s*>')

# Returns the next line with its end, or as much of it as is asked for.
ReadLine = Callable[[int], str]


class Document(NamedTuple):
    """A document: `name` is its file's name, or `name#3` for its third.

    A paragraph may hold line breaks: those that its file has within it.
    """

    name: str
    paragraphs: tuple[str, ...]


class UnitDocument(NamedTuple):
    """A document, its split, and the input list that it comes from.

    The origin keeps files of one name in two lists apart.
    """

    split: str
    origin: str
    name: str
    paragraphs: tuple[str, ...]

    @property
    def num_characters(self) -> int:
        """The size of its text."""
        return sum(map(len, self.paragraphs))


@dataclasses.dataclass(frozen=True)
class FileSurvey:
    """Size and digest of a file as stored, and the report of reading it."""

    file: CorpusFile
    num_bytes: int
    sha256: str
    report: CorpusReport


def survey_file(
    file: CorpusFile, *, open_file: OpenFile = open
) -> tuple[FileSurvey, CorpusSample]:
    """Returns the survey and a sample of a file, which is read through once."""
    report = CorpusReport()
    sample = CorpusSample()
    stored = HashedFile(open_file)
    for document in read_file(file, report, stored):
        sample.add(document.name, document.paragraphs)
    return FileSurvey(file, stored.num_bytes, stored.sha256, report), sample


def survey_files(
    corpus: Sequence[CorpusFile],
    progress: Progress,
    map_files: Callable[..., Iterable] = map,
) -> tuple[list[FileSurvey], CorpusSample]:
    """Returns the survey of each file, and one sample of all."""
    surveys: list[FileSurvey] = []
    sample = CorpusSample()
    with progress("files read") as show:
        for survey, of_file in map_files(survey_file, corpus):
            surveys.append(survey)
            sample.merge(of_file)
            show(len(surveys), len(corpus))
    return surveys, sample


def fingerprint(surveys: Iterable[FileSurvey]) -> str:
    """Returns a digest of the names and contents of files, in their order."""
    digest = hashlib.sha256()
    for survey in surveys:
        digest.update(f"{survey.file.name}\0{survey.sha256}\0".encode())
    return digest.hexdigest()


def read_file(
    file: CorpusFile, report: CorpusReport, open_file: OpenFile = open
) -> Iterator[Document]:
    """Yields the documents of a file, one in memory at a time.

    A document above MAX_DOCUMENT_CHARS comes in parts. Bytes that are not
    UTF-8 become U+FFFD, control characters become spaces, invalid JSON is
    left out; lines end with LF, CR or both. Faults, lines, documents and
    characters are added to `report`.

    Raises:
        UserError: for a file that cannot be read, or that is not compressed
            although its name says so.
    """
    parser = _FileParser(file, report)
    with contextlib.ExitStack() as stack:
        if has_rows(file.path):
            rows = open_texts(file.path, open_file, file.text_column)
            documents = parser.documents_in_rows(stack.enter_context(rows))
        else:
            text = open_text(file.path, open_file, parser.note_damage)
            documents = parser.documents(stack.enter_context(text))
        names = document_names(file)
        for paragraphs in documents:
            report.counts["documents"] += 1
            report.counts["characters"] += sum(map(len, paragraphs))
            yield Document(next(names), tuple(paragraphs))
        parser.close()


def document_names(file: CorpusFile) -> Iterator[str]:
    """Yields the names of a file's documents, without an end."""
    # A file that is one document has further ones if it is read in parts.
    first = 1
    if file.form in ("file", "wrapped", "markdown"):
        yield file.name
        first = 2
    yield from (f"{file.name}#{number}" for number in itertools.count(first))


def read_surveyed(
    survey: FileSurvey, *, open_file: OpenFile = open
) -> Iterator[Document]:
    """Yields the documents of a file that was surveyed, see `read_file`.

    Raises:
        UserError: as `read_file`; and at the end, if the file has changed.
    """
    stored = HashedFile(open_file)
    yield from read_file(survey.file, CorpusReport(), stored)
    require(
        stored.sha256 == survey.sha256,
        f"{survey.file.path} has changed since it was first read; leave the "
        "corpus as it is and start again.",
    )


class _FileParser:
    """Reads one file, and counts its lines and faults."""

    def __init__(self, file: CorpusFile, report: CorpusReport) -> None:
        self._file = file
        self._report = report
        self._counts = report.counts
        self._line_number = 0
        self._num_skipped = 0
        self._damaged = False
        self._last_lines: dict[str, int] = {}  # by fault

    def note_damage(self) -> None:
        self._damaged = True

    def documents(self, stream: TextIO) -> Iterator[Sequence[str]]:
        """Yields the paragraphs of each document."""
        number = self._file.skip_header_lines
        while self._num_skipped < number and _skip_line(stream):
            self._num_skipped += 1
        self._line_number = self._num_skipped
        if self._file.form == "json_lines":
            return self._documents_of(self._json_texts(stream))
        lines = self._lines(stream.readline)
        if self._file.form == "markdown":
            lines = clean_markdown_lines(lines)
        else:
            lines = itertools.dropwhile(lambda line: not line, lines)
            first = next(lines, "")
            lines = itertools.chain([first], lines)
            if _ARTICLE.fullmatch(first):
                return self._articles(lines)
        if self._file.form == "line":
            return self._or_fault([line] for line in lines if line)
        blocks = _blocks(lines, self._counts)
        if self._file.form == "blank_line":
            return self._or_fault(blocks)
        return self._or_fault(_parts(map("\n".join, blocks), self._counts))

    def documents_in_rows(
        self, texts: Iterator[str | None]
    ) -> Iterator[Sequence[str]]:
        """Yields the paragraphs of each text; a row counts as a line."""
        header = itertools.islice(texts, self._file.skip_header_lines)
        self._num_skipped = self._line_number = sum(1 for _ in header)
        return self._documents_of(self._texts_of_rows(texts))

    def _texts_of_rows(self, texts: Iterable[str | None]) -> Iterator[str]:
        for text in texts:
            self._line_number += 1
            if text is None:
                self._fault("bad/no_text_field")
            else:
                yield text

    def close(self) -> None:
        """Counts the lines and faults of the whole file, at its end."""
        if self._damaged:
            self._fault("bad/damaged_archive")
        # A file without lines is a bad line, so it needs to be a line.
        num_lines = max(1, self._line_number - self._num_skipped)
        self._counts["lines"] += num_lines

    def _fault(self, reason: str) -> None:
        """Counts a fault of the current line, at most once."""
        line = max(1, self._line_number)
        self._counts["bad_lines"] += line not in self._last_lines.values()
        self._counts[reason] += self._last_lines.get(reason) != line
        self._last_lines[reason] = line
        self._report.first_locations.setdefault(
            reason, f"{self._file.path}, line {line}"
        )

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
        paragraph or block. `step` is added to the line number with each line.
        """
        for line in iter(functools.partial(readline, MAX_LINE_CHARS + 1), ""):
            self._line_number += step
            if line[-1] != "\n" and len(line) > MAX_LINE_CHARS:
                yield from self._line_parts(line, readline)
            else:
                # Files that begin with the mark may have been joined.
                line = line.removeprefix(MARK)
                yield self._clean(line.rstrip("\n")).strip()

    def _line_parts(self, line: str, readline: ReadLine) -> Iterator[str]:
        """Yields a line that begins with `line` in parts."""
        self._counts["long_lines_parted"] += 1
        blank = True
        while line:
            whole = line[-1] == "\n" or len(line) <= MAX_LINE_CHARS
            end = len(line) if whole else _last_space(line)
            part = line[:end].rstrip("\n").removeprefix(MARK)
            if part := self._clean(part).strip():
                yield part
                blank = False
            line = line[end:]
            if not whole:
                line += readline(MAX_LINE_CHARS + 1 - len(line))
        if blank:
            yield ""

    def _clean(self, text: str) -> str:
        """Returns `text` with faulty characters replaced."""
        # Most lines are printable; white space other than the space is not.
        if text.isprintable() or not _NO_TEXT.search(text):
            return text
        for reason, pattern, replacement in _FAULTS:
            text, number = pattern.subn(replacement, text)
            if number:
                self._fault(reason)
        return text

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
            yield from self._or_fault(_parts(paragraphs, self._counts))

    def _documents_of(self, texts: Iterable[str]) -> Iterator[list[str]]:
        """Yields the paragraphs of texts of their own."""
        empty = True
        for text in texts:
            empty = False
            text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
            paragraphs = self._lines(_line_reader(text), step=0)
            # Separated by blank lines; without any a line is a paragraph.
            if _BLANK_LINE.search(text):
                blocks = _blocks(paragraphs, self._counts)
                paragraphs = map("\n".join, blocks)
            else:
                paragraphs = filter(None, paragraphs)
            yield from self._or_fault(_parts(paragraphs, self._counts))
        if empty and not self._last_lines:
            self._fault("bad/empty_documents")

    def _json_texts(self, stream: TextIO) -> Iterator[str]:
        """Yields the text of every line's object; faults are left out."""
        limit = MAX_JSON_LINE_CHARS + 1
        for line in iter(functools.partial(stream.readline, limit), ""):
            self._line_number += 1
            if line[-1] != "\n" and len(line) == limit:
                _skip_line(stream)
                self._fault("bad/not_json")
                continue
            line = self._clean(line.rstrip("\n").removeprefix(MARK))
            if not line or line.isspace():
                continue
            value = json_object(line)
            if value is None:
                self._fault("bad/not_json")
            elif not isinstance(text := value.get(self._file.text_column), str):
                self._fault("bad/no_text_field")
            else:
                yield text


def _skip_line(stream: TextIO) -> bool:
    """Skips a line, or the rest of one; returns whether there was any."""
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
    """Returns the best position to cut a line: behind its last space."""
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
    parted = False
    for paragraph in paragraphs:
        if size >= MAX_DOCUMENT_CHARS:
            yield part
            part, size, parted = [], 0, True
        part.append(paragraph)
        size += len(paragraph)
    if part:
        yield part
    if parted:
        counts["long_documents_parted"] += 1
