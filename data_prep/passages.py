"""Cuts documents into passages that a model can read whole."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from data_prep.corpus.reading import Document

# Returns the sentences of a paragraph.
Split = Callable[[str], list[str]]
# Returns the length of each text, in tokens or words.
Lengths = Callable[[list[str]], Iterable[int]]


class Passage(NamedTuple):
    """Sentences that follow each other; `place` counts from 1 in a document."""

    document: str
    place: int
    text: str


def passages_of(
    document: Document, split: Split, lengths: Lengths, longest: int
) -> Iterator[Passage]:
    """Yields the passages of a document, of a length of at most `longest`.

    A passage has as many whole sentences as fit. It ends with a paragraph if
    it is at least half full by then, so that headings stay with their text. A
    sentence that is longer by itself is cut in halves at a space.
    """
    place, texts, size = 1, list[str](), 0

    def passage() -> Passage:
        return Passage(document.name, place, " ".join(texts))

    for paragraph in document.paragraphs:
        if 2 * size >= longest:
            yield passage()
            place, texts, size = place + 1, [], 0
        for text, length in _pieces(split(paragraph), lengths, longest):
            if texts and size + length > longest:
                yield passage()
                place, texts, size = place + 1, [], 0
            texts.append(text)
            size += length
    if texts:
        yield passage()


def _pieces(
    sentences: list[str], lengths: Lengths, longest: int
) -> Iterator[tuple[str, int]]:
    """Yields (text, length) of sentences in one line, long ones cut."""
    texts = [" ".join(sentence.split()) for sentence in sentences]
    for text, length in zip(texts, lengths(texts), strict=True):
        if length <= longest or len(text) < 2:
            if text:
                yield text, length
        else:
            yield from _pieces(list(_halves(text)), lengths, longest)


def _halves(text: str) -> tuple[str, str]:
    """Returns both halves of a text, cut at the last space before its middle.

    In the middle where there is none.
    """
    middle = len(text) // 2
    cut = text.rfind(" ", 1, middle + 1)
    cut = cut if cut > 0 else middle
    return text[:cut], text[cut:]
