"""Splits paragraphs into sentences.

`SENTENCE_SPLITTERS` has a row for each way. Punkt (Kiss and Strunk,
Computational Linguistics 2006) learns the corpus' abbreviations and sentence
starters from the corpus itself: no language is built in and nothing is
downloaded. It judges the marks . ! ? alone; those of other scripts end
sentences by Unicode's rules.
"""

import abc
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from albert_tf.text.character_class import CharacterClass


class SentenceSplitter(abc.ABC):
    """Splits paragraphs into sentences; one without parameters by default."""

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """Returns a splitter for a corpus like `texts`."""
        del texts
        return cls()

    @classmethod
    def from_json(cls, parameters: Mapping[str, Any]) -> Self:
        """Returns the splitter with the parameters from `to_json`."""
        del parameters
        return cls()

    def to_json(self) -> dict[str, Any]:
        """Returns the trained parameters, ready for JSON."""
        return {}

    @abc.abstractmethod
    def split(self, paragraph: str) -> list[str]:
        """Returns the sentences of a paragraph, in order, none empty."""


class NewlineSplitter(SentenceSplitter):
    """Takes every line for a sentence."""

    def split(self, paragraph: str) -> list[str]:
        """Returns the lines that are not blank."""
        return [s for s in map(str.strip, paragraph.split("\n")) if s]


# A longer text is split in pieces: NLTK gives up on one after some seconds.
_MAX_CHARS = 100_000

# A longer sentence, many times an instance, is split too: SentencePiece takes
# quadratic time on a run of letters that it does not know.
MAX_SENTENCE_CHARS = 10_000

# A plain word, the mark behind it and the beginning of what follows.
_PLAIN_END = re.compile(
    r"""["(]?([“‘]?[^\W\d_]{2,})(?:([!?])|\.)(?:\s+[^\s.\-]|[^\s.\-]$)"""
)
# Size of the cache of answers, for contexts that are not plain.
_CACHED_CONTEXTS = 100_000

# The property Sentence_Terminal of Unicode 18.0, in the Basic Multilingual
# Plane. Not here are the marks of Latin text (ASCII, U+2000 to U+206F, U+2E00
# to U+2E7F), and the full stops U+FE52 and U+FF0E, which also stand in numbers
# and names. A table of our own: the same text gives the same sentences with any
# version of a library. The tests compare it with the library regex.
_TERMINALS = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e"
    "\u0964\u0965\u104a\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5"
    "\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b"
    "\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f\u2cf9-\u2cfb\u3002"
    "\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9"
    "\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe56\ufe57\uff01"
    "\uff1f\uff61"
)
# The terminators beyond that plane (U+10A56 and so on).
_TERMINALS_BEYOND = (
    "10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 "
    "11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c "
    "112a9 113d4-113d5 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 "
    "1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c 11c41-11c42 "
    "11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 "
    "16d6e-16d6f 16e98 1bc9f 1da88"
)
_MARKS = _TERMINALS + ".!?\uff0e"
# Punctuation that closes, and quotes that may (Pe, Pf and SB=Close of UAX #29,
# without mathematical brackets).
_CLOSING = (
    "\"')\\]}\u00bb\u0f3b\u0f3d\u169c\u2019\u201d\u203a\u2046\u3009\u300b\u300d"
    "\u300f\u3011\u3015\u3017\u3019\u301b\u301e\u301f\ufd3e\ufe18\ufe36\ufe38"
    "\ufe3a\ufe3c\ufe3e\ufe40\ufe42\ufe44\ufe48\ufe5a\ufe5c\ufe5e\uff09\uff3d"
    "\uff5d\uff60\uff63"
)
_CLOSING_BEYOND = "1f676-1f678"
# SContinue of UAX #29: the sentence continues.
_CONTINUING = (
    ",\\-:;\u037e\u055d\u060c\u060d\u07f8\u1802\u1808\u2013\u2014\u3001"
    "\ufe10\ufe11\ufe13\ufe14\ufe31\ufe32\ufe50\ufe51\ufe54\ufe55\ufe58\ufe63"
    "\uff0c\uff0d\uff1a\uff1b\uff64"
)
_HAN_AND_KANA = (
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
# Rules SB8a to SB11 of UAX #29, except that an opening bracket or quote begins
# the next sentence. Of the marks that need a context, ! and ? end a sentence
# between characters of a script without spaces, a full stop after hiragana
# (behind Han or katakana it may stand in a foreign name).
_TERMINAL_END = re.compile(
    rf"""[{_MARKS}](?:(?<=[{_TERMINALS}])
    |(?<=[{_HAN_AND_KANA}][!?])[!?]*(?=[{_CLOSING}]*[{_HAN_AND_KANA}])
    |(?<=[\u3041-\u3096][.\uff0e])(?![.\uff0e0-9\uff10-\uff19A-Za-z]))
    [{_MARKS}]*[{_CLOSING}]*[^\S\n]*
    (?:[{_MARKS}]+[{_CLOSING}]*[^\S\n]*)*
    (?:\n|(?P<goes_on>[{_CONTINUING}]))?""",
    re.VERBOSE,
)


# With characters beyond the Basic Multilingual Plane in a set `re` is a hundred
# times slower; these stand for them, one for one.
_STAND_INS = {
    chr(code): character
    for ranges, character in (
        (_TERMINALS_BEYOND, "\u3002"),
        (_CLOSING_BEYOND, "\u201d"),
    )
    for code in CharacterClass.parse(ranges).codes
}
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
_ASCII_MARK = re.compile("[.!?]")
_MARK_AT_END = re.compile(rf"[{_MARKS}\u2026][{_CLOSING}\s]*\Z")


class PunktSplitter(SentenceSplitter):
    """Splits paragraphs by Punkt.

    Gives the sentences of NLTK's PunktSentenceTokenizer. A word of letters
    that is neither an abbreviation nor the first of a collocation ends a
    sentence with its full stop whatever follows, as ! and ? always do; NLTK
    is asked about the rest alone, which makes it three times as fast.

    Text with sentence marks of other scripts (Chinese, Hindi, Arabic) is
    split at them first, by the rules of Unicode, and Punkt judges the marks
    . ! ? in between.
    """

    def __init__(self, parameters: Any) -> None:
        from nltk.tokenize import punkt

        # A Counter does not grow with every word that it is asked for.
        parameters.ortho_context = Counter(parameters.ortho_context)
        self._parameters = parameters
        self._tokenizer = punkt.PunktSentenceTokenizer(parameters)
        self._ask_nltk = functools.lru_cache(_CACHED_CONTEXTS)(
            self._tokenizer.text_contains_sentbreak
        )
        self._tokenizer.text_contains_sentbreak = self._ends_sentence
        self._uncertain = parameters.abbrev_types | {
            first for first, _ in parameters.collocations
        }

    def _ends_sentence(self, context: str) -> bool:
        """Returns whether a sentence ends in a word, its mark and the next."""
        plain = _PLAIN_END.match(context)
        if plain and (plain[2] or plain[1].lower() not in self._uncertain):
            return True
        return self._ask_nltk(context)

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """Returns a splitter trained, unsupervised, on `texts`."""
        from nltk.tokenize import punkt

        trainer = punkt.PunktTrainer()
        # Old and new books in one corpus write both Mr and Mr.; with the
        # penalty for that, Mr. would be no abbreviation.
        trainer.IGNORE_ABBREV_PENALTY = True
        for text in texts:
            lines = _cut(text.split("\n"), _MAX_CHARS)
            trainer.train("\n".join(lines), finalize=False)
        trainer.finalize_training()
        return cls(trainer.get_params())

    @classmethod
    def from_json(cls, parameters: Mapping[str, Any]) -> Self:
        """Returns the splitter with the parameters from `to_json`."""
        from nltk.tokenize import punkt

        restored = punkt.PunktParameters()
        restored.abbrev_types.update(parameters["abbreviations"])
        restored.collocations.update(map(tuple, parameters["collocations"]))
        restored.sent_starters.update(parameters["sentence_starters"])
        for flags, types in parameters["orthographic_context"].items():
            for word_type in types.split(" "):
                restored.ortho_context[word_type] = int(flags)
        return cls(restored)

    def to_json(self) -> dict[str, Any]:
        """Returns Punkt's parameters, sorted.

        The orthographic context, tens of thousands of word types, is grouped
        by its value; the types of a value are joined with spaces.
        """
        by_flags: dict[str, list[str]] = {}
        for word_type, flags in sorted(self._parameters.ortho_context.items()):
            by_flags.setdefault(str(flags), []).append(word_type)
        return {
            "abbreviations": sorted(self._parameters.abbrev_types),
            "collocations": [*map(list, sorted(self._parameters.collocations))],
            "sentence_starters": sorted(self._parameters.sent_starters),
            "orthographic_context": {
                flags: " ".join(by_flags[flags]) for flags in sorted(by_flags)
            },
        }

    def split(self, paragraph: str) -> list[str]:
        """Returns the sentences; line breaks within them become spaces."""
        return [
            sentence
            for passage in _passages(paragraph)
            for sentence in self._split_passage(passage.replace("\n", " "))
        ]

    def _split_passage(self, text: str) -> list[str]:
        """Returns the sentences that . ! and ? end, as Punkt judges."""
        if len(text) <= _MAX_CHARS and not _ASCII_MARK.search(text):
            return [stripped] if (stripped := text.strip()) else []
        sentences: list[str] = []
        position = 0
        while len(text) - position > _MAX_CHARS:
            end = _piece_end(text, position, _MAX_CHARS)
            spans = list(self._tokenizer.span_tokenize(text[position:end]))
            # The rest of the last sentence is in the next piece.
            begun = spans.pop()[0] if len(spans) > 1 else end - position
            sentences += [text[position + a : position + b] for a, b in spans]
            position += begun
        sentences += self._tokenizer.tokenize(text[position:])
        return [s for s in map(str.strip, sentences) if s]


def _passages(text: str) -> Iterator[str]:
    """Yields a text in parts, cut where marks of other scripts end sentences.

    A text without such marks is one part.
    """
    begin = 0
    if not text.isascii():
        for match in _TERMINAL_END.finditer(_with_stand_ins(text)):
            if not match["goes_on"]:
                yield text[begin : match.end()]
                begin = match.end()
    yield text[begin:]


def _with_stand_ins(text: str) -> str:
    """Returns a text of the same length that _TERMINAL_END can be sought in."""
    return _BEYOND.sub(lambda found: _STAND_INS.get(found[0], found[0]), text)


def has_end(sentence: str) -> bool:
    """Returns whether a sentence ends with a mark, quotes behind it or not."""
    return bool(_MARK_AT_END.search(_with_stand_ins(sentence)))


def cut_long_sentences(sentences: Iterable[str]) -> Iterator[str]:
    """Yields sentences, those above MAX_SENTENCE_CHARS in pieces."""
    return _cut(sentences, MAX_SENTENCE_CHARS)


def _cut(texts: Iterable[str], size: int) -> Iterator[str]:
    for text in texts:
        while len(text) > size:
            end = _piece_end(text, 0, size)
            yield text[:end]
            text = text[end:]
        yield text


def _piece_end(text: str, begin: int, size: int) -> int:
    """Returns where a piece of a long text ends, behind a space if any."""
    end = begin + size
    return text.rfind(" ", end - size // 2, end) + 1 or end


SENTENCE_SPLITTERS: dict[str, type[SentenceSplitter]] = {
    "punkt": PunktSplitter,
    "newline": NewlineSplitter,
}
