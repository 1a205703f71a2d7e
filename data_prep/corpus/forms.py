"""Recognises the form of text files: `corpus_files`."""

import dataclasses
import itertools
import json
import shlex
from collections.abc import Sequence

from albert_tf.config import UserError
from albert_tf.tasks.formats.tables import DELIMITERS, reading_command
from data_prep.corpus.arrow_texts import STREAM_SUFFIX
from data_prep.corpus.listing import FORM_OF_SUFFIX, text_suffix
from data_prep.corpus.text_files import OpenFile, open_text

# Advice for files that are no text, but would be read as such with their
# separators or tags.
_TABLE = (
    "a table is no text; write its column of texts as lines of JSON, for "
    "example with {command} > texts.jsonl"
)
_COMMAND = (
    'python -c "import csv, json; csv.field_size_limit(1 << 30); '
    "[print(json.dumps({{'text': row['text']}})) for row in csv.DictReader("
    "open(0, encoding='utf-8-sig', newline=''), delimiter={delimiter!r})]\""
)
_MARKUP = (
    "markup is no text; convert it, for example with pandoc -t plain {path} "
    "-o text.txt"
)
_NO_TEXT = {
    ".csv": _TABLE,
    ".tsv": _TABLE,
    ".html": _MARKUP,
    ".htm": _MARKUP,
    ".xml": f"{_MARKUP} (Wikipedia's dumps with WikiExtractor)",
}
# A part of a JSON line is of no use: a longer one is left out as a fault.
MAX_JSON_LINE_CHARS = 64_000_000

# Characters of a file that are examined for hard-wrapped lines.
_WRAP_SAMPLE_CHARS = 1_000_000
# Widths that text is wrapped to; a line of hand-wrapped text falls short of
# its width by some characters that a word would have had room for.
_WRAP_WIDTHS = range(40, 133)
_WRAP_SLACK = 5
_MIN_WRAPPED_LINES = 20


@dataclasses.dataclass(frozen=True)
class CorpusFile:
    """A file to read.

    Attributes:
        path: of the file.
        name: prefix of its documents' names.
        form: how it is read: `file`, one document whose paragraphs are
            separated by blank lines; `wrapped`, the same, recognised by its
            lines; `blank_line`, a document between blank lines, each line a
            paragraph; `line`, a document on each line; `markdown`, as `file`
            without the marks; `json_lines`, a document per line, the
            `text_column` of an object. Plain text that begins with a <doc> of
            WikiExtractor is read by these tags.
        skip_header_lines: lines at its head that are not its text.
        text_column: of JSON lines, Parquet and saved data sets.
        origin: the input list that it comes from.
    """

    path: str
    name: str
    form: str
    skip_header_lines: int = 0
    text_column: str = "text"
    origin: str = ""


def corpus_files(
    files: Sequence[str],
    names: Sequence[str],
    document_separator: str,
    open_file: OpenFile = open,
    skip_header_lines: int = 0,
    text_column: str = "text",
    origin: str = "",
) -> list[CorpusFile]:
    """Returns `files` with the forms in which they are to be read.

    The form follows from the suffix. Without a known one a file is JSON lines
    if its first line is a JSON object, and plain text otherwise. Plain text is
    read as `document_separator` says: `file`, `blank_line` or `line`; `auto` is
    `file` for several files of plain text. A single one is `wrapped` if it
    is hard-wrapped prose, and `blank_line` otherwise.
    """
    forms = [_form(path, open_file) for path in files]
    plain_form = document_separator
    if document_separator == "auto":
        plain_form = "file"
        if forms.count("plain") == 1:
            path = files[forms.index("plain")]
            wrapped = _is_wrapped(path, open_file)
            plain_form = "wrapped" if wrapped else "blank_line"
    return [
        CorpusFile(
            path,
            name,
            plain_form if form == "plain" else form,
            skip_header_lines,
            text_column,
            origin,
        )
        for path, name, form in zip(files, names, forms, strict=True)
    ]


def json_object(line: str) -> dict[str, object] | None:
    """Returns the JSON object that a line holds, None if it holds none."""
    try:
        value = json.loads(line, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _form(path: str, open_file: OpenFile) -> str:
    if form := FORM_OF_SUFFIX.get(text_suffix(path)):
        return form
    if path.lower().endswith(STREAM_SUFFIX):
        return "json_lines"
    suffix = text_suffix(path)
    if advice := _NO_TEXT.get(suffix):
        command = _COMMAND.format(delimiter=DELIMITERS.get(suffix))
        advice = advice.format(
            path=shlex.quote(path), command=reading_command(command, path)
        )
        raise UserError(f"{path}: {advice}.")
    with open_text(path, open_file) as stream:
        for line in iter(lambda: stream.readline(MAX_JSON_LINE_CHARS), ""):
            if line.strip():
                return "plain" if json_object(line) is None else "json_lines"
    return "plain"


def _is_wrapped(path: str, open_file: OpenFile) -> bool:
    """Returns whether the head of a file is hard-wrapped prose.

    The evidence is in lines that are followed by another. In wrapped prose
    the next line's first word would not have fit, and most next lines begin
    in the middle of a sentence, without a capital. Neither holds of sentences,
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
    if len(pairs) < max(_MIN_WRAPPED_LINES, len(lengths) / 4):
        return False
    width = lengths[len(lengths) * 49 // 50]  # a few lines may be longer
    # In scripts without spaces a word is half a line and more.
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
