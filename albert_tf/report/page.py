"""A page of sections, as one self-contained HTML file or as Markdown."""

import base64
import dataclasses
import html
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.config import markdown_table
from albert_tf.text.normalization import replace_surrogates

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
.caption { color: #555; font-size: 0.9rem; margin: 1rem 0 0.4rem; }
.wide th:first-child, .wide td:first-child { position: sticky; left: 0;
  background: #fff; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd;
  text-align: left; vertical-align: top; }
/* Arabic and Hebrew run from the right. */
p, td { unicode-bidi: plaintext; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
figure { display: inline-block; vertical-align: top; max-width: 100%;
  margin: 0.7rem 1rem 0.7rem 0; }
figcaption { color: #555; font-size: 0.9rem; }
img { width: 100%; height: auto; background: #fff; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4;
  padding: 0.7rem; }
p { overflow-wrap: anywhere; }
mark { background: none; color: inherit; padding: 0 0.1em; }
@media (max-width: 40rem) {
  th, td { padding: 0.3rem 0.4rem; }
  .long thead { display: none; }
  .long, .long tbody, .long tr, .long td { display: block;
    text-align: left; }
  .long tr { border-bottom: 1px solid #888; padding: 0.6rem 0; }
  .long td { border: 0; padding: 0; overflow-wrap: anywhere; }
  .long td:empty { display: none; }
  .long td::before { content: attr(data-column) ": "; color: #777; }
}
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } th, td { border-color: #444; }
  .wide th:first-child, .wide td:first-child { background: #181818; }
  .caption, figcaption { color: #aaa; } pre { background: #262626; }
}
"""

# More characters of a row than a phone has room for.
_LONG = 100


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclasses.dataclass(frozen=True)
class Code:
    """A command, or lines that keep their form."""

    text: str


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells that are written by `str`; those of numbers to the right.

    The cells of long rows are below each other on a phone.

    A column is one of numbers if every cell that is not empty begins with a
    digit or a sign.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A PNG, what it shows in words, and the name of its file in Markdown.

    `width` is that on a wide screen, in heights of a line of text.
    """

    png: bytes
    caption: str
    name: str
    width: int = 28


@dataclasses.dataclass(frozen=True)
class MarkedText:
    """Words of a text, each with a number from -1 (red) to 1 (blue)."""

    words: Sequence[tuple[str, float]]


Part = Paragraph | Code | Table | Figure | MarkedText


@dataclasses.dataclass(frozen=True)
class Section:
    """Parts under a heading."""

    title: str
    parts: Sequence[Part]


@dataclasses.dataclass(frozen=True)
class Page:
    """A title, what stands beneath it, and sections."""

    title: str
    introduction: Sequence[Part]
    sections: Sequence[Section]


def without_empty_columns(table: Table) -> Table:
    """Returns a table without the columns that have no cell."""
    kept = [
        number
        for number in range(len(table.columns))
        if any(str(row[number]) for row in table.rows)
    ]
    rows = [[row[number] for number in kept] for row in table.rows]
    columns = [table.columns[number] for number in kept]
    return dataclasses.replace(table, columns=columns, rows=rows)


def to_html(page: Page) -> str:
    """Returns an HTML document that loads nothing, and that UTF-8 can hold."""
    body = [f"<h1>{html.escape(page.title)}</h1>"]
    body += [_html_part(part) for part in page.introduction]
    for section in page.sections:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body += [_html_part(part) for part in section.parts]
    document = "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{html.escape(page.title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )
    # Texts of JSON can hold lone surrogates.
    return replace_surrogates(document)


def to_markdown(page: Page, save: Callable[[str, bytes], str]) -> str:
    """Returns Markdown; `save(name, png)` stores a figure, returns its link."""
    blocks = [f"# {page.title}"]
    blocks += [_markdown_part(part, save) for part in page.introduction]
    for section in page.sections:
        blocks.append(f"## {section.title}")
        blocks += [_markdown_part(part, save) for part in section.parts]
    return "\n\n".join(blocks) + "\n"


def _html_part(part: Part) -> str:
    match part:
        case Paragraph(text):
            return f"<p>{html.escape(text)}</p>"
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Table():
            return _html_table(part)
        case Figure(png, caption, width=width):
            encoded = base64.b64encode(png).decode()
            shown = html.escape(caption)
            return (
                f'<figure style="width: {width}rem"><img alt="{shown}" '
                f'src="data:image/png;base64,{encoded}">'
                f"<figcaption>{shown}</figcaption></figure>"
            )
        case MarkedText(words):
            return f"<p>{' '.join(_marked(*word) for word in words)}</p>"


def _html_table(table: Table) -> str:
    kinds = [' class="number"' if n else "" for n in _are_numbers(table)]
    long = any(sum(len(str(c)) for c in row) > _LONG for row in table.rows)
    if long:
        names = (html.escape(name) for name in table.columns)
        pairs = zip(kinds, names, strict=True)
        kinds = [f'{kind} data-column="{name}"' for kind, name in pairs]
    table_kind = ' class="long"' if long else ""

    def row(tag: str, cells: Sequence[Any]) -> str:
        written = (
            # Long names may be divided there.
            f"<{tag}{kind}>{html.escape(str(cell)).replace('_', '_<wbr>')}"
            f"</{tag}>"
            for kind, cell in zip(kinds, cells, strict=True)
        )
        return f"<tr>{''.join(written)}</tr>"

    # Beside the table, which may be wider than a phone.
    caption = f'<p class="caption">{html.escape(table.caption)}</p>'
    return "\n".join(
        [
            *([caption] if table.caption else []),
            f'<div class="wide"><table{table_kind}>',
            f"<thead>{row('th', table.columns)}</thead><tbody>",
            *(row("td", cells) for cells in table.rows),
            "</tbody></table></div>",
        ]
    )


def _are_numbers(table: Table) -> list[bool]:
    columns = range(len(table.columns))
    cells = [[str(row[i]) for row in table.rows] for i in columns]
    return [
        any(column) and all(_begins_number(cell) for cell in column if cell)
        for column in cells
    ]


def _begins_number(cell: str) -> bool:
    return cell.lstrip("+-−<± ")[:1].isdigit()


def _marked(word: str, weight: float) -> str:
    color = "60, 110, 230" if weight > 0 else "225, 70, 60"
    strength = min(abs(weight), 1.0) * 0.7
    style = f"background: rgba({color}, {strength:.2f})"
    title = f"{weight:+.2f}"
    return f'<mark style="{style}" title="{title}">{html.escape(word)}</mark>'


def _markdown_part(part: Part, save: Callable[[str, bytes], str]) -> str:
    match part:
        case Paragraph(text):
            return text
        case Table(columns, rows, caption):
            table = markdown_table(columns, rows, _are_numbers(part))
            return f"{caption}\n\n{table}" if caption else table
        case Figure(png, caption, name):
            return f"![{caption}]({save(name, png)})\n\n{caption}"
        case _:
            raise TypeError(f"{type(part).__name__} has no form in Markdown.")
