"""Text to token ids with ALBERT's SentencePiece vocabulary (English models)."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf import files
from albert_tf.config import UserError, write_json
from albert_tf.text.normalization import normalize
from albert_tf.text.tokenizer_base import (
    CONFIG_FILE,
    JSON_FILE,
    MODEL_INPUT_NAMES,
    Tokenizer,
    fingerprint,
)
from albert_tf.text.tokenizer_json import (
    SENTENCEPIECE_SPECIALS,
    ends_in_digit_comma,
    sentencepiece_json,
)

MODEL_FILE = "spiece.model"

# The mark that SentencePiece puts where a space was.
SPACE = "▁"

_ASCII_LETTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
# The original's list, which the apostrophe is missing from.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')


def starts_word(piece: str) -> bool:
    """Returns whether masking begins a new word at this piece.

    The rule of google-research/albert (`_is_start_piece_sp`): one character
    of punctuation, or anything beside ASCII letters and punctuation, such as
    the mark of a space. So only pieces of plain letters continue a word.
    """
    plain = _ASCII_LETTERS | _PUNCTUATION
    return piece in _PUNCTUATION or not plain.issuperset(piece)


class SentencePieceTokenizer(Tokenizer):
    """Clean-up, SentencePiece, digits before a comma.

    Args:
        model_bytes: a SentencePiece model with the special pieces <pad>,
            <unk>, [CLS], [SEP] and [MASK].
        do_lower_case: whether text is lower-cased first.
        keep_accents: whether accents stay.
        source: names the model in error messages.

    Attributes:
        expansions: for the id of every piece that ends in a comma after a
            digit, the ids that take its place.

    Raises:
        UserError: when `model_bytes` is no such model.
    """

    special_tokens = SENTENCEPIECE_SPECIALS

    def __init__(
        self,
        model_bytes: bytes,
        *,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        source: str = "the SentencePiece model",
    ) -> None:
        self.model_bytes = model_bytes
        self.settings = {
            "do_lower_case": do_lower_case,
            "keep_accents": keep_accents,
        }
        self._processor = _open_model(model_bytes, source)
        pieces = self.pieces(range(self._processor.get_piece_size()))
        super().__init__(pieces, source)
        self.replacement_ids = np.array(
            [i for i in range(self.vocab_size) if self._is_text(i)], np.int32
        )
        self.word_start = np.array([starts_word(p) for p in pieces], bool)
        self.expansions = {
            i: self._split_comma(piece)
            for i, piece in enumerate(pieces)
            if ends_in_digit_comma(piece) and self._is_text(i)
        }
        self.fingerprint = fingerprint(model_bytes, self.settings)

    def __reduce__(self) -> tuple[Any, ...]:
        # SentencePiece's own state travels as the model's bytes.
        return (_from_settings, (self.model_bytes, self.settings))

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces."""
        cleaned = normalize(text, **self.settings)
        return self._expand(self._processor.encode(cleaned, out_type=int))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        cleaned = [normalize(text, **self.settings) for text in texts]
        # One thread: callers that want more have several processes.
        batch = self._processor.encode(cleaned, out_type=int, num_threads=1)
        return [self._expand(ids) for ids in batch]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special pieces but <unk> have none."""
        return self._processor.decode([int(i) for i in ids])

    def save(
        self,
        directory: str | os.PathLike[str],
        model_max_length: int = 512,
    ) -> None:
        """Writes what `load_tokenizer` and `transformers` read."""
        files.makedirs(directory)
        files.write(os.path.join(directory, MODEL_FILE), self.model_bytes)
        contents = sentencepiece_json(self.model_bytes, **self.settings)
        write_json(os.path.join(directory, JSON_FILE), contents)
        config = {
            "tokenizer_class": "AlbertTokenizer",
            **self.settings,
            "remove_space": True,
            "model_max_length": model_max_length,
            "model_input_names": MODEL_INPUT_NAMES,
            "bos_token": self.special_tokens["cls_token"],
            "eos_token": self.special_tokens["sep_token"],
            **self.special_tokens,
        }
        write_json(os.path.join(directory, CONFIG_FILE), config)

    def _is_text(self, piece_id: int) -> bool:
        model = self._processor
        return not (
            model.is_control(piece_id)
            or model.is_unknown(piece_id)
            or model.is_unused(piece_id)
        )

    def _expand(self, ids: list[int]) -> list[int]:
        if self.expansions.keys().isdisjoint(ids):
            return ids
        expanded: list[int] = []
        for i in ids:
            expanded += self.expansions.get(i, (i,))
        return expanded

    def _split_comma(self, piece: str) -> tuple[int, ...]:
        """Returns the ids of "8" and "," for "8,".

        As in `encode_pieces` of google-research/albert: the number is
        tokenized anew, and loses the space in front that it had not before.
        """
        number = piece[:-1].replace(SPACE, "")
        parts = self._processor.encode(number, out_type=str)
        if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
            parts = [part for part in (parts[0][1:], *parts[1:]) if part]
        return tuple(self._processor.piece_to_id(p) for p in (*parts, ","))


def _open_model(
    model_bytes: bytes, source: str
) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        # SentencePiece takes a file that is cut between two pieces for a
        # smaller vocabulary; the settings after the pieces are then missing.
        model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
        if not model.HasField("normalizer_spec"):
            raise DecodeError("its end is missing")
        processor.LoadFromSerializedProto(model_bytes)
    except (DecodeError, RuntimeError) as error:
        raise UserError(
            f"{source} is not a whole SentencePiece model "
            f"({len(model_bytes)} bytes: {' '.join(str(error).split())}); "
            f"copy it anew or train one with train_vocab."
        ) from None
    return processor


def _from_settings(
    model_bytes: bytes, settings: dict[str, bool]
) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(model_bytes, **settings)
