"""A page as HTML and as Markdown."""

import base64
import dataclasses
import html.parser

import pytest

from albert_tf.report.page import (
    Code,
    Figure,
    MarkedText,
    Page,
    Paragraph,
    Section,
    Table,
    to_html,
    to_markdown,
    without_empty_columns,
)

NASTY = "a <b> & \"c\" | 'd'\nx"
PAGE = Page(
    f"Results {NASTY}",
    [Paragraph(NASTY), Code("bin.finetune --task=<X>")],
    [
        Section(
            "Scores",
            [
                Table(["name", "score"], [[NASTY, "-1.5"], ["b", ""]], NASTY),
                Figure(b"\x89PNG", "Curve of <loss>", "curve.png"),
                MarkedText([("good", 0.5), ("<bad>", -2.0)]),
            ],
        )
    ],
)


class _Reader(html.parser.HTMLParser):
    """Collects texts, attributes and open elements of a document."""

    def __init__(self):
        super().__init__()
        self.texts, self.attributes, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def read():
    reader = _Reader()
    reader.feed(to_html(PAGE))
    assert not reader.open
    return reader


def test_texts_are_read_back_as_they_were(read):
    for text in (NASTY, f"Results {NASTY}", "bin.finetune --task=<X>", "<bad>"):
        assert text in read.texts


def test_halves_of_emoji_are_replaced():
    document = to_html(Page("cut \ud83d", [], []))
    assert "<h1>cut \ufffd\ufffd\ufffd</h1>" in document


def test_the_picture_is_in_the_page(read):
    (source,) = (v for _, name, v in read.attributes if name == "src")
    header, content = source.split(",")
    assert header == "data:image/png;base64"
    assert base64.b64decode(content) == b"\x89PNG"


def test_the_page_loads_nothing(read):
    links = [v for _, n, v in read.attributes if n in ("href", "src")]
    assert [link for link in links if not link.startswith("data:")] == []


def test_columns_of_numbers_stand_to_the_right(read):
    cells = [a for a in read.attributes if a[0] in ("th", "td")]
    assert (
        cells == [("th", "class", "number")] + [("td", "class", "number")] * 2
    )


def test_cells_of_long_rows_have_the_name_of_their_column():
    table = Table(["text", "n"], [["x" * 120, 1], ["y", 2]])
    found = _Reader()
    found.feed(to_html(Page("T", [table], [])))
    assert ("table", "class", "long") in found.attributes
    names = [
        v for tag, n, v in found.attributes if (tag, n) == ("td", "data-column")
    ]
    assert names == ["text", "n", "text", "n"]


def test_long_names_may_be_divided():
    page = to_html(Page("T", [Table(["a_b"], [["c_<d>"]])], []))
    assert "<th>a_<wbr>b</th>" in page
    assert "<td>c_<wbr>&lt;d&gt;</td>" in page


def test_columns_without_a_cell_go():
    table = Table(["a", "b", "c"], [["", 0, ""], ["", "", "x"]], "T")
    found = without_empty_columns(table)
    assert found == Table(["b", "c"], [[0, ""], ["", "x"]], "T")


def test_strength_of_a_word_is_bounded(read):
    (_, bad) = [
        v for tag, n, v in read.attributes if (tag, n) == ("mark", "style")
    ]
    assert bad.endswith(", 0.70)")


SCORES = dataclasses.replace(PAGE.sections[0], parts=PAGE.sections[0].parts[:2])
TABLES = Page("Results", [], [SCORES])


def test_markdown_names_the_figures_that_it_saves():
    saved = {}

    def save(name, png):
        saved[name] = png
        return f"pictures/{name}"

    text = to_markdown(TABLES, save)
    assert saved == {"curve.png": b"\x89PNG"}
    assert "![Curve of <loss>](pictures/curve.png)" in text


def test_markdown_keeps_a_cell_in_its_row():
    text = to_markdown(TABLES, lambda name, png: name)
    assert "| a <b> & \"c\" \\| 'd' x | -1.5 |" in text
    assert "| --- | ---: |" in text
