import os
from collections import Counter

import pytest

from albert_tf.config import UserError
from data_prep import corpus
from data_prep.corpus import Document, clean_markdown, list_files


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(data)
    return str(path)


def read(*files, separator="auto", skip=0, **keywords):
    return list(
        corpus.read_documents(
            files,
            document_separator=separator,
            skip_header_lines=skip,
            **keywords,
        )
    )


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

    def backwards(directory):
        for folder, folders, names in walk(directory):
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


def test_no_input_is_an_error():
    with pytest.raises(UserError, match="No input"):
        list_files([])


# ------------------------------------------------------------ read_documents


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


def test_one_markdown_file_is_a_document(tmp_path):
    path = write(tmp_path / "a.md", "# Title\none *two*\n\nthree\n")
    assert read(path) == [Document(path, ("Title", "one two", "three"))]


def test_the_separator_can_be_chosen(tmp_path):
    a = write(tmp_path / "a.txt", "one\n\ntwo")
    b = write(tmp_path / "b.md", "three\nfour")
    assert read(a, separator="file") == [Document(a, ("one", "two"))]
    assert [d.paragraphs for d in read(a, b, separator="blank_line")] == [
        ("one",),
        ("two",),
        ("three", "four"),
    ]


def test_header_lines_are_skipped_in_every_file(tmp_path):
    a = write(tmp_path / "a.txt", "title\n\nauthor\none\n")
    b = write(tmp_path / "b.txt", "title\n\nauthor\ntwo\n")
    c = write(tmp_path / "c.txt", "short\n")
    counts = Counter()
    documents = read(a, b, c, skip=3, counts=counts)
    assert [d.paragraphs for d in documents] == [("one",), ("two",)]
    assert counts["empty_files"] == 1


def test_documents_are_called_by_given_names(tmp_path):
    a = write(tmp_path / "a.txt", "one\n\ntwo")
    (first, second) = read(a, names=["x.txt"])
    assert (first.name, second.name) == ("x.txt#1", "x.txt#2")


def test_line_ends_and_marks_of_windows(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\ntwo\r\n\r\nthree\r\n")
    assert [d.paragraphs for d in read(path)] == [("one", "two"), ("three",)]


def test_unicode_line_separators_end_no_line(tmp_path):
    path = write(tmp_path / "a.txt", "one\u2028two\x0bthree\x85four\n")
    assert read(path)[0].paragraphs == ("one\u2028two\x0bthree\x85four",)


def test_control_characters_become_spaces_and_are_counted(tmp_path):
    path = write(tmp_path / "a.txt", "a\x00b\x1bc\x7fd\te\x9f\n\x00\n\nf")
    counts = Counter()
    documents = read(path, counts=counts)
    assert [d.paragraphs for d in documents] == [("a b c d\te",), ("f",)]
    assert counts["control_characters"] == 5


def test_what_is_not_utf8_is_located(tmp_path):
    path = write(tmp_path / "a.txt", b"caf\xc3\xa9\ncaf\xe9 noir\n")
    with pytest.raises(
        UserError, match=r"a\.txt, line 2, byte 9: not UTF-8.*iconv -f"
    ):
        read(path)


def test_a_cut_character_at_the_end_is_located(tmp_path):
    path = write(tmp_path / "a.txt", "é".encode()[:1])
    with pytest.raises(UserError, match="line 1, byte 0"):
        read(path)


@pytest.mark.parametrize("text", ["", "\n\n", " \t\r\n\u3000\n", "\ufeff"])
def test_empty_files_are_counted(tmp_path, text):
    path = write(tmp_path / "a.txt", text)
    counts = Counter()
    assert read(path, counts=counts) == []
    assert counts["empty_files"] == 1


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.txt: No such file"):
        read(str(tmp_path / "gone.txt"))


def test_long_documents_are_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_CHARS", 10)
    a = write(tmp_path / "a.txt", "one two\n\nthree four\n\nfive\n")
    b = write(tmp_path / "b.txt", "short")
    counts = Counter()
    assert read(a, b, counts=counts) == [
        Document(a, ("one two", "three four")),
        Document(f"{a}#2", ("five",)),
        Document(b, ("short",)),
    ]
    assert counts["long_documents_parted"] == 1
    wrapped = write(tmp_path / "c.txt", "one two\nthree\nfour\n")
    counts = Counter()
    documents = read(wrapped, counts=counts)
    assert [d.paragraphs for d in documents] == [
        ("one two", "three"),
        ("four",),
    ]
    assert counts["long_blocks_parted"] == 1


def test_files_are_read_one_after_the_other(tmp_path):
    a = write(tmp_path / "a.txt", "one")
    documents = corpus.read_documents(
        [a, str(tmp_path / "missing.txt")],
        document_separator="auto",
        skip_header_lines=0,
    )
    assert next(documents) == Document(a, ("one",))


# ------------------------------------------------------------ clean_markdown


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("## Chapter *One* ##", "\nChapter One\n"),
        ("#hashtag and C#", "#hashtag and C#"),
        ("a **bold** _word_ and ***both***", "a bold word and both"),
        ("_he said_, (_softly_), '_so_'", "he said, (softly), 'so'"),
        ("snake_case and __init__", "snake_case and init"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("one\n\n* * *\n\ntwo", "one\n\n\n\ntwo"),
        ("one\n---\ntwo", "one\n\ntwo"),
        ("Title\n=====", "Title\n"),
        ("---|---\na | b", "\na | b"),
        ("...\n-- and --", "...\n-- and --"),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("* one\n- two\n+ three\n-four", "one\ntwo\nthree\n-four"),
        ("see [the text](http://x.org/a_b 'not')", None),
        ('see [the text](http://x.org/a_b "title").', "see the text."),
        ("see [the text](http://x.org/a_b_c).", "see the text."),
        ("![a *picture*](p.png) here", "a picture here"),
        ("[text][ref]\n[ref]: http://x.org", "text\n"),
        ("[an aside] stays", "[an aside] stays"),
        ("a<!-- hidden\n\nlines -->b", "ab"),
        ("a <!-- open", "a <!-- open"),
        ("one\n```python\nx = 1\n```\ntwo", "one\n\ntwo"),
        ("one\n```\nnever closed", "one\n```\nnever closed"),
        (r"1\. a \*star\* and \_", "1. a *star* and _"),
        ("'tis `code`", "'tis `code`"),
        ("", ""),
    ],
)
def test_markdown_loses_its_marks(marked, plain):
    if plain is None:  # a title in other quotes is not understood
        assert clean_markdown(marked) == marked
    else:
        assert clean_markdown(marked) == plain


def test_a_long_line_is_cleaned_in_no_time():
    text = "word _word_ [a](b) " * 50_000 + "(" * 1000 + "*" * 1000
    assert clean_markdown(text).startswith("word word a word")
