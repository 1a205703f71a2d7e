import gzip
import hashlib
import io
import json
import pickle
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from reading_helpers import faults, json_lines, paragraphs, read, write
from traced_memory import peak_memory

from albert_tf.config import UserError
from data_prep.corpus import reading
from data_prep.corpus.forms import CorpusFile, corpus_files
from data_prep.corpus.listing import list_files
from data_prep.corpus.reading import (
    Document,
    FileSurvey,
    fingerprint,
    survey_file,
)
from data_prep.corpus.report import CorpusReport

ARTICLES = """\
<doc id="7" url="https://wiki.example/?curid=7" title="Salt &amp; "pepper"">
Salt & "pepper"

Salt is white. Pepper is black.

History.
Both are old.

</doc>
<doc id="9" url="https://wiki.example/?curid=9" title="Tea">
Tea is a drink.
</doc>
"""
TEA = ("Tea is a drink.",)
SALT = ("Salt is white. Pepper is black.", "History.", "Both are old.")
TITLE_ALONE = '<doc id="1" url="u" title="Tea">\nTea\n\n</doc>\n'


def bad(**lines):
    """The counts of faults, each in lines of its own."""
    counts = {f"bad/{name}": number for name, number in lines.items()}
    return counts | {"bad_lines": sum(counts.values())}


@pytest.mark.parametrize(
    ("name", "text", "expected", "counts"),
    [
        ("wiki_00", ARTICLES, [SALT, TEA], {}),
        (
            "wiki_00",
            TITLE_ALONE + ARTICLES,
            [SALT, TEA],
            bad(empty_documents=1),
        ),
        # Text behind an article is not lost; tags within a text are text.
        (
            "wiki_00",
            f"\n{ARTICLES}\nMore tea.\n",
            [SALT, (*TEA, "More tea.")],
            {},
        ),
        (
            "a.txt",
            f"First.\n{TITLE_ALONE}",
            [("First.", TITLE_ALONE.split("\n")[0], "Tea"), ("</doc>",)],
            {},
        ),
        (
            "a.txt",
            "\ufeff\n\none\ntwo\n \t\n\nthree",
            [("one", "two"), ("three",)],
            {},
        ),
        # Other separators of lines end none.
        (
            "a.txt",
            "one\u2028two\x0bthree\x85four\n",
            [("one\u2028two\x0bthree\x85four",)],
            {},
        ),
        (
            "a.md",
            "# Title\n*one* two\n<!-- a --> <!-- b -->\nthree <!--\n-->\n",
            [("Title", "one two", "three ")],
            {},
        ),
        (
            "a.jsonl",
            json_lines(
                {"id": 7, "text": "Title\n\none\nwrapped\n \t\ntwo\r\n\r\n"},
                {"text": "\none\r\ntwo\rthree "},
            )
            + '\n \n{"text": "f\\u00fcnf \\ttab", "title": "not read"}',
            [
                ("Title", "one\nwrapped", "two"),
                ("one", "two", "three"),
                ("fünf \ttab",),
            ],
            {},
        ),
        (
            "a.txt",
            b"caf\xc3\xa9\ncaf\xe9 noir\xc3\n",
            [("café", "caf\ufffd noir\ufffd")],
            bad(not_utf8=1),
        ),
        # A line with several faults is one bad line.
        (
            "a.txt",
            b"a\x00b\x1bc\x7fd\te\xc2\x9f\n\x1fx\xff\x00\n\n\x00\n\nf",
            [("a b c d\te", "x\ufffd"), ("f",)],
            bad(control_characters=3, not_utf8=1) | {"bad_lines": 3},
        ),
        (
            "a.json",
            b'{"text": "a\\u0000b\\ud800c \\ud83d\\ude00"}\n'
            b'{"text": "\xff\x00\\u0000"}\n',
            [("a b\ufffdc \U0001f600",), ("\ufffd",)],
            bad(control_characters=2, not_utf8=2) | {"bad_lines": 2},
        ),
        # A gzip of several members is read whole. Without their times: they
        # would be in the name of the test, which all processes must agree on.
        (
            "A.TXT.GZ",
            gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two", mtime=0),
            [("one", "two")],
            {},
        ),
        # A cut one is read so far.
        (
            "y.txt.gz",
            gzip.compress(b"one\ntwo\n", mtime=0)[:-1],
            [("one", "two")],
            bad(damaged_archive=1),
        ),
        ("z.txt.gz", b"\x1f", [], bad(damaged_archive=1, empty_documents=1)),
        (
            "z.txt.gz",
            gzip.compress(b"one", mtime=0) + b"appended",
            [("one",)],
            bad(damaged_archive=1),
        ),
    ],
)
def test_what_is_read_and_counted(tmp_path, name, text, expected, counts):
    path = write(tmp_path / name, text)
    assert paragraphs(path) == expected
    # An empty file is one bad line, cut or not.
    if not expected:
        counts = counts | {"bad_lines": 1}
    assert faults(path) == counts


def test_each_line_a_document(tmp_path):
    a = write(tmp_path / "a.txt", "\none. two\n\n three\r\nfour")
    b = write(tmp_path / "b.md", "x\n\ny\n")
    assert read(a, b, separator="line") == [
        Document(f"{a}#1", ("one. two",)),
        Document(f"{a}#2", ("three",)),
        Document(f"{a}#3", ("four",)),
        Document(b, ("x", "y")),
    ]
    assert faults(write(tmp_path / "c.txt", "\n"), separator="line") == {
        "bad/empty_documents": 1,
        "bad_lines": 1,
    }


def test_documents_are_named_and_of_several_files_each_is_one(tmp_path):
    a = write(tmp_path / "a.txt", "one\nwrapped\n\ntwo\n")
    b = write(tmp_path / "b.txt", "three")
    c = write(tmp_path / "c.jsonl", json_lines({"text": "x"}))
    assert read(a, b, c) == [
        Document(a, ("one\nwrapped", "two")),
        Document(b, ("three",)),
        Document(f"{c}#1", ("x",)),
    ]
    assert [d.name for d in read(a)] == [f"{a}#1", f"{a}#2"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark(tmp_path, end):
    text = "\ufeffone\ntwo\n\nthree\n".replace("\n", end)
    path = write(tmp_path / "a.txt", text)
    report = CorpusReport()
    documents = read(path, report=report)
    assert [d.paragraphs for d in documents] == [("one", "two"), ("three",)]
    assert report.counts == {"lines": 4, "documents": 2, "characters": 11}


def test_header_lines_are_skipped_in_every_file(tmp_path):
    a = write(tmp_path / "a.txt", b"t\xeftle\n\nauthor\none\n")
    b = write(tmp_path / "b.txt", "title\n\nauthor\ntwo\n\x00")
    c = write(tmp_path / "c.jsonl", "1\n2\n3\n" + json_lines({"text": "j"}))
    d = write(tmp_path / "d.txt", "short\n")
    report = CorpusReport()
    documents = read(a, b, c, d, skip=3, report=report)
    assert [d.paragraphs for d in documents] == [("one",), ("two",), ("j",)]
    assert report.counts["lines"] == 1 + 2 + 1 + 1
    assert report.first_locations == {
        "bad/control_characters": f"{b}, line 5",
        "bad/empty_documents": f"{d}, line 1",
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "cut', "not_json"),
        ('["text"]', "not_json"),
        ("9" * 5000, "not_json"),
        ("[" * 100_000, "not_json"),
        ("{}", "no_text_field"),
        ('{"text": null}', "no_text_field"),
        ('{"text": "\\u0020\\n"}', "empty_documents"),
        ("", None),
    ],
)
def test_json_without_text_is_a_fault(tmp_path, line, reason):
    path = write(tmp_path / "a.json", f'{line}\n{{"text": "a"}}\n{line}')
    assert read(path, names=["x"]) == [Document("x#1", ("a",))]
    expected = bad(**{reason: 2}) if reason else {}
    assert faults(path) == expected
    # A file of such lines alone is not empty too.
    path = write(tmp_path / "a.json", f"{line}\n{line}")
    assert faults(path) == (expected or bad(empty_documents=1))


def test_json_too_long_to_hold_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_JSON_LINE_CHARS", 20)
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 7)
    fits, longer = ('{"text": "%s"}' % ("a" * n) for n in (8, 9))
    path = write(tmp_path / "a.json", f"{longer}\n{fits}\n{longer * 3}\n{fits}")
    report = CorpusReport()
    documents = read(path, report=report)
    assert ["".join(d.paragraphs) for d in documents] == ["a" * 8] * 2
    assert report.counts["bad/not_json"] == 2
    assert report.counts["lines"] == 4


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize(
    ("text", "lines"), [("", 1), (" \t\r\n\u3000\n", 2), ("\ufeff", 1)]
)
def test_an_empty_file_is_a_bad_line(tmp_path, name, text, lines):
    path = write(tmp_path / name, text)
    report = CorpusReport()
    assert read(path, report=report) == []
    assert report.counts == {"lines": lines} | bad(empty_documents=1)
    assert report.first_locations["bad/empty_documents"].startswith(path)


LINES = [f"{hashlib.sha256(b'%d' % n).hexdigest()}\n" for n in range(9000)]


@pytest.mark.parametrize("damage", ["cut", "damaged"])
def test_a_damaged_gzip_keeps_what_could_be_read(tmp_path, damage):
    data = gzip.compress("".join(LINES).encode())
    data = data[: len(data) // 2]
    if damage == "damaged":
        data += b"\xff" * 1000
    path = write(tmp_path / "a.txt.gz", data)
    report = CorpusReport()
    (document,) = read(path, report=report)
    whole = document.paragraphs[:-1]
    assert 4000 < len(whole) < 5000
    assert list(whole) == [line.strip() for line in LINES[: len(whole)]]
    assert report.counts["bad/damaged_archive"] == 1
    location = report.first_locations["bad/damaged_archive"]
    assert location == f"{path}, line {len(whole) + 1}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", b"one\n\ntwo"),
        # The first line decides on the form.
        ("wiki_00", b'{"text": "one\\n\\ntwo"}'),
    ],
)
def test_a_gzip_by_another_name_is_unpacked(tmp_path, name, text):
    data = gzip.compress(text)
    for stored, counts in ((data, {}), (data[:-1], bad(damaged_archive=1))):
        path = write(tmp_path / name, stored)
        assert paragraphs(path, separator="file") == [("one", "two")]
        assert faults(path, separator="file") == counts


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["a.txt", "wiki_00"])
def test_utf16_is_refused_by_name(tmp_path, name, pack):
    good = write(tmp_path / "good.txt", "fine")
    path = write(tmp_path / name, pack("One. Two.".encode("utf-16")))
    with pytest.raises(UserError, match=f"{path} is UTF-16, expected UTF-8; "):
        read(good, path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: No such file"):
        read(str(tmp_path / "gone.txt"))

    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(10)

    documents = reading.read_file(
        CorpusFile("far/a.txt", "a", "file"),
        CorpusReport(),
        lambda path, mode: Failing(b"one\n" * 100),
    )
    with pytest.raises(UserError, match=r"far/a\.txt: Input/output error"):
        list(documents)


# -------------------------------------------------------------- what is long


def test_long_documents_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_DOCUMENT_CHARS", 10)
    a = write(tmp_path / "a.txt", "one two\n\nthree four\n\nfive\n")
    b = write(tmp_path / "b.txt", "short")
    assert read(a, b) == [
        Document(a, ("one two", "three four")),
        Document(f"{a}#2", ("five",)),
        Document(b, ("short",)),
    ]
    assert faults(a, b) == {"long_documents_parted": 1}
    block = write(tmp_path / "c.txt", "one two\nthree\nfour\n")
    assert paragraphs(block) == [("one two", "three"), ("four",)]
    assert faults(block) == {"long_blocks_parted": 1}
    texts = ["one\ntwo three\nfour", "five"]
    path = write(
        tmp_path / "d.jsonl", json_lines(*[{"text": t} for t in texts])
    )
    assert read(path, names=["x"]) == [
        Document("x#1", ("one", "two three")),
        Document("x#2", ("four",)),
        Document("x#3", ("five",)),
    ]


def test_long_lines_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 10)
    text = "0123456789\n\none two three\nfour\n\n" + "é" * 25 + "\n" + " " * 25
    path = write(tmp_path / "a.txt", text)
    assert paragraphs(path) == [
        ("0123456789",),
        ("one two", "three", "four"),
        ("é" * 11, "é" * 11, "é" * 3),
    ]
    assert faults(path) == {"long_lines_parted": 3}
    assert paragraphs(path, separator="file")[0][1] == "one two\nthree\nfour"


@hypothesis.settings(deadline=None)
@hypothesis.given(
    st.lists(st.sampled_from(["a", "é", " ", "\n", "word", "\U0001f600"])),
    st.integers(1, 12),
)
@hypothesis.example(["one", *" " * 50, "two", "\n", *" " * 50, "\n", "a"], 10)
def test_parts_hold_every_character(tmp_path_factory, pieces, limit):
    text = "".join(pieces)
    path = write(tmp_path_factory.mktemp("parts") / "a.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MAX_LINE_CHARS", limit)
        documents = read(path)
    blocks = [[]]
    for line in text.split("\n"):
        if line.strip():
            blocks[-1].append("".join(line.split()))
        else:
            blocks.append([])
    assert ["".join("".join(d.paragraphs).split()) for d in documents] == [
        "".join(block) for block in blocks if block
    ]
    assert all(len(p) <= limit + 1 for d in documents for p in d.paragraphs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "most"),
    [
        # Two documents of MAX_DOCUMENT_CHARS, as lists and joined.
        ("one_line.txt", "word " * 20, 4),
        ("nothing.txt", "\0" + "x" * 99, 4),
        ("unclosed.md", "word <!--\n```\n" + "word " * 80 + "\n", 4),
        ("bomb.txt.gz", " " * 100, 4),
        # The line and its text, whole and in pieces.
        ("one_line.jsonl", "word " * 20, 24),
    ],
)
def test_memory_is_bounded(tmp_path, monkeypatch, name, line, most):
    monkeypatch.setattr(reading, "MAX_DOCUMENT_CHARS", 400_000)
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 100_000)
    text = line * (6_000_000 // len(line))
    if name.endswith("jsonl"):
        text = json.dumps({"text": text})
    path = write(tmp_path / name, text)
    del text
    (file,) = corpus_files([path], ["a"], "file")
    assert peak_memory(lambda: survey_file(file)) < most * 1e6


# ------------------------------------------------------------------- survey


def test_a_survey_is_an_account_of_reading(tmp_path):
    write(tmp_path / "a.txt", "one\n\ntwo")
    write(tmp_path / "b" / "b.md", "## Head\n_text_")
    write(tmp_path / "c.jsonl", json_lines({"text": "json"}, {"text": 1}))
    write(tmp_path / "d.txt.gz", gzip.compress(b"packed\n\xff\n"))
    write(tmp_path / "f.txt", b"\xff\n")
    paths = list_files([str(tmp_path)])
    merged = CorpusReport()
    for file in corpus_files(paths, paths, "file"):
        survey, sample = survey_file(file)
        data = Path(file.path).read_bytes()
        assert (survey.file, survey.num_bytes) == (file, len(data))
        assert survey.sha256 == hashlib.sha256(data).hexdigest()
        assert len(sample.texts()) == survey.report.counts["documents"]
        merged.merge(pickle.loads(pickle.dumps(survey)).report)
    whole = CorpusReport()
    read(*paths, separator="file", report=whole)
    assert merged == whole
    assert whole.counts["lines"] == 3 + 2 + 2 + 2 + 1
    # The first location of each, in the order in which they were met.
    assert list(merged.first_locations.items()) == [
        ("bad/no_text_field", f"{paths[2]}, line 2"),
        ("bad/not_utf8", f"{paths[3]}, line 2"),
    ]


def checked(path, sha256, **keywords):
    file = CorpusFile(path, "a", "blank_line", skip_header_lines=1)
    survey = FileSurvey(file, 0, sha256, CorpusReport())
    return reading.read_surveyed(survey, **keywords)


DATA = "\n".join(LINES).encode()
PACKED = gzip.compress(DATA)


@pytest.mark.parametrize(
    ("name", "data", "changed"),
    [
        ("a.txt", DATA, DATA[:-1]),
        ("a.txt", DATA, b""),
        ("a.txt", DATA, DATA + b"\n"),
        # Above what is read in advance of the first document.
        ("a.txt", DATA, DATA[:300_000] + b"0123" + DATA[300_004:]),
        # A gzip's end is found before that of the file.
        ("a.gz", PACKED + bytes(500_000), PACKED + bytes(499_999) + b"\1"),
    ],
    ids=range(5),
)
def test_a_file_that_changes_is_noticed(tmp_path, name, data, changed):
    path = write(tmp_path / name, data)
    sha256 = hashlib.sha256(data).hexdigest()
    assert len(list(checked(path, sha256))) == 8999
    documents = checked(path, sha256)
    next(documents)
    write(tmp_path / name, changed)
    message = r"a\.\w+ has changed since it was first .* start again"
    with pytest.raises(UserError, match=message):
        list(documents)
    with pytest.raises(UserError, match=message):
        list(checked(path, sha256))


class Remote:
    """A file of which little is read at a time, in pieces."""

    def __init__(self, data):
        self.data = data
        self.closed = False

    def read(self, size):
        size = min(size, 700)
        head, self.data = self.data[:size], self.data[size:]
        return head

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def test_files_can_be_opened_elsewhere_and_left():
    stored = Remote(PACKED)
    file = CorpusFile("far/a.gz", "a", "blank_line")
    survey, _ = survey_file(file, open_file=lambda path, mode: stored)
    assert survey.sha256 == hashlib.sha256(PACKED).hexdigest()
    assert survey.report.counts["documents"] == len(LINES)
    assert stored.closed
    # Reading that stops early reads no further.
    stored = Remote(DATA)
    documents = checked("a.txt", "", open_file=lambda path, mode: stored)
    next(documents)
    left = stored.data
    documents.close()
    assert stored.data == left != b""
    assert stored.closed


def test_a_fingerprint_is_of_names_contents_and_order():
    def of(*files):
        return fingerprint(
            FileSurvey(CorpusFile("x", name, "file"), 0, sha256, CorpusReport())
            for name, sha256 in files
        )

    prints = [
        of(("a", "one"), ("b", "two")),
        of(("b", "two"), ("a", "one")),
        of(("a", "one"), ("c", "two")),
        of(("a", "one"), ("b", "tow")),
        of(("a", "one")),
    ]
    assert len(set(prints)) == 5


def test_too_many_bad_lines_are_refused(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\n\xff\n\xff\x00\nfine\n")
    report = CorpusReport()
    report.check(0)
    assert report.describe_faults() == ""
    read(path, report=report)
    report.check(0.5)
    assert report.describe_faults() == (
        f"Bad lines: 2 of 4 (50%): 2 not UTF-8 (first: {path}, line 2), kept "
        f"with U+FFFD for such bytes; 1 control characters (first: {path}, "
        "line 3), kept with blanks for them"
    )
    faults = (
        rf"2 of 4 \(50%\): 2 not UTF-8 \(first: {path}, line 2\), 1 control "
        rf"characters \(first: {path}, line 3\); max_bad_fraction=0.49 is"
    )
    with pytest.raises(UserError, match=f"{faults}.*iconv.*binary data, or"):
        report.check(0.49)


def test_text_that_is_missing_is_called_so(tmp_path):
    path = write(tmp_path / "a.txt", b"\n\n")
    report = CorpusReport()
    read(path, report=report)
    report.check(1.0, 3)
    with pytest.raises(UserError, match="has no text behind the 3 lines that"):
        report.check(0.1, 3)
    with pytest.raises(UserError, match=rf"has no text \(first: {path}, line"):
        report.check(0.1)
    # One text beside empty files: those are the fault.
    read(write(tmp_path / "b.txt", b"text\n"), report=report)
    with pytest.raises(UserError, match=r"Bad lines: 1 of 3 "):
        report.check(0.1)


@pytest.mark.parametrize(
    ("name", "lines"),
    [("a.txt", ["a\n\n"]), ("a.jsonl", ['{"text": "a"}\n'])],
)
def test_files_with_marks_that_were_joined(tmp_path, name, lines):
    path = write(tmp_path / name, "\ufeff" + "\ufeff".join(lines * 2))
    assert faults(path, separator="blank_line") == {}
    found = paragraphs(path, separator="blank_line")
    assert [*map(list, found)] == [["a"], ["a"]]
