import time

import pytest

from data_prep.corpus import markdown
from data_prep.corpus.markdown import clean_markdown_lines


def clean_markdown(text):
    return "\n".join(clean_markdown_lines(text.split("\n")))


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("## Chapter *One* ##", "\nChapter One\n"),
        ("#hashtag and C#", "#hashtag and C#"),
        ("a **bold** _word_ and ***both***", "a bold word and both"),
        ("_he said_, (_softly_), '_so_'", "he said, (softly), 'so'"),
        ("snake_case and __init__", "snake_case and init"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("2*3=6 for C*-algebras", "2*3=6 for C*-algebras"),
        ("C*-algebras, A*-search", "C*-algebras, A*-search"),
        ("un*believ*able and a*b", "unbelievable and ab"),
        ("*begun here\nand ended* there", "begun here\nand ended there"),
        ("one\n\n* * *\n\ntwo", "one\n\n\n\ntwo"),
        ("one\n---\ntwo", "one\n\ntwo"),
        ("Title\n=====", "Title\n"),
        ("---|---\na | b", "\na | b"),
        ("...\n-- and --", "...\n-- and --"),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("* one\n- two\n+ three\n-four", "one\ntwo\nthree\n-four"),
        # A title in other quotes is not understood.
        ("see [a](http://x.org/a_b 'not')", "see [a](http://x.org/a_b 'not')"),
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
        ("# > *quoted* #head # #", "\nquoted #head #\n"),
        ("## ---", "\n---\n"),
        ("> # no heading", "# no heading"),
        ("> * item", "item"),
        ("-- -", ""),
        ("- -", "-"),
        ("_", "_"),
        ("__a__b__", "a__b"),
        (r"\*a* \_b_", "*a _b"),
        ("a<!-- x --> b <!---> c --> d", "a b  d"),
        ("<!-- a <!-- b --> c", " c"),
        ("a <!-- b\n--> c <!-- d\n\n--> e", "a  c  e"),
        ("<!<!-- x -->-- a -->", "<!-- a -->"),
        ("```\n<!-- x\n```\n-->\n```\nb", "\nb"),
        ("```a`b\nc\n```\nd", "```a`b\nc\n```\nd"),
        ("~~~ sh\nx\n```\n~~~~ \nb", "\nb"),
        ("~~~\na\n```\nb", "~~~\na\n```\nb"),
        ("   ``` \na\n``` b\n ```\t\nc\n```\nd", "\nc\n```\nd"),
        ("", ""),
    ],
)
def test_markdown_loses_its_marks(marked, plain):
    assert clean_markdown(marked) == plain


def test_what_is_long_open_stays(monkeypatch):
    monkeypatch.setattr(markdown, "MAX_SPAN_CHARS", 30)
    for opens, closes in (("<!--", "-->"), ("```", "```"), ("~~~", "~~~")):
        near = [opens, *["12345"] * 5, closes, "end"]
        assert clean_markdown("\n".join(near)) == "\nend"
        far = [opens, *["12345"] * 8, closes, "end"]
        assert clean_markdown("\n".join(far)) == "\n".join(far)


def test_what_is_open_does_not_hide_what_is_closed(monkeypatch):
    monkeypatch.setattr(markdown, "MAX_SPAN_CHARS", 30)
    lines = ["<!-- open", *["12345"] * 8, "a <!-- b", "c --> d", "-->"]
    kept = [*lines[:-3], "a  d", "-->"]
    assert clean_markdown("\n".join(lines)) == "\n".join(kept)


HOSTILE = ["<!--\n", "<!-- ", "```\n~", "```x\n", "~~~x\n", "#  #", "[",
           "[a](", "[a][", "[a](b ", '[a](b "', "![", "_", "*", "_a", "a*",
           "a*-", "\\", "> ", "- ", "-=*_", "|", "`", "\t",
           "# a" + " " * 1000 + "b"]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_no_long_time(piece):
    text = piece * (400_000 // len(piece))
    begin = time.process_time()
    clean_markdown(text + "x")
    clean_markdown("# a" + text + "x")
    assert time.process_time() - begin < 5
