"""Search by words: their counts in passages, scored by TF-IDF or BM25."""

import functools
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from albert_tf.io.json_files import read_json_list, write_json
from albert_tf.text.normalization import normalize
from albert_tf.text.terms import TERM, UNSPACED

_COUNTS, _WORDS = "counts.npz", "words.json"
_WORD = re.compile(TERM)
_PAIR = re.compile(f"(?=({UNSPACED}{UNSPACED}))")
# BM25's saturation of repeated words, and by length, as in Lucene.
_K1, _B = 1.2, 0.75


def words_of(text: str) -> list[str]:
    """Returns the words of a text, lower-case and without accents.

    Of scripts without spaces each character is one.
    """
    return _WORD.findall(_clean(text))


def _terms(text: str) -> list[str]:
    """Returns the words, and the pairs of such characters side by side."""
    text = _clean(text)
    return _WORD.findall(text) + _PAIR.findall(text)


def _clean(text: str) -> str:
    text = normalize(text, do_lower_case=True, keep_accents=False)
    # The final sigma: capitals have one sigma alone.
    text = text.replace("ς", "σ")
    # Without accents that puts together the syllables of Korean.
    return unicodedata.normalize("NFC", text)


class WordIndex:
    """The counts of words in passages.

    Attributes:
        files: the names of those that it consists of.
    """

    files = (_COUNTS, _WORDS)

    def __init__(self, counts: Any, words: Mapping[str, int]) -> None:
        """Takes a sparse matrix `[passages, words]`, and each word's column."""
        self._words = words
        self._number = counts.shape[0]
        self._lengths = np.asarray(counts.sum(axis=1)).ravel()
        self._counts = counts.tocsc()

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> "WordIndex":
        """Returns the index of passages."""
        from scipy.sparse import csr_matrix

        words: dict[str, int] = {}
        columns, values, offsets = [], [], [0]
        for text in texts:
            for word, count in Counter(_terms(text)).items():
                columns.append(words.setdefault(word, len(words)))
                values.append(count)
            offsets.append(len(columns))
        shape = len(offsets) - 1, len(words)
        counts = np.array(values, np.float32), columns, offsets
        return cls(csr_matrix(counts, shape=shape), words)

    def save(self, directory: str) -> None:
        """Writes the index into a directory."""
        from scipy.sparse import save_npz

        save_npz(os.path.join(directory, _COUNTS), self._counts)
        write_json(os.path.join(directory, _WORDS), list(self._words))

    @classmethod
    def load(cls, directory: str) -> "WordIndex":
        """Returns the index in a directory."""
        from scipy.sparse import load_npz

        # The words of any number of passages.
        words = read_json_list(os.path.join(directory, _WORDS), limit=None)
        counts = load_npz(os.path.join(directory, _COUNTS))
        return cls(counts, {word: n for n, word in enumerate(words)})

    def bm25(self, query: str) -> np.ndarray:
        """Returns the BM25 score of every passage, `[passages]`.

        Robertson and Zaragoza 2009, with Lucene's idf, which is positive.
        """
        scores = np.zeros(self._number)
        mean = max(float(self._lengths.mean()), 1.0)
        longer = _K1 * (1 - _B + _B * self._lengths / mean)
        for rows, counts, times in self._columns(query):
            idf = np.log1p((self._number - len(rows) + 0.5) / (len(rows) + 0.5))
            saturated = counts * (_K1 + 1) / (counts + longer[rows])
            scores[rows] += times * idf * saturated
        return scores

    def tfidf(self, query: str) -> np.ndarray:
        """Returns the cosine of TF-IDF vectors, `[passages]`.

        As scikit-learn's TfidfVectorizer by default; the query's own length
        is left out, which changes no order.
        """
        scores = np.zeros(self._number)
        for rows, counts, times in self._columns(query):
            idf = self._idf(len(rows))
            scores[rows] += times * idf * counts * idf
        return scores / self._norms

    def _idf(self, passages: Any) -> Any:
        return np.log((1 + self._number) / (1 + passages)) + 1

    @functools.cached_property
    def _norms(self) -> np.ndarray:
        idf = self._idf(np.diff(self._counts.indptr))
        squares = self._counts.multiply(self._counts) @ np.square(idf)
        return np.sqrt(np.maximum(squares, 1e-12))

    def _columns(self, query: str) -> Iterable[tuple[np.ndarray, ...]]:
        """Yields passages with a word, its counts, its times in the query."""
        for word, times in Counter(_terms(query)).items():
            if word in self._words:
                column = self._words[word]
                start, end = self._counts.indptr[column : column + 2]
                yield (
                    self._counts.indices[start:end],
                    self._counts.data[start:end],
                    np.array(times),
                )
