"""Tasks made of books, of texts on medicine and of SQuAD's questions.

`MADE_TASKS` has a row for each. Of every book or file the last fifth of the
documents is for dev; training and dev are drawn from their own parts.
"""

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from albert_tf.config import PretrainingDataConfig
from data_prep.corpus.reading import read_file
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.sources import list_inputs


class Part(NamedTuple):
    """The documents of a book, or of another file: each its sentences."""

    name: str
    documents: list[list[str]]


Row = tuple[str, ...]
# Draws rows, as many as are asked for, from parts.
Draw = Callable[[Sequence[Part], random.Random, int], list[Row]]

# Shorter sentences say too little, longer ones are cut by a model anyway.
_WORDS = range(6, 41)
_PASSAGE_WORDS = 50
_BOOKS_TO_TELL_APART = 12
_TITLES = {"Mr.", "Mrs.", "Miss", "Dr.", "Captain", "Lady", "Sir", "Lord"}
_BEFORE_PLACES = {"in", "at", "from", "to", "near", "towards"}
_NUMBERS = frozenset(
    [
        *("two", "three", "four", "five", "six", "seven", "eight", "nine"),
        *("ten", "eleven", "twelve", "twenty", "thirty", "forty", "fifty"),
        *("sixty", "hundred", "thousand"),
    ]
)
_MARKS = ",.;:!?\"'()"
_NAME = re.compile(r"[A-Z][a-z]+")


def read_parts(path: str, separator: str, skip_header_lines: int) -> list[Part]:
    """Returns the files below a path, with the documents' sentences.

    Args:
        path: a directory or file.
        separator: of a file's documents, as of `bin.build_pretraining_data`;
            of Markdown each paragraph is one.
        skip_header_lines: lines at the head of each file to skip.
    """
    config = PretrainingDataConfig(
        document_separator=separator, skip_header_lines=skip_header_lines
    )
    parts = []
    for file in list_inputs([path], [], config):
        documents = [d.paragraphs for d in read_file(file, CorpusReport())]
        if len(documents) == 1:
            documents = [[paragraph] for paragraph in documents[0]]
        texts = [paragraph for document in documents for paragraph in document]
        splitter = SENTENCE_SPLITTERS["punkt"].train(texts)
        parts.append(
            Part(
                file.name.rpartition("/")[2].partition(".")[0],
                [
                    [s for text in document for s in splitter.split(text)]
                    for document in documents
                ],
            )
        )
    return parts


def divided(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """Returns the parts' first four fifths as train, the last as dev."""
    found: dict[str, list[Part]] = {"train": [], "dev": []}
    for name, documents in parts:
        border = len(documents) * 4 // 5
        found["train"].append(Part(name, documents[:border]))
        found["dev"].append(Part(name, documents[border:]))
    return found


def _sentences(parts: Sequence[Part]) -> list[tuple[Part, str]]:
    return [
        (part, sentence)
        for part in parts
        for document in part.documents
        for sentence in document
        if len(sentence.split()) in _WORDS
    ]


def _neighbours(parts: Sequence[Part]) -> list[tuple[str, str]]:
    return [
        pair
        for part in parts
        for document in part.documents
        for pair in itertools.pairwise(document)
        if all(len(sentence.split()) in _WORDS for sentence in pair)
    ]


def _book(parts: Sequence[Part], rng: random.Random, count: int) -> list[Row]:
    rows = []
    longest = sorted(parts, key=lambda part: len(part.documents))
    for part in longest[-_BOOKS_TO_TELL_APART:]:
        words = " ".join(s for d in part.documents for s in d).split()
        starts = range(0, len(words) - _PASSAGE_WORDS, _PASSAGE_WORDS)
        each = count // _BOOKS_TO_TELL_APART
        for start in rng.sample(starts, min(each, len(starts))):
            passage = words[start : start + _PASSAGE_WORDS]
            rows.append((" ".join(passage), part.name))
    return rows


def _file(parts: Sequence[Part], rng: random.Random, count: int) -> list[Row]:
    drawn = rng.sample(_sentences(parts), count)
    return [(sentence, part.name) for part, sentence in drawn]


def _same_document(
    parts: Sequence[Part], rng: random.Random, count: int
) -> list[Row]:
    found = [
        kept
        for part in parts
        for document in part.documents
        if len(kept := [s for s in document if len(s.split()) in _WORDS]) > 1
    ]
    rows = []
    for number in range(count):
        one, other = rng.sample(found, 2)
        first, second = rng.sample(one, 2)
        if number % 2:
            rows.append((first, second, "same"))
        else:
            rows.append((first, rng.choice(other), "other"))
    return rows


def _next_sentence(
    parts: Sequence[Part], rng: random.Random, count: int
) -> list[Row]:
    drawn = rng.sample(_neighbours(parts), count)
    seconds = [second for _, second in drawn]
    return [
        (first, second, "next")
        if number % 2
        else (first, seconds[number - 1], "other")
        for number, (first, second) in enumerate(drawn)
    ]


def _sentence_order(
    parts: Sequence[Part], rng: random.Random, count: int
) -> list[Row]:
    return [
        (*pair, "in order") if number % 2 else (*pair[::-1], "swapped")
        for number, pair in enumerate(rng.sample(_neighbours(parts), count))
    ]


def _swapped_words(
    parts: Sequence[Part], rng: random.Random, count: int
) -> list[Row]:
    rows = []
    for _, sentence in rng.sample(_sentences(parts), count):
        words = sentence.split()
        at = rng.randrange(1, len(words) - 2)
        if rng.random() < 0.5 and words[at] != words[at + 1]:
            words[at : at + 2] = words[at + 1], words[at]
            rows.append((" ".join(words), "swapped"))
        else:
            rows.append((" ".join(words), "written"))
    return rows


def tagged(sentence: str) -> list[tuple[str, str]]:
    """Returns words in lower case with tags of names, places and numbers."""
    words = sentence.split()
    tags = ["O"]
    for before, word in zip(["", *words], words, strict=False):
        bare = word.strip(_MARKS)
        is_name = bool(_NAME.fullmatch(bare)) and word not in _TITLES
        inside = (
            tags[-1].endswith(("name", "place")) and before[-1] not in _MARKS
        )
        if is_name and before in _TITLES:
            tags.append("B-name")
        elif is_name and before in _BEFORE_PLACES:
            tags.append("B-place")
        elif is_name and inside:
            tags.append(f"I{tags[-1][1:]}")
        elif bare.isdigit() or bare.lower() in _NUMBERS:
            tags.append("B-number")
        else:
            tags.append("O")
    return list(zip(map(str.lower, words), tags[1:], strict=True))


def _entities(
    parts: Sequence[Part], rng: random.Random, count: int
) -> list[Row]:
    """Returns a word and its tag a row, an empty one after each sentence."""
    found = [tagged(sentence) for _, sentence in _sentences(parts)]
    named = [words for words in found if any(tag != "O" for _, tag in words)]
    return [
        row for words in rng.sample(named, count) for row in [*words, ("",)]
    ]


@dataclasses.dataclass(frozen=True)
class MadeTask:
    """A task and how its examples are drawn.

    Attributes:
        source: `books` or `medical`.
        draw: returns rows.
        num_examples: of train and of dev.
        columns: the header; empty: lines of CoNLL.
    """

    source: str
    draw: Draw
    num_examples: tuple[int, int] = (5000, 1200)
    columns: Row = ("text", "label")


_PAIR = ("text_a", "text_b", "label")
MADE_TASKS = {
    "book": MadeTask("books", _book, (4800, 1200)),
    "entities": MadeTask("books", _entities, (3000, 700), ()),
    "next-sentence": MadeTask("books", _next_sentence, columns=_PAIR),
    "sentence-order": MadeTask("books", _sentence_order, columns=_PAIR),
    "swapped-words": MadeTask("books", _swapped_words),
    "medical-file": MadeTask("medical", _file),
    "same-document": MadeTask("medical", _same_document, columns=_PAIR),
}
