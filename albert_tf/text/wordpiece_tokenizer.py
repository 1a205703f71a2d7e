"""Text to token ids with a WordPiece vocabulary (Chinese models, BERT's)."""

import functools
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.json_files import read_at_most, write_json
from albert_tf.text import wordpiece
from albert_tf.text.tokenizer_base import (
    CONFIG_FILE,
    JSON_FILE,
    MODEL_INPUT_NAMES,
    Encoding,
    Tokenizer,
    fingerprint,
)
from albert_tf.text.tokenizer_json import WORDPIECE_SPECIALS, wordpiece_json
from albert_tf.text.vocabulary_limits import (
    MAX_VOCABULARY_BYTES,
    check_number_of_pieces,
)

VOCAB_FILE = "vocab.txt"

# Places that BERT's vocabularies keep free; no text holds them.
_UNUSED = re.compile(r"\[unused\d+\]")

# How many stretches of text to remember, and how long ones: some 20 MB.
_REMEMBERED = 1 << 16
_REMEMBERED_LENGTH = 32


class WordPieceTokenizer(Tokenizer):
    """BERT's words, and the longest pieces of each.

    Args:
        vocabulary: the pieces by id, with [PAD], [UNK], [CLS], [SEP] and
            [MASK] anywhere among them.
        do_lower_case: whether text is lower-cased first.
        keep_accents: whether accents stay; None: where the case stays.
        tokenize_chinese_chars: whether an ideograph is a word.
        source: names the vocabulary in error messages.

    Raises:
        UserError: when a special piece is missing.
    """

    special_tokens = WORDPIECE_SPECIALS

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
        self.settings = {
            "do_lower_case": do_lower_case,
            "keep_accents": keep_accents,
            "tokenize_chinese_chars": tokenize_chinese_chars,
        }
        super().__init__(vocabulary, source)
        self.vocabulary = tuple(vocabulary)
        self.replacement_ids = np.array(
            [
                i
                for i, piece in enumerate(vocabulary)
                if i not in self.special_ids and not _UNUSED.fullmatch(piece)
            ],
            np.int32,
        )
        self.word_start = np.array(
            [not p.startswith(wordpiece.CONTINUATION) for p in vocabulary],
            bool,
        )
        self.fingerprint = fingerprint(self._file_contents(), self.settings)
        self._first = {piece: i for i, piece in enumerate(vocabulary)}
        self._later = {
            piece.removeprefix(wordpiece.CONTINUATION): i
            for i, piece in enumerate(vocabulary)
            if not self.word_start[i]
        }
        self._stretches = wordpiece.stretches(
            tokenize_chinese_chars=tokenize_chinese_chars
        )
        self._traced_stretches = self._stretches
        if not keep_accents:
            self._traced_stretches = wordpiece.accented_stretches(
                tokenize_chinese_chars=tokenize_chinese_chars
            )
        self._remembered_ids = functools.lru_cache(_REMEMBERED)(
            self._stretch_ids
        )
        self._remembered_encoding = functools.lru_cache(_REMEMBERED)(
            self._stretch_encoding
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # The tables are made anew, and each process remembers its own texts.
        return (_from_settings, (self.vocabulary, self.settings))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces."""
        ids: list[int] = []
        for stretch in self._stretches.findall(text):
            if len(stretch) <= _REMEMBERED_LENGTH:
                ids += self._remembered_ids(stretch)
            else:
                ids += self._stretch_ids(stretch)
        return ids

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of `encode` and where in `text` they come from.

        The unknown piece stands for the whole word.
        """
        encoding = Encoding([], [], [])
        for match in self._traced_stretches.finditer(text):
            stretch, begin = match[0], match.start()
            if len(stretch) <= _REMEMBERED_LENGTH:
                part = self._remembered_encoding(stretch)
            else:
                part = self._stretch_encoding(stretch)
            encoding.ids.extend(part.ids)
            encoding.starts.extend([begin + start for start in part.starts])
            encoding.ends.extend([begin + end for end in part.ends])
        return encoding

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self.vocabulary[int(i)] for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the words of ids, a space between two.

        Special pieces but [UNK] have no text.
        """
        silent = {*self.special_ids} - {self.unk_id}
        text = " ".join(self.pieces(i for i in ids if int(i) not in silent))
        return text.replace(f" {wordpiece.CONTINUATION}", "")

    def save(
        self,
        directory: str | os.PathLike[str],
        model_max_length: int = 512,
    ) -> None:
        """Writes what `load_tokenizer` and `transformers` read."""
        files.makedirs(directory)
        vocabulary = os.path.join(directory, VOCAB_FILE)
        files.write(vocabulary, self._file_contents())
        contents = wordpiece_json(self.vocabulary, **self.settings)
        write_json(os.path.join(directory, JSON_FILE), contents)
        settings = {
            name: value
            for name, value in self.settings.items()
            if name != "keep_accents"
        }
        config = {
            "tokenizer_class": "BertTokenizer",
            **settings,
            "strip_accents": not self.settings["keep_accents"],
            "model_max_length": model_max_length,
            "model_input_names": MODEL_INPUT_NAMES,
            **self.special_tokens,
        }
        write_json(os.path.join(directory, CONFIG_FILE), config)

    def _stretch_ids(self, stretch: str) -> tuple[int, ...]:
        ids: list[int] = []
        for word in wordpiece.split_words(stretch, **self.settings):
            found = wordpiece.split_word(word, self._first, self._later)
            ids += [self.unk_id] if found is None else found
        return tuple(ids)

    def _stretch_encoding(self, stretch: str) -> Encoding:
        encoding = Encoding([], [], [])
        for word in wordpiece.trace_words(stretch, **self.settings):
            found = wordpiece.split_word(word.text, self._first, self._later)
            if found is None:
                found, lengths = [self.unk_id], [len(word.text)]
            else:
                lengths = [len(self._surface(i)) for i in found]
            edges = list(itertools.accumulate(lengths, initial=0))
            encoding.ids.extend(found)
            encoding.starts.extend(word.starts[edge] for edge in edges[:-1])
            encoding.ends.extend(word.ends[edge - 1] for edge in edges[1:])
        return encoding

    def _surface(self, piece_id: int) -> str:
        return self.vocabulary[piece_id].removeprefix(wordpiece.CONTINUATION)

    def _file_contents(self) -> bytes:
        return "".join(f"{piece}\n" for piece in self.vocabulary).encode()


def read_vocabulary(path: str) -> list[str]:
    """Returns the pieces in a file, one a line.

    Raises:
        UserError: naming the line that is not UTF-8, empty, or there twice;
            for a file that cannot be read or is far larger than any
            vocabulary.
    """
    content = read_at_most(path, MAX_VOCABULARY_BYTES).rstrip(b"\r\n")
    check_number_of_pieces(content.count(b"\n") + 1, path)
    lines = content.split(b"\n")
    # Only these end a line: pieces may be other characters that split one.
    pieces: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: {error.reason} at byte "
                f"{error.start}; the file must be UTF-8."
            ) from None
        # As the original, but a piece of white space alone keeps its place.
        piece = text.strip() or text
        if not piece:
            raise UserError(
                f"{path}, line {number}: is empty; every line is a piece."
            )
        if piece in pieces:
            raise UserError(
                f"{path}, line {number}: {piece!r} stands on line "
                f"{pieces[piece]} already; a piece has one id."
            )
        pieces[piece] = number
    return list(pieces)


def _from_settings(
    vocabulary: Sequence[str], settings: dict[str, bool]
) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocabulary, **settings)
