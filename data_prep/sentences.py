"""Splits paragraphs into sentences.

`SENTENCE_SPLITTERS` names the ways. Punkt (Kiss and Strunk, Computational
Linguistics 2006) learns the corpus' abbreviations and sentence starters from
the corpus itself: no language is built in and nothing is downloaded.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self

# Training reads about 0.55 million characters a second.
PUNKT_SAMPLE_CHARS = 2_000_000


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


class PunktSplitter:
    """Splits where Punkt's parameters see the end of a sentence."""

    def __init__(self, parameters: Any) -> None:
        from nltk.tokenize import punkt

        parameters.ortho_context = _Contexts(parameters.ortho_context)
        self._parameters = parameters
        self._tokenizer = punkt.PunktSentenceTokenizer(parameters)

    @classmethod
    def train(cls, texts: Iterable[str]) -> Self:
        """Returns a splitter trained, unsupervised, on `texts`."""
        from nltk.tokenize import punkt

        trainer = punkt.PunktTrainer()
        # Old and new books in one corpus write both Mr and Mr.; with the
        # penalty for that, Mr. would be no abbreviation.
        trainer.IGNORE_ABBREV_PENALTY = True
        for text in texts:
            trainer.train(text, finalize=False)
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
        sentences = self._tokenizer.tokenize(paragraph.replace("\n", " "))
        return [s for s in map(str.strip, sentences) if s]


SENTENCE_SPLITTERS: dict[str, type[SentenceSplitter]] = {
    "punkt": PunktSplitter,
    "newline": NewlineSplitter,
}
