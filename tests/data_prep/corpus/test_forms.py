import subprocess
import sys
import textwrap

import pytest
from reading_helpers import paragraphs, read, write

from albert_tf.config import UserError
from data_prep.corpus.forms import corpus_files


def forms(separator, *paths):
    return [f.form for f in corpus_files(paths, paths, separator)]


def test_the_form_follows_from_the_suffix():
    names = ["a.md", "b.jsonl.gz", "c.json", "d.ndjson", "e.MD.GZ"]
    expected = ["markdown", *["json_lines"] * 3, "markdown"]
    # The files are not opened: they do not exist.
    assert forms("blank_line", *names) == expected


def test_one_plain_text_among_all_has_blank_lines_between_documents(tmp_path):
    a = write(tmp_path / "a.txt", "one\n\ntwo\n")
    b = write(tmp_path / "b.txt.gz", "one\n\ntwo\n")
    assert forms("auto", a) == ["blank_line"]
    assert forms("auto", "a.md", b) == ["markdown", "blank_line"]
    # Several are not opened.
    assert forms("auto", "a.txt", "b.txt") == ["file", "file"]
    assert forms("file", "a.txt") == ["file"]
    assert forms("blank_line", "a.txt", "b.txt") == ["blank_line"] * 2


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('\ufeff\n \n{"text": "a"}\nb\n', "json_lines"),
        ("[1]\n", "file"),
        ("", "file"),
        ("plain\n{}", "file"),
        ("[" * 100_000, "file"),
    ],
)
@pytest.mark.parametrize("name", ["wiki_00", "wiki_00.gz"])
def test_without_a_suffix_the_form_follows_from_the_first_line(
    tmp_path, name, text, form
):
    assert forms("file", write(tmp_path / name, text)) == [form]


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_table_is_refused_with_the_command_that_converts_it(
    tmp_path, suffix, separator, packed
):
    # Excel writes such tables; the text is longer than the csv module's default
    # limit.
    text = "they say" * 20_000
    rows = [f"\ufefftext{separator}id", f'"so ""so"",\t{text}"{separator}1']
    path = write(tmp_path / f"my a.{suffix}{packed}", "\n".join(rows))
    with pytest.raises(UserError, match="a table is no text") as raised:
        forms("auto", path)
    _, command = str(raised.value).rstrip(".").split("for example with ")
    command = command.replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert paragraphs(str(tmp_path / "texts.jsonl")) == [(f'so "so",\t{text}',)]


@pytest.mark.parametrize("name", ["a.html", "a.HTM", "a.xml.gz"])
def test_markup_is_refused(tmp_path, name):
    path = write(tmp_path / name, "<p>Tea.</p>")
    with pytest.raises(UserError, match="markup is no text; convert it"):
        forms("auto", path)


# -------------------------------------------------------- hard-wrapped text


def prose(sentences):
    """Returns 40 paragraphs of one to six sentences, each of some lines."""
    joined = [" ".join(sentences[i : i + 4]) for i in range(0, 560, 4)]
    joined = [text.capitalize() for text in joined]
    return [" ".join(joined[3 * i : 3 * i + 1 + i % 6]) for i in range(40)]


def wrapped(paragraphs, width):
    return "\n\n".join(textwrap.fill(text, width) for text in paragraphs)


@pytest.mark.parametrize("width", [65, 80])
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


def spaced(blocks):
    return "\n\n".join("\n".join(lines) for lines in blocks)


NOT_WRAPPED = {
    "a sentence a line": lambda s: spaced(
        [s[i : i + 9] for i in range(0, 400, 9)]
    ),
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
    "a log": lambda s: spaced(
        [[f"2024-03-01 10:{n % 60:02} INFO {x}" for n, x in enumerate(s)]]
    ),
    "sequences": lambda s: "\n".join(["acgt" * 15] * 200),
    "a script without spaces": lambda s: spaced(
        [["\u6587\u5b57\u6587" * 16 for _ in range(8)] for _ in range(20)]
    ),
}


@pytest.mark.parametrize("kind", NOT_WRAPPED)
def test_other_lines_are_not_taken_for_wrapped_ones(tmp_path, sentences, kind):
    path = write(tmp_path / "a.txt", NOT_WRAPPED[kind](sentences))
    assert forms("auto", path) == ["blank_line"]
