"""Text to token ids with a WordPiece vocabulary (Chinese models, BERT's)."""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError, require, shown
from albert_tf.io.json_files import read_at_most
from albert_tf.text import wordpiece
from albert_tf.text.tokenizer_base import (
    MAX_VOCABULARY_BYTES,
    WORDPIECE_SPECIALS,
    AddedToken,
    Encoding,
    Tokenizer,
    check_number_of_pieces,
)
from albert_tf.text.tokenizer_json import wordpiece_json

# Reserved entries of BERT's vocabularies; no text holds them.
_UNUSED = re.compile(r"\[unused\d+\]")

# Entries of a cache of chunks of text, and characters of the longest chunk in
# it: some 20 MB.
_CACHE_SIZE = 1 << 16
_CACHED_LENGTH = 32


class WordPieceTokenizer(Tokenizer):
    """BERT's words, each split greedily into its longest pieces.

    Args:
        vocabulary: the pieces by id, with [PAD], [UNK], [CLS], [SEP] and
            [MASK] anywhere among them.
        keep_accents: whether accents stay; None: where the case stays.
        tokenize_chinese_chars: whether an ideograph is a word.
        source: names the vocabulary in error messages.

    Raises:
        UserError: when a special piece is missing.
    """

    vocabulary_file = "vocab.txt"
    setting_names = ("do_lower_case", "keep_accents", "tokenize_chinese_chars")
    special_tokens = WORDPIECE_SPECIALS
    transformers_class = "BertTokenizer"

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        do_lower_case: bool = True,
        keep_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        source: str = "the WordPiece vocabulary",
    ) -> None:
        if keep_accents is None:
            keep_accents = not do_lower_case
        self.vocabulary = tuple(vocabulary)
        super().__init__(
            self.vocabulary,
            vocabulary_bytes="".join(f"{p}\n" for p in vocabulary).encode(),
            pieces=self.vocabulary,
            word_start=[
                not p.startswith(wordpiece.CONTINUATION) for p in vocabulary
            ],
            settings={
                "do_lower_case": do_lower_case,
                "keep_accents": keep_accents,
                "tokenize_chinese_chars": tokenize_chinese_chars,
            },
            source=source,
        )
        self.replacement_ids = np.array(
            [
                i
                for i, piece in enumerate(vocabulary)
                if i not in self.special_ids and not _UNUSED.fullmatch(piece)
            ],
            np.int32,
        )
        self._first = {piece: i for i, piece in enumerate(vocabulary)}
        self._later = {
            piece.removeprefix(wordpiece.CONTINUATION): i
            for i, piece in enumerate(vocabulary)
            if not self.word_start[i]
        }
        self._chunks = wordpiece.chunk_pattern(
            tokenize_chinese_chars=tokenize_chinese_chars, with_accents=False
        )
        self._traced_chunks = wordpiece.chunk_pattern(
            tokenize_chinese_chars=tokenize_chinese_chars,
            with_accents=not keep_accents,
        )
        cached = functools.lru_cache(_CACHE_SIZE)
        self._cached_ids = cached(self._chunk_ids)
        self._cached_encoding = cached(self._chunk_encoding)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces."""
        ids: list[int] = []
        for chunk in self._chunks.findall(text):
            if len(chunk) <= _CACHED_LENGTH:
                ids += self._cached_ids(chunk)
            else:
                ids += self._chunk_ids(chunk)
        return ids

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of `encode` with their character offsets in `text`.

        The unknown piece has the offsets of the word.
        """
        encoding = Encoding()
        for match in self._traced_chunks.finditer(text):
            chunk, begin = match[0], match.start()
            if len(chunk) <= _CACHED_LENGTH:
                part = self._cached_encoding(chunk)
            else:
                part = self._chunk_encoding(chunk)
            encoding.ids.extend(part.ids)
            encoding.starts.extend([begin + start for start in part.starts])
            encoding.ends.extend([begin + end for end in part.ends])
        return encoding

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the words of ids, a space between two.

        Special pieces but [UNK] have no text.
        """
        silent = {*self.special_ids} - {self.unk_id}
        text = " ".join(self.pieces(i for i in ids if int(i) not in silent))
        return text.replace(f" {wordpiece.CONTINUATION}", "")

    def words(self, text: str) -> list[str]:
        """Returns the words of a text that are letters alone."""
        return [
            word
            for chunk in self._chunks.findall(text)
            for word in wordpiece.split_words(chunk, **self.settings)
            if word.isalpha()
        ]

    def is_lost(self, piece: str) -> bool:
        """Returns whether the clean-up leaves no text that has this piece."""
        text = piece.removeprefix(wordpiece.CONTINUATION)
        return "".join(wordpiece.split_words(text, **self.settings)) != text

    def with_words(self, words: Iterable[str]) -> "WordPieceTokenizer":
        """Returns a tokenizer with one more piece for each of these words."""
        settings: dict[str, Any] = self.settings
        return WordPieceTokenizer((*self.vocabulary, *words), **settings)

    def with_added_tokens(
        self, tokens: Iterable[AddedToken]
    ) -> "WordPieceTokenizer":
        """Raises UserError: no clean-up keeps them apart from words."""
        raise UserError(
            f"it has the added tokens {shown([t.content for t in tokens])}, "
            "which are found within words too: only SentencePiece vocabularies "
            "can have such tokens here."
        )

    def with_unused(self, count: int) -> "WordPieceTokenizer":
        """Returns a tokenizer with `count` more pieces, which no text has."""
        ids = range(self.vocab_size, self.vocab_size + count)
        return self.with_words(f"[unused{i}]" for i in ids)

    def _json(self) -> dict[str, Any]:
        return wordpiece_json(self.vocabulary, **self.settings)

    def _config(self) -> dict[str, bool]:
        config = dict(self.settings)
        keeps = config.pop("keep_accents")
        return {**config, "strip_accents": not keeps}

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        ids: list[int] = []
        for word in wordpiece.split_words(chunk, **self.settings):
            found = wordpiece.split_word(word, self._first, self._later)
            ids += [self.unk_id] if found is None else found
        return tuple(ids)

    def _chunk_encoding(self, chunk: str) -> Encoding:
        encoding = Encoding()
        starts, ends = wordpiece.word_offsets(chunk, **self.settings)
        at = 0
        for word in wordpiece.split_words(chunk, **self.settings):
            found = wordpiece.split_word(word, self._first, self._later)
            if found is None:
                found, lengths = [self.unk_id], [len(word)]
            else:
                lengths = [
                    len(piece.removeprefix(wordpiece.CONTINUATION))
                    for piece in self.pieces(found)
                ]
            for piece_id, length in zip(found, lengths, strict=True):
                encoding.ids.append(piece_id)
                encoding.starts.append(starts[at])
                at += length
                encoding.ends.append(ends[at - 1])
        return encoding


def read_vocabulary(path: str) -> list[str]:
    """Returns the pieces in a file, one a line.

    Raises:
        UserError: naming the line that is not UTF-8, empty, or repeated; for
            a file that cannot be read or exceeds the limits of vocabularies.
    """
    content = read_at_most(path, MAX_VOCABULARY_BYTES).rstrip(b"\r\n")
    check_number_of_pieces(content.count(b"\n") + 1, path)
    pieces: dict[str, int] = {}
    # Only newlines: a piece may be another character that splits lines.
    for number, line in enumerate(content.split(b"\n"), start=1):
        where = f"{path}, line {number}"
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{where}: {error.reason} at byte {error.start}; the file "
                "must be UTF-8."
            ) from None
        # The original strips every line; a piece may be white space alone.
        piece = text.strip() or text
        require(piece != "", f"{where} is empty; every line is a piece.")
        first = pieces.setdefault(piece, number)
        require(
            first == number,
            f"{where}: {piece!r} is on line {first} already; a piece has one "
            "id.",
        )
    return list(pieces)
