import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import textwrap
import tracemalloc
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from albert_tf.config import UserError
from data_prep.corpus import reading
from data_prep.corpus.forms import CorpusFile, corpus_files
from data_prep.corpus.listing import is_text_name, list_files
from data_prep.corpus.reading import Document, fingerprint, survey_file
from data_prep.corpus.report import FAULTS, CorpusReport


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(data)
    return str(path)


def read(*paths, separator="auto", skip=0, names=None, report=None):
    """Returns documents and the counts that are not those of all reading."""
    report = CorpusReport() if report is None else report
    files = corpus_files(
        paths, names or paths, separator, skip_header_lines=skip
    )
    return list(reading.read_documents(files, report))


def paragraphs(*paths, **keywords):
    return [document.paragraphs for document in read(*paths, **keywords)]


def faults(*paths, **keywords):
    """Returns what is counted besides lines, documents and characters."""
    report = CorpusReport()
    read(*paths, report=report, **keywords)
    ordinary = ("lines", "documents", "characters")
    return {n: c for n, c in report.counts.items() if n not in ordinary}


def json_lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


# ---------------------------------------------------------------- list_files


def test_files_directories_and_globs_are_listed_once_and_sorted(tmp_path):
    b = write(tmp_path / "b.txt", "b")
    a = write(tmp_path / "deep" / "er" / "a.md", "a")
    c = write(tmp_path / "c.text", "c")
    write(tmp_path / "deep" / "table.csv", "not text")
    assert list_files([str(tmp_path)]) == [b, a]
    assert list_files([c, str(tmp_path), b]) == [b, c, a]
    assert list_files([f"{tmp_path}/*.t*xt"]) == [b, c]
    assert list_files([f"{tmp_path}/**/*.md"]) == [a]
    assert list_files([f"{tmp_path}/deep/../b.txt", b]) == [b]


def test_one_file_by_two_paths_is_one(tmp_path, monkeypatch):
    a = write(tmp_path / "a.txt", "a")
    monkeypatch.chdir(tmp_path)
    assert list_files([a, "a.txt"]) == [a]


def test_the_order_of_the_file_system_does_not_matter(tmp_path, monkeypatch):
    for name in "hgfedcba":
        write(tmp_path / f"{name}.txt", name)
    expected = [str(tmp_path / f"{name}.txt") for name in "abcdefgh"]
    walk = os.walk

    def backwards(directory, **keywords):
        for folder, folders, names in walk(directory, **keywords):
            yield folder, folders, sorted(names, reverse=True)

    monkeypatch.setattr(os, "walk", backwards)
    assert list_files([str(tmp_path)]) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.txt", "missing.txt' does not exist"),
        ("*.md", r"\*.md' holds no text"),
        ("folder", "folder' holds no text"),
    ],
)
def test_an_input_without_text_is_named(tmp_path, name, message):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "folder" / "table.csv", "a")
    with pytest.raises(UserError, match=message):
        list_files([str(tmp_path / "a.txt"), str(tmp_path / name)])


def test_directories_hold_every_form_also_gzipped(tmp_path):
    names = ["a.txt", "b.md", "c.jsonl", "d.json", "e.ndjson", "f.TXT"]
    names += [f"{name}.gz" for name in names]
    for name in [*names, "wiki_00", "x.csv", "y.csv.gz", "txt", "z.gz"]:
        write(tmp_path / name, "x")
    expected = sorted(str(tmp_path / name) for name in names)
    assert list_files([str(tmp_path)]) == expected


def test_a_directory_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "closed" / "b.txt", "b")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match="closed: Permission denied"):
        list_files([str(tmp_path)])


def test_hidden_names_in_directories_are_left_out(tmp_path):
    a = write(tmp_path / ".corpus" / "a.txt", "a")
    hidden = write(tmp_path / ".corpus" / ".b.txt", "b")
    write(tmp_path / ".corpus" / ".git" / "c.txt", "c")
    write(tmp_path / ".corpus" / "deep" / ".cache" / "er" / "d.txt", "d")
    assert list_files([str(tmp_path / ".corpus")]) == [a]
    # What is named itself is wanted.
    assert list_files([hidden]) == [hidden]
    with pytest.raises(UserError, match="holds no text"):
        list_files([str(tmp_path)])


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [
        ("a.txt", True),
        ("x.y/A.JSONL.GZ", True),
        ("/b.md", True),
        ("a.gz", False),
        ("a", False),
        ("a.csv", False),
        (".txt", False),
        ("b/.a.txt", False),
        (".b/a.txt", False),
    ],
)
def test_names_that_are_taken_from_directories(path, is_taken):
    assert is_text_name(path) is is_taken


def test_linked_directories_are_followed_once(tmp_path):
    write(tmp_path / "store" / "a.txt", "a")
    inside = write(tmp_path / "corpus" / "deep" / "b.txt", "b")
    folder = tmp_path / "corpus"
    for name in ("y", "x", "z"):
        (folder / name).symlink_to(tmp_path / "store")
    (folder / "again").symlink_to(folder / "deep")
    (folder / "deep" / "up").symlink_to(folder)
    (tmp_path / "store" / "itself").symlink_to("itself")
    (tmp_path / "store" / "back").symlink_to(folder / "deep")
    assert list_files([str(folder)]) == [
        str(folder / "again" / "b.txt"),
        str(folder / "x" / "a.txt"),
    ]
    assert os.path.samefile(inside, folder / "again" / "b.txt")


def test_links_to_directories_above_are_not_followed(tmp_path):
    b = write(tmp_path / "b.txt", "b")
    c = write(tmp_path / "deep" / "c.txt", "c")
    (tmp_path / "a").symlink_to(tmp_path)
    (tmp_path / "deep" / "a").symlink_to(".")
    assert list_files([str(tmp_path)]) == [b, c]


def test_a_linked_file_is_read_once_by_its_first_path(tmp_path):
    b = write(tmp_path / "b.txt", "b")
    a, c = tmp_path / "a.txt", tmp_path / "c.md"
    a.symlink_to(b)
    c.symlink_to(b)
    assert list_files([str(tmp_path)]) == [str(a)]
    for inputs in ([b, str(c)], [str(c), b]):
        assert list_files(inputs) == [b]
    assert list_files([f"{tmp_path}/*"]) == [str(a)]


def test_a_path_through_a_link_and_up_is_kept(tmp_path):
    """A link's parent is not the directory that the link is in."""
    write(tmp_path / "a.txt", "wrong")
    write(tmp_path / "store" / "a.txt", "right")
    (tmp_path / "store" / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store" / "deep")
    (path,) = list_files([str(tmp_path / "link" / ".." / "a.txt")])
    assert Path(path).read_text() == "right"


def test_what_is_no_regular_file_is_never_opened(tmp_path):
    a = write(tmp_path / "a.txt", "a")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    assert list_files([str(tmp_path)]) == [a]
    assert list_files([f"{tmp_path}/*"]) == [a]
    with pytest.raises(UserError, match=r"pipe\.txt' is no regular file"):
        list_files([str(tmp_path / "pipe.txt")])


def test_a_link_that_leads_nowhere_is_named(tmp_path):
    write(tmp_path / "a.txt", "a")
    (tmp_path / "b.csv").symlink_to("gone")
    list_files([str(tmp_path)])
    (tmp_path / "c.txt").symlink_to("gone")
    for inputs in (str(tmp_path), f"{tmp_path}/*.txt"):
        with pytest.raises(UserError, match=r"c\.txt is a link to a missing"):
            list_files([inputs])


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"caf\xe9/a.txt"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, name, monkeypatch):
    path = os.path.join(os.fsencode(tmp_path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"text")
    folder = os.fsdecode(os.path.dirname(path))
    message = r"name '/.*caf\\udce9.*' is not UTF-8; rename it\.$"
    monkeypatch.chdir(folder)
    named = os.path.basename(os.fsdecode(path))
    for inputs in (str(tmp_path), folder, os.fsdecode(path), named):
        with pytest.raises(UserError, match=message) as error:
            list_files([inputs])
        str(error.value).encode()


def test_no_input_is_an_error():
    with pytest.raises(UserError, match="No input"):
        list_files([])


# -------------------------------------------------------------- corpus_files


def forms(separator, *paths):
    return [f.form for f in corpus_files(paths, paths, separator)]


def test_suffixes_tell_the_form(tmp_path):
    names = ["a.md", "b.jsonl.gz", "c.json", "d.ndjson", "e.MD.GZ"]
    expected = ["markdown", *["json_lines"] * 3, "markdown"]
    # Without opening them: they do not exist.
    assert forms("blank_line", *names) == expected


def test_one_plain_text_among_all_has_blank_lines_between_documents(tmp_path):
    a = write(tmp_path / "a.txt", "one\n\ntwo\n")
    b = write(tmp_path / "b.txt.gz", gzip.compress(b"one\n\ntwo\n"))
    assert forms("auto", a) == ["blank_line"]
    assert forms("auto", "a.md", b) == ["markdown", "blank_line"]
    # Several are not opened.
    assert forms("auto", "a.txt", "b.txt") == ["file", "file"]
    assert forms("file", "a.txt") == ["file"]
    assert forms("blank_line", "a.txt", "b.txt") == ["blank_line"] * 2


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('\n \n{"text": "a"}\nb\n', "json_lines"),
        ('\ufeff{"id": 1}', "json_lines"),
        ("{curly", "file"),
        ("[1]\n", "file"),
        ("", "file"),
        ("plain\n{}", "file"),
        ("[" * 100_000, "file"),
    ],
)
@pytest.mark.parametrize("name", ["wiki_00", "wiki.text", "wiki_00.gz"])
def test_a_first_line_tells_the_form_without_a_suffix(
    tmp_path, name, text, form
):
    data = text.encode()
    path = write(
        tmp_path / name, gzip.compress(data) if name[-2:] == "gz" else data
    )
    assert forms("file", path) == [form]


def test_files_keep_their_names():
    assert corpus_files(["x/a.txt"], ["a"], "file") == [
        CorpusFile("x/a.txt", "a", "file")
    ]


# -------------------------------------------------------- hard-wrapped text


def prose(sentences):
    """Returns 40 paragraphs of one to six sentences, each of some lines."""
    joined = [" ".join(sentences[i : i + 4]) for i in range(0, 560, 4)]
    joined = [text.capitalize() for text in joined]
    return [" ".join(joined[3 * i : 3 * i + 1 + i % 6]) for i in range(40)]


def wrapped(paragraphs, width):
    return "\n\n".join(textwrap.fill(text, width) for text in paragraphs)


@pytest.mark.parametrize("width", [65, 72, 80])
def test_a_hard_wrapped_file_is_one_document(tmp_path, sentences, width):
    expected = prose(sentences)
    path = write(tmp_path / "a.txt", wrapped(expected, width))
    (document,) = read(path)
    assert document.name == path
    joined = [text.replace("\n", " ") for text in document.paragraphs]
    assert joined == expected


def test_hand_wrapped_lines_and_a_heading_are_hard_wrapped(tmp_path, sentences):
    lines = ["THE BOOK", "", "Table of contents " + "." * 80, ""]
    for number, text in enumerate(prose(sentences)):
        lines += [*textwrap.wrap(text, 72 - number % 5), ""]
    path = write(tmp_path / "a.txt", "\r\n".join(lines))
    assert forms("auto", path) == ["wrapped"]


def test_a_setting_overrules_that_lines_are_wrapped(tmp_path, sentences):
    path = write(tmp_path / "a.txt", wrapped(prose(sentences), 72))
    assert forms("blank_line", path) == ["blank_line"]
    assert forms("file", path) == ["file"]


def spaced(blocks):
    return "\n\n".join("\n".join(lines) for lines in blocks)


NOT_WRAPPED = {
    "a sentence a line": lambda s: spaced(
        [s[i : i + 9] for i in range(0, 400, 9)]
    ),
    "a sentence a line without capitals": lambda s: spaced(
        [[x.lower().strip(".") for x in s[:400]]]
    ),
    "a paragraph a line": lambda s: "\n".join(prose(s)),
    "a paragraph a block": lambda s: "\n\n".join(prose(s)),
    "a wrapped notice before paragraphs": lambda s: (
        wrapped(prose(s)[:20], 72) + "\n\n" + "\n\n".join(prose(s) * 3)
    ),
    "a wrapped notice before short blocks": lambda s: (
        wrapped(prose(s)[:12], 72) + "\n\n" + "\n\n".join(s[:400])
    ),
    "few wrapped lines": lambda s: wrapped(prose(s)[:3], 72),
    "verses": lambda s: spaced(
        [x.capitalize() for x in textwrap.wrap(text, 30 + 5 * (n % 7))]
        for n, text in enumerate(prose(s))
    ),
    "a list": lambda s: spaced([[f"- {x}" for x in s[:300]]]),
    "words": lambda s: "\n".join(" ".join(s[:100]).lower().split()),
    "a log": lambda s: spaced(
        [[f"2024-03-01 10:{n % 60:02} INFO {x}" for n, x in enumerate(s)]]
    ),
    "a table": lambda s: "\n".join(f"{n:>20} {n * n:>40}" for n in range(200)),
    "sequences": lambda s: "\n".join(["acgt" * 15] * 200),
    "a script without spaces": lambda s: spaced(
        [["\u6587\u5b57\u6587" * 16 for _ in range(8)] for _ in range(20)]
    ),
}


@pytest.mark.parametrize("kind", NOT_WRAPPED)
def test_other_lines_are_not_taken_for_wrapped_ones(tmp_path, sentences, kind):
    path = write(tmp_path / "a.txt", NOT_WRAPPED[kind](sentences))
    assert forms("auto", path) == ["blank_line"]


# ------------------------------------------------------------ WikiExtractor

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


@pytest.mark.parametrize("separator", ["auto", "file", "blank_line"])
@pytest.mark.parametrize("name", ["wiki_00", "wiki_00.gz", "all.txt"])
def test_articles_of_wikiextractor_are_documents(tmp_path, name, separator):
    data = ARTICLES.encode()
    data = gzip.compress(data) if name.endswith("gz") else data
    path = write(tmp_path / name, data)
    assert paragraphs(path, separator=separator) == [
        (
            "Salt is white. Pepper is black.",
            "History.",
            "Both are old.",
        ),
        ("Tea is a drink.",),
    ]


def test_articles_have_names_of_their_own_whatever_their_form(tmp_path):
    path = write(tmp_path / "wiki_00", ARTICLES)
    for separator in ("file", "blank_line"):
        names = [document.name for document in read(path, separator=separator)]
        assert len(set(names)) == 2


def test_an_article_of_its_title_alone_is_empty(tmp_path):
    text = '<doc id="1" url="u" title="Tea">\nTea\n\n</doc>\n' + ARTICLES
    path = write(tmp_path / "wiki_00", text)
    assert len(read(path)) == 2
    assert faults(path) == {"bad/empty_documents": 1, "bad_lines": 1}


def test_text_behind_an_article_is_not_lost(tmp_path):
    path = write(tmp_path / "wiki_00", f"\n{ARTICLES}\nMore tea.\n")
    assert paragraphs(path)[1] == ("Tea is a drink.", "More tea.")


def test_tags_within_a_text_are_text(tmp_path):
    path = write(tmp_path / "a.txt", f"First.\n{ARTICLES}")
    assert paragraphs(path)[0][:2] == ("First.", ARTICLES.split("\n")[0])


# ---------------------------------------------------------------- plain text


def test_one_plain_text_has_documents_between_blank_lines(tmp_path):
    path = write(tmp_path / "a.txt", "\n\none\ntwo\n \t\n\nthree")
    assert read(path) == [
        Document(f"{path}#1", ("one", "two")),
        Document(f"{path}#2", ("three",)),
    ]


def test_of_several_files_each_is_a_document(tmp_path):
    a = write(tmp_path / "a.txt", "one\nwrapped\n\ntwo\n")
    b = write(tmp_path / "b.txt", "three")
    assert read(a, b) == [
        Document(a, ("one\nwrapped", "two")),
        Document(b, ("three",)),
    ]


def test_markdown_is_a_document_without_its_marks(tmp_path):
    path = write(tmp_path / "a.md", "# Title\n*one* two\n\nthree <!--\n-->\n")
    expected = [Document(path, ("Title", "one two", "three "))]
    assert read(path) == expected
    assert read(path, separator="blank_line") == expected


def test_a_blank_left_by_marks_is_blank(tmp_path):
    path = write(tmp_path / "a.md", "one\n<!-- a --> <!-- b -->\ntwo")
    assert paragraphs(path) == [("one", "two")]


def test_header_lines_are_skipped_in_every_file(tmp_path):
    a = write(tmp_path / "a.txt", b"t\xeftle\n\nauthor\none\n")
    b = write(tmp_path / "b.txt", "title\n\nauthor\ntwo\n\x00")
    c = write(tmp_path / "c.jsonl", "1\n2\n3\n" + json_lines({"text": "j"}))
    d = write(tmp_path / "d.txt", "short\n")
    report = CorpusReport()
    documents = read(a, b, c, d, skip=3, report=report)
    assert [d.paragraphs for d in documents] == [("one",), ("two",), ("j",)]
    assert report.counts["lines"] == 1 + 2 + 1 + 1
    assert report.first_places == {
        "bad/control_characters": f"{b}, line 5",
        "bad/empty_documents": f"{d}, line 1",
    }


def test_documents_are_called_by_given_names(tmp_path):
    a = write(tmp_path / "a.txt", "one\n\ntwo")
    (first, second) = read(a, names=["x.txt"])
    assert (first.name, second.name) == ("x.txt#1", "x.txt#2")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark(tmp_path, end):
    text = "\ufeffone\ntwo\n\nthree\n".replace("\n", end)
    path = write(tmp_path / "a.txt", text)
    report = CorpusReport()
    documents = read(path, report=report)
    assert [d.paragraphs for d in documents] == [("one", "two"), ("three",)]
    assert report.counts == {"lines": 4, "documents": 2, "characters": 11}


def test_unicode_line_separators_end_no_line(tmp_path):
    path = write(tmp_path / "a.txt", "one\u2028two\x0bthree\x85four\n")
    assert paragraphs(path) == [("one\u2028two\x0bthree\x85four",)]
    assert faults(path) == {}


def test_one_sentence_is_a_document(tmp_path):
    path = write(tmp_path / "a.txt", "One sentence.")
    assert paragraphs(path) == [("One sentence.",)]
    assert faults(path) == {}


# --------------------------------------------------------------- JSON lines


def test_json_texts_are_documents(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        json_lines(
            {"id": 7, "text": "Title\n\none\nwrapped\n \ntwo\r\n\r\n"},
            {"text": "\none\r\ntwo\rthree "},
        )
        + "\n \n"
        + '{"text": "f\\u00fcnf \ttab", "title": "not read"}',
    )
    assert read(path, names=["x"]) == [
        Document("x#1", ("Title", "one\nwrapped", "two")),
        Document("x#2", ("one", "two", "three")),
        Document("x#3", ("fünf \ttab",)),
    ]
    assert faults(path) == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "cut', "not_json"),
        ("no json", "not_json"),
        ('["text"]', "not_json"),
        ('"text"', "not_json"),
        ("9" * 5000, "not_json"),
        ("[" * 100_000, "not_json"),
        ("{}", "no_text_field"),
        ('{"text": null}', "no_text_field"),
        ('{"text": ["a"]}', "no_text_field"),
        ('{"text": ""}', "empty_documents"),
        ('{"text": "\\u0020\\n"}', "empty_documents"),
    ],
)
def test_json_without_text_is_a_fault(tmp_path, line, reason):
    path = write(tmp_path / "a.json", f'{line}\n{{"text": "a"}}\n{line}')
    assert read(path, names=["x"]) == [Document("x#1", ("a",))]
    assert faults(path) == {f"bad/{reason}": 2, "bad_lines": 2}


def test_a_file_without_json_is_not_empty_too(tmp_path):
    path = write(tmp_path / "a.json", "[\n]\n")
    assert faults(path) == {"bad/not_json": 2, "bad_lines": 2}


def test_a_blank_line_in_json_may_hold_blanks(tmp_path):
    path = write(tmp_path / "a.json", json_lines({"text": "a\nb\n \t\nc"}))
    assert paragraphs(path) == [("a\nb", "c")]


def test_what_json_says_is_cleaned_too(tmp_path):
    path = write(
        tmp_path / "a.json",
        b'{"text": "a\\u0000b\\ud800c \\ud83d\\ude00"}\n{"text": "\xff\x00"}\n',
    )
    assert paragraphs(path) == [("a b\ufffdc \U0001f600",), ("\ufffd",)]
    assert faults(path) == {
        "bad/not_utf8": 2,
        "bad/control_characters": 2,
        "bad_lines": 2,
    }


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


# ------------------------------------------------------------------- faults


def test_what_is_not_utf8_is_replaced(tmp_path):
    path = write(tmp_path / "a.txt", b"caf\xc3\xa9\ncaf\xe9 noir\xc3\n")
    report = CorpusReport()
    (document,) = read(path, report=report)
    assert document.paragraphs == ("café", "caf\ufffd noir\ufffd")
    assert report.counts["bad/not_utf8"] == 1
    assert report.first_places == {"bad/not_utf8": f"{path}, line 2"}
    assert report.bad_fraction == 0.5


def test_control_characters_become_spaces(tmp_path):
    path = write(
        tmp_path / "a.txt", "a\x00b\x1bc\x7fd\te\x9f\n\x1fx\n\n\x00\n\nf"
    )
    assert paragraphs(path) == [("a b c d\te", "x"), ("f",)]
    assert faults(path) == {"bad/control_characters": 3, "bad_lines": 3}


def test_a_line_with_several_faults_is_one_bad_line(tmp_path):
    path = write(tmp_path / "a.txt", b"a\xff\x00\xff")
    assert faults(path) == {
        "bad/not_utf8": 1,
        "bad/control_characters": 1,
        "bad_lines": 1,
    }


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.jsonl", "a.txt.gz"])
@pytest.mark.parametrize(
    ("text", "lines"),
    [("", 1), ("\n\n", 2), (" \t\r\n\u3000\n", 2), ("\ufeff", 1)],
)
def test_an_empty_file_is_a_bad_line(tmp_path, name, text, lines):
    data = text.encode()
    path = write(
        tmp_path / name, gzip.compress(data) if name[-2:] == "gz" else data
    )
    for separator in ("file", "blank_line"):
        report = CorpusReport()
        assert read(path, separator=separator, report=report) == []
        assert report.counts == {
            "lines": lines,
            "bad_lines": 1,
            "bad/empty_documents": 1,
        }
        assert report.first_places["bad/empty_documents"].startswith(path)


def test_bad_lines_are_never_more_than_lines(tmp_path):
    path = write(tmp_path / "a.txt", "\x00")
    report = CorpusReport()
    read(path, report=report)
    assert report.bad_fraction == 1
    assert report.counts["bad/empty_documents"] == 1


def gzipped(lines, level=6):
    return gzip.compress("".join(lines).encode(), level)


def test_a_cut_gzip_keeps_what_could_be_read(tmp_path):
    lines = [f"{hashlib.sha256(b'%d' % n).hexdigest()}\n" for n in range(5000)]
    data = gzipped(lines)
    path = write(tmp_path / "a.txt.gz", data[: len(data) // 2])
    report = CorpusReport()
    (document,) = read(path, report=report)
    whole = document.paragraphs[:-1]
    assert 2000 < len(whole) < 3000
    assert list(whole) == [line.strip() for line in lines[: len(whole)]]
    # The beginning of a line is text too.
    assert lines[len(whole)].startswith(document.paragraphs[-1])
    assert report.counts["bad/cut_gzip"] == 1
    assert (
        report.first_places["bad/cut_gzip"] == f"{path}, line {len(whole) + 1}"
    )


def test_a_cut_in_the_last_bytes_is_noticed(tmp_path):
    path = write(tmp_path / "a.txt.gz", gzipped(["one\n", "two\n"])[:-1])
    assert paragraphs(path) == [("one", "two")]
    assert faults(path) == {"bad/cut_gzip": 1, "bad_lines": 1}


def test_a_damaged_gzip_is_as_a_cut_one(tmp_path):
    data = bytearray(gzipped([f"{n} line\n" for n in range(10_000)]))
    data[-6] ^= 1  # of the checksum
    path = write(tmp_path / "a.txt.gz", bytes(data))
    assert len(paragraphs(path)[0]) == 10_000
    assert faults(path)["bad/cut_gzip"] == 1
    data[len(data) // 2 :] = b"\xff" * 1000
    path = write(tmp_path / "b.txt.gz", bytes(data))
    assert faults(path)["bad/cut_gzip"] == 1
    path = write(tmp_path / "c.txt.gz", gzipped(["one"]) + b"appended")
    assert faults(path)["bad/cut_gzip"] == 1


def test_a_gzip_of_several_members_is_read_whole(tmp_path):
    path = write(tmp_path / "A.TXT.GZ", gzipped(["one\n"]) + gzipped(["two"]))
    assert paragraphs(path) == [("one", "two")]
    assert faults(path) == {}


def test_what_is_called_gz_and_is_not_is_named(tmp_path):
    path = write(tmp_path / "a.txt.gz", "plain")
    with pytest.raises(UserError, match=r"a\.txt\.gz is not gzipped"):
        read(path)
    path = write(tmp_path / "b.gz", "plain")
    with pytest.raises(UserError, match=r"b\.gz is not gzipped"):
        corpus_files([path], [path], "auto")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "one\n\ntwo", ("one", "two")),
        ("a.md", "# Title\n\n*two*", ("Title", "two")),
        ("a.jsonl", '{"text": "one\\n\\ntwo"}', ("one", "two")),
        ("wiki_00", '{"text": "one\\n\\ntwo"}', ("one", "two")),
        ("wiki_00", "one\n\ntwo", ("one", "two")),
    ],
)
def test_a_gzip_by_another_name_is_unpacked(tmp_path, name, text, expected):
    path = write(tmp_path / name, gzipped([text]))
    assert paragraphs(path, separator="file") == [expected]
    assert faults(path, separator="file") == {}
    path = write(tmp_path / name, gzipped([text])[:-1])
    assert faults(path, separator="file") == {"bad/cut_gzip": 1, "bad_lines": 1}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "wiki_00"])
def test_utf16_is_refused_by_name(tmp_path, name, pack):
    good = write(tmp_path / "good.txt", "fine")
    path = write(tmp_path / name, pack("One. Two.".encode("utf-16")))
    with pytest.raises(UserError) as raised:
        read(good, path)
    assert str(raised.value) == (
        f"{path} is UTF-16, expected UTF-8; convert the file, for example "
        "with iconv -f UTF-16 -t UTF-8."
    )


@pytest.mark.parametrize("head", [b"\x1f", b"\x1fx", b"x\x8b"])
def test_half_the_mark_of_a_gzip_is_plain(tmp_path, head):
    path = write(tmp_path / "a.txt", head)
    assert "bad/cut_gzip" not in faults(path)


def test_a_gzip_cut_before_it_begins_is_cut(tmp_path):
    path = write(tmp_path / "a.txt.gz", b"\x1f")
    assert faults(path)["bad/cut_gzip"] == 1


def test_a_vanished_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: No such file"):
        read(str(tmp_path / "gone.txt"))


def test_a_file_that_fails_on_the_way_is_named(tmp_path):
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
    wrapped = write(tmp_path / "c.txt", "one two\nthree\nfour\n")
    assert paragraphs(wrapped) == [("one two", "three"), ("four",)]
    assert faults(wrapped) == {"long_blocks_parted": 1}
    texts = ["one\ntwo three\nfour", "five"]
    path = write(
        tmp_path / "d.jsonl", json_lines(*[{"text": t} for t in texts])
    )
    assert read(path, names=["x"]) == [
        Document("x#1", ("one", "two three")),
        Document("x#2", ("four",)),
        Document("x#3", ("five",)),
    ]
    assert faults(path) == {"long_documents_parted": 1}


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


def test_blanks_within_a_long_line_part_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 10)
    path = write(tmp_path / "a.txt", f"one{' ' * 50}\x00{' ' * 50}two")
    report = CorpusReport()
    (document,) = read(path, report=report)
    assert document.paragraphs == ("one", "two")
    assert report.counts["lines"] == 1


def test_a_long_line_of_blanks_is_blank(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 10)
    path = write(tmp_path / "a.txt", f"one\n{' ' * 50}\ntwo")
    assert paragraphs(path) == [("one",), ("two",)]


def test_faults_of_all_parts_are_one_bad_line(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE_CHARS", 10)
    path = write(tmp_path / "a.txt", "a\x00b " * 20)
    counts = faults(path)
    assert counts["bad/control_characters"] == counts["bad_lines"] == 1


@hypothesis.settings(deadline=None)
@hypothesis.given(
    st.lists(st.sampled_from(["a", "é", " ", "\n", "word", "\U0001f600"])),
    st.integers(1, 12),
)
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


def test_a_line_of_ten_megabytes(tmp_path):
    path = write(tmp_path / "a.txt", "word " * 2_000_000)
    parts = [part for document in read(path) for part in document.paragraphs]
    assert " ".join(parts).split() == ["word"] * 2_000_000
    assert max(map(len, parts)) <= reading.MAX_LINE_CHARS + 1
    assert faults(path) == {"long_lines_parted": 1, "long_blocks_parted": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "most"),
    [
        # Two documents of MAX_DOCUMENT_CHARS, as lists and joined.
        ("one_line.txt", "word " * 20, 30),
        ("nothing.txt", "\0" + "x" * 99, 30),
        ("book.md", "# A _heading_\n\n" + "word " * 80 + "\n\n", 30),
        ("unclosed.md", "word <!--\n```\n" + "word " * 80 + "\n", 30),
        ("bomb.txt.gz", " " * 100, 30),
        # The line and its text, whole and in pieces.
        ("one_line.jsonl", "word " * 20, 240),
    ],
)
def test_memory_is_bounded(tmp_path, name, line, most):
    text = line * (60_000_000 // len(line))
    if name.endswith("jsonl"):
        text = json.dumps({"text": text})
    data = text.encode()
    path = write(
        tmp_path / name, gzip.compress(data, 1) if name[-2:] == "gz" else data
    )
    del text, data
    (file,) = corpus_files([path], ["a"], "file")
    tracemalloc.start()
    try:
        survey_file(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most * 1e6


# -------------------------------------------------------------- many files


def mixed_directory(folder):
    write(folder / "a.txt", "one\n\ntwo")
    write(folder / "b" / "b.md", "## Head\n_text_")
    write(folder / "c.jsonl", json_lines({"text": "json"}, {"text": 1}))
    write(folder / "d.txt.gz", gzip.compress(b"packed\n\xff\n"))
    write(
        folder / "e.jsonl.gz",
        gzip.compress(json_lines({"text": "both\n\n2"}).encode()),
    )
    write(folder / "f.txt", "")
    return list_files([str(folder)])


def test_a_directory_of_many_forms(tmp_path):
    paths = mixed_directory(tmp_path)
    names = [os.path.basename(path) for path in paths]
    report = CorpusReport()
    assert read(*paths, names=names, report=report) == [
        Document("a.txt", ("one", "two")),
        Document("b.md", ("Head", "text")),
        Document("c.jsonl#1", ("json",)),
        Document("d.txt.gz", ("packed\n\ufffd",)),
        Document("e.jsonl.gz#1", ("both", "2")),
    ]
    assert report.counts == {
        "lines": 3 + 2 + 2 + 2 + 1 + 1,
        "documents": 5,
        "characters": 6 + 8 + 4 + 8 + 5,
        "bad/no_text_field": 1,
        "bad/not_utf8": 1,
        "bad/empty_documents": 1,
        "bad_lines": 3,
    }


def test_many_tiny_files(tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:04}.txt").write_text(f"text {number}")
    paths = list_files([str(tmp_path)])
    assert [d.paragraphs for d in read(*paths)] == [
        (f"text {number}",) for number in range(2000)
    ]


def test_files_are_read_one_after_the_other(tmp_path):
    a = write(tmp_path / "a.txt", "one")
    missing = str(tmp_path / "missing.txt")
    documents = reading.read_documents(
        corpus_files([a, missing], [a, missing], "auto"), CorpusReport()
    )
    assert next(documents) == Document(a, ("one",))


# ------------------------------------------------------------------- survey


def test_a_survey_tells_what_reading_will(tmp_path):
    paths = mixed_directory(tmp_path)
    files = corpus_files(paths, [os.path.basename(p) for p in paths], "file")
    whole = CorpusReport()
    for file in files:
        survey = survey_file(file)
        data = Path(file.path).read_bytes()
        report = CorpusReport()
        list(reading.read_file(file, report))
        assert dataclasses.astuple(survey)[:3] == (
            file.name,
            len(data),
            hashlib.sha256(data).hexdigest(),
        )
        assert survey.report == report
        whole.merge(pickle.loads(pickle.dumps(survey)).report)
    sequential = CorpusReport()
    read(*paths, separator="file", report=sequential)
    assert whole == sequential
    assert list(whole.first_places) == list(sequential.first_places)


def test_what_is_not_read_is_surveyed_too(tmp_path):
    data = gzipped(["one"]) + b"appended" * 100_000
    path = write(tmp_path / "a.txt.gz", data)
    (file,) = corpus_files([path], ["a"], "auto")
    survey = survey_file(file)
    assert survey.num_bytes == len(data)
    assert survey.sha256 == hashlib.sha256(data).hexdigest()


def checked(path, sha256, **keywords):
    file = CorpusFile(path, "a", "blank_line", skip_header_lines=1)
    return reading.read_file_checked(file, sha256, **keywords)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_stays_is_read_checked_as_unchecked(tmp_path, pack):
    path = write(tmp_path / "a.txt", pack(b"head\none\n\ntwo \xff\n"))
    file = CorpusFile(path, "a", "blank_line", skip_header_lines=1)
    found = list(checked(path, survey_file(file).sha256))
    assert found == list(reading.read_file(file, CorpusReport()))
    assert [d.paragraphs for d in found] == [("one",), ("two \ufffd",)]


LINES = [f"{hashlib.sha256(b'%d' % n).hexdigest()}\n\n" for n in range(9000)]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data + b"\n",
        lambda data: data + data,
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        # Above what is read in advance of the first document.
        lambda data: data[:300_000] + b"0123" + data[300_004:],
    ],
)
def test_a_file_that_changes_is_noticed_at_its_end(tmp_path, name, change):
    data = "".join(LINES).encode()
    data = gzip.compress(data) if name[-2:] == "gz" else data
    path = write(tmp_path / name, data)
    sha256 = hashlib.sha256(data).hexdigest()
    documents = checked(path, sha256)
    next(documents)
    # Written anew, as an editor does: what is open stays whole.
    os.remove(path)
    write(tmp_path / name, change(data))
    assert len(list(documents)) == 8998
    message = r"a\.txt(\.gz)? has changed while the build was at .* start again"
    with pytest.raises(UserError, match=message):
        list(checked(path, sha256))
    # Written in place, while it is read.
    write(tmp_path / name, data)
    documents = checked(path, sha256)
    next(documents)
    write(tmp_path / name, change(data))
    with pytest.raises(UserError, match=message):
        list(documents)


def test_a_change_after_what_is_read_is_noticed(tmp_path):
    """A gzip's end is found before that of the file."""
    data = gzipped(["head\n", "one"]) + bytes(500_000)
    path = write(tmp_path / "a.txt.gz", data)
    sha256 = hashlib.sha256(data).hexdigest()
    assert len(list(checked(path, sha256))) == 1
    write(tmp_path / "a.txt.gz", data[:-1] + b"\1")
    with pytest.raises(UserError, match="has changed"):
        list(checked(path, sha256))


def test_reading_that_stops_early_reads_no_further():
    class Counted(io.BytesIO):
        num_read = 0

        def read(self, size=-1):
            data = super().read(size)
            self.num_read += len(data)
            return data

    data = "".join(LINES).encode()
    stored = Counted(data)
    documents = checked("a.txt", "", open_file=lambda path, mode: stored)
    next(documents)
    num_read = stored.num_read
    documents.close()
    assert stored.num_read == num_read < len(data)
    assert stored.closed


def test_files_can_be_opened_elsewhere():
    class Remote:
        """As little of a file as is asked for."""

        def __init__(self, data):
            self.data = data
            self.closed = False

        def read(self, size):
            size = min(size, 7)
            head, self.data = self.data[:size], self.data[size:]
            return head

        def close(self):
            self.closed = True

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

    data = gzipped(["one\n", "two\n"])
    opened = []

    def open_remote(path, mode):
        assert (path, mode) == ("gs://b/a.gz", "rb")
        opened.append(Remote(data))
        return opened[-1]

    (file,) = corpus_files(["gs://b/a.gz"], ["a"], "file", open_remote)
    survey = survey_file(file, open_file=open_remote)
    assert survey.sha256 == hashlib.sha256(data).hexdigest()
    assert survey.report.counts["characters"] == len("one\ntwo")
    assert len(opened) == 2
    assert all(file.closed for file in opened)


def test_a_fingerprint_is_of_names_contents_and_order(tmp_path):
    def of(*files):
        surveys = []
        for name, text in files:
            path = write(tmp_path / "x.txt", text)
            file = CorpusFile(path, name, "file")
            surveys.append(survey_file(file))
        return fingerprint(surveys)

    whole = of(("a", "one"), ("b", "two"))
    assert whole == of(("a", "one"), ("b", "two"))
    others = [
        of(("b", "two"), ("a", "one")),
        of(("a", "one"), ("c", "two")),
        of(("a", "one"), ("b", "tow")),
        of(("a", "one")),
    ]
    assert len({whole, *others}) == 5


# ------------------------------------------------------------- CorpusReport

REASONS = st.sampled_from(["bad/not_utf8", "bad/not_json", "bad/cut_gzip"])
FILES = st.lists(st.lists(st.tuples(REASONS, st.integers(1, 5))), max_size=6)


def account(files, first=0):
    report = CorpusReport()
    for number, met in enumerate(files, first):
        report.counts["lines"] += 5
        for reason, line in sorted(met, key=lambda item: item[1]):
            report.fault(reason, f"{number}.txt", line)
    return report


@hypothesis.settings(deadline=None)
@hypothesis.given(FILES, st.integers(0, 6))
def test_merging_is_as_one_account(files, place):
    merged = account(files[:place])
    merged.merge(account(files[place:], first=place))
    whole = account(files)
    assert merged == whole
    bad = {(n, line) for n, met in enumerate(files) for _, line in met}
    each = {(n, *fault) for n, met in enumerate(files) for fault in met}
    assert whole.counts["bad_lines"] == len(bad)
    for reason in ("bad/not_utf8", "bad/not_json", "bad/cut_gzip"):
        assert whole.counts[reason] == sum(r == reason for _, r, _ in each)


def test_too_many_bad_lines_are_told_in_one_line(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\n\xff\n\xff\x00\nfine\n")
    report = CorpusReport()
    read(path, report=report)
    report.check(0.5)
    with pytest.raises(UserError) as error:
        report.check(0.49)
    assert str(error.value) == (
        f"Bad lines: 2 of 4 (50%): 2 not UTF-8 (first: {path}, line 2), 1 "
        f"control characters (first: {path}, line 3); max_bad_fraction=0.49 "
        "is allowed. Either convert the files (iconv -f WINDOWS-1252 -t "
        "UTF-8), leave out what is no text, or raise --max_bad_fraction."
    )


def test_a_clean_corpus_passes_where_nothing_bad_is_allowed():
    report = CorpusReport()
    report.check(0)
    assert report.describe_faults() == ""
    report.counts["lines"] = 10**9
    report.counts["long_lines_parted"] = 1
    report.check(0)
    report.fault("bad/not_utf8", "a", 1)
    with pytest.raises(UserError, match="1e-07%"):
        report.check(0)


def test_every_reason_has_a_remedy():
    for reason, (_, remedy) in FAULTS.items():
        report = CorpusReport()
        report.fault(reason, "a", 1)
        with pytest.raises(UserError) as error:
            report.check(0)
        assert remedy in str(error.value)
        assert "\n" not in str(error.value)
