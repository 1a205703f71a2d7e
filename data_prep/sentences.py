"""Splits paragraphs into sentences.

`SENTENCE_SPLITTERS` names the ways. Punkt (Kiss and Strunk, Computational
Linguistics 2006) learns the corpus' abbreviations and sentence starters from
the corpus itself: no language is built in and nothing is downloaded.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, Self


class SentenceSplitter(Protocol):
    """What a way of splitting can do."""

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """Returns a splitter for a corpus like `texts`."""
        ...

    @classmethod
    def from_json(cls, parameters: Mapping[str, Any]) -> Self:
        """Returns the splitter that `to_json` described."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns what was learned, ready for JSON; {} if nothing is."""
        ...

    def split(self, paragraph: str) -> list[str]:
        """Returns the sentences of a paragraph, in order, none empty."""
        ...


class NewlineSplitter:
    """Takes every line for a sentence."""

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """Returns a splitter; there is nothing to learn."""
        del texts
        return cls()

    @classmethod
    def from_json(cls, parameters: Mapping[str, Any]) -> Self:
        """Returns a splitter."""
        del parameters
        return cls()

    def to_json(self) -> dict[str, Any]:
        """Returns {}."""
        return {}

    def split(self, paragraph: str) -> list[str]:
        """Returns the lines that are not blank."""
        lines = (line.strip() for line in paragraph.split("\n"))
        return [line for line in lines if line]


class _Contexts(dict[str, int]):
    """Orthographic contexts; unlike NLTK's, asking for one adds none.

    Otherwise a splitter would grow with every new word of the corpus.
    """

    def __missing__(self, word_type: str) -> int:
        return 0


# A longer text is split in pieces: NLTK gives up on one after some seconds.
_MAX_CHARS = 100_000

# Nor are longer sentences than this, which are many times an instance anyway:
# SentencePiece takes quadratic time on a run of letters it does not know.
MAX_SENTENCE_CHARS = 10_000

# A plain word, the mark behind it and the beginning of what follows.
_PLAIN_END = re.compile(
    r"""["(]?([“‘]?[^\W\d_]{2,})(?:([!?])|\.)(?:\s+[^\s.\-]|[^\s.\-]$)"""
)
# Contexts of a possible end whose answer is kept, for those not plain.
_CACHED_CONTEXTS = 100_000


class PunktSplitter:
    """Splits where Punkt's parameters see the end of a sentence.

    Gives the sentences of NLTK's PunktSentenceTokenizer. A word of letters
    that is neither an abbreviation nor the first of a collocation ends a
    sentence with its full stop whatever follows, as ! and ? always do; NLTK
    is asked about the rest alone, which makes it three times as fast.
    """

    def __init__(self, parameters: Any) -> None:
        from nltk.tokenize import punkt

        parameters.ortho_context = _Contexts(parameters.ortho_context)
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

        trainer = punkt.PunktTrainer(token_cls=_quick_token_class())
        # Old and new books in one corpus write both Mr and Mr.; with the
        # penalty for that, Mr. would be no abbreviation.
        trainer.IGNORE_ABBREV_PENALTY = True
        for text in texts:
            trainer.train(_with_short_lines(text), finalize=False)
        trainer.finalize_training()
        return cls(trainer.get_params())

    @classmethod
    def from_json(cls, parameters: Mapping[str, Any]) -> Self:
        """Returns the splitter that `to_json` described."""
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
        text = paragraph.replace("\n", " ")
        sentences: list[str] = []
        position = 0
        while len(text) - position > _MAX_CHARS:
            end = _piece_end(text, position)
            spans = list(self._tokenizer.span_tokenize(text[position:end]))
            # What the last sentence lacks is in the next piece.
            begun = spans.pop()[0] if len(spans) > 1 else end - position
            sentences += [text[position + a : position + b] for a, b in spans]
            position += begun
        sentences += self._tokenizer.tokenize(text[position:])
        return [s for s in map(str.strip, sentences) if s]


def cut_long_sentences(sentences: Iterable[str]) -> Iterator[str]:
    """Yields sentences, those above MAX_SENTENCE_CHARS in pieces."""
    for sentence in sentences:
        while len(sentence) > MAX_SENTENCE_CHARS:
            end = _piece_end(sentence, 0, MAX_SENTENCE_CHARS)
            yield sentence[:end]
            sentence = sentence[end:]
        yield sentence


def _piece_end(text: str, begin: int, size: int = _MAX_CHARS) -> int:
    """Returns where a piece of a long text ends, behind a space if any."""
    end = begin + size
    return text.rfind(" ", end - size // 2, end) + 1 or end


def _with_short_lines(text: str) -> str:
    """Returns a text whose long lines are broken."""
    lines = []
    for line in text.split("\n"):
        while len(line) > _MAX_CHARS:
            end = _piece_end(line, 0)
            lines.append(line[:end])
            line = line[end:]
        lines.append(line)
    return "\n".join(lines)


@functools.cache
def _quick_token_class() -> type:
    """Returns NLTK's token with short ways to answers that are often plain."""
    from nltk.tokenize import punkt

    class Token(punkt.PunktToken):
        __slots__ = ()

        def _get_type(self, tok: str) -> str:
            lower = tok.lower()
            return lower if lower.isalpha() else super()._get_type(tok)

        @property
        def is_ellipsis(self) -> Any:
            return self.tok.startswith("..") and super().is_ellipsis

    return Token


SENTENCE_SPLITTERS: dict[str, type[SentenceSplitter]] = {
    "punkt": PunktSplitter,
    "newline": NewlineSplitter,
}
